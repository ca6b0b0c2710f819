"""Gitignore patterns match like git, in linear time (no ReDoS)."""

import itertools
import random
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apexbridge.path_patterns import MAX_DEPTH, compile_patterns, covers, parse_gitignore

GIT = shutil.which("git") or ""


@pytest.mark.parametrize(
    ("pattern", "path", "taken"),
    [
        ("a", "a", True),
        ("a", "x/a", True),
        ("a", "a/x", True),
        ("a", "ab", False),
        ("/a", "x/a", False),
        ("a/b", "x/a/b", False),
        ("a/", "a", False),
        ("a/", "a/", True),
        ("a/", "a/x", True),
        ("*.ts", "x/y.ts", True),
        ("a*c", "abbc", True),
        ("a*c", "ab/c", False),
        ("a**c", "abbc", True),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("**/b", "b", True),
        ("**/b", "x/y/b", True),
        ("a/**", "a", False),
        ("a/**", "a/x/y", True),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("a/**/**/b", "a/x/b", True),
        ("**", "x", True),
        ("[ab]c", "bc", True),
        ("[!ab]c", "bc", False),
        ("[^ab]c", "xc", True),
        ("[]]x", "]x", True),
        ("[[:digit:]]x", "7x", True),
        ("[a-c]", "b", True),
        ("[\\]]", "]", True),
        ("\\*", "*", True),
        ("\\*", "a", False),
        ("\\#x", "#x", True),
        ("\\!x", "!x", True),
        ("#x", "#x", False),
        ("x\\ ", "x ", True),
        ("x  ", "x", True),
        ("文*", "文件", True),
        ("a\nb", "a\nb", True),
        (".", "x", False),
        ("", "x", False),
    ],
)
def test_a_pattern_takes_what_git_would_ignore(pattern: str, path: str, taken: bool) -> None:
    assert compile_patterns((pattern,)).matches(path) is taken


def test_a_later_line_takes_out_again_but_not_from_a_taken_folder() -> None:
    patterns = compile_patterns(("*.ts", "!*.d.ts", "gen/", "!gen/x.ts"))
    paths = ("a.ts", "a.d.ts", "gen/x.ts")
    assert [patterns.matches(path) for path in paths] == [True, False, True]
    assert patterns.verdict("a.d.ts") is False
    assert patterns.verdict("readme") is None
    assert patterns.verdict("") is None
    assert not patterns.matches("/")


@pytest.mark.parametrize("pattern", ["[", "[z-a]", "a\\", "/", "!", "//", "[[:nothing:]]", "[!"])
def test_invalid_patterns_are_reported(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        compile_patterns((pattern,))
    assert not parse_gitignore(f"{pattern}\nb\n").matches("a")
    assert parse_gitignore(f"{pattern}\nb\n").matches("b")


def test_a_path_deeper_than_any_real_one_matches_nothing() -> None:
    patterns = compile_patterns(("**/b",))
    assert patterns.matches("a/" * (MAX_DEPTH - 1) + "b")
    assert not patterns.matches("a/" * MAX_DEPTH + "b")
    assert patterns.verdict("a/" * MAX_DEPTH + "b") is None


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a" * 100 + "b", "a" * 4_000 + "c"),
        ("?*" * 100 + "b", "a" * 4_000 + "c"),
        ("**/a" * 100 + "/b", "a/" * 250 + "c"),
        ("[ab]*" * 100 + "z", "ab" * 2_000),
        ("**/" * 200 + "x", "a/" * 250 + "c"),
    ],
    ids=["stars", "questions", "folders", "classes", "double-stars"],
)
def test_no_pattern_takes_long(pattern: str, path: str) -> None:
    """Seconds of a processor, not of a clock: translated naively, each would take years."""
    start = time.process_time()
    assert not compile_patterns((pattern,)).matches(path)
    assert time.process_time() - start < 2


@given(st.text(st.sampled_from("ab*?[]!-/\\{},. "), max_size=20), st.text("ab/.", max_size=20))
def test_any_pattern_is_matched_or_refused(pattern: str, path: str) -> None:
    try:
        patterns = compile_patterns((pattern,))
    except ValueError:
        return
    assert patterns.matches(path) in {True, False}


CHANCE_ROUNDS = 150


def _lines(chance: random.Random) -> list[str]:
    pieces = ("a", "b", "*", "**", "?", "a*", "*b", "[ab]", "[!a]", "a.b", "*.b", "ab")
    lines = list[str]()
    for _ in range(chance.randint(1, 3)):
        parts = [chance.choice(pieces) for _ in range(chance.randint(1, 3))]
        head = chance.choice(("", "", "", "/", "!"))
        lines.append(head + "/".join(parts) + chance.choice(("", "", "/")))
    return lines


@pytest.mark.needs("git")
def test_git_itself_agrees(tmp_path: Path) -> None:
    names = ("a", "b", "ab")
    folders = [*names, *map("/".join, itertools.product(names, repeat=2))]
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    files = [f"{folder}/{name}" for folder in folders for name in ("a.b", "c")] + ["a.b", "c"]
    for file in files:
        (tmp_path / file).write_bytes(b"")
    subprocess.run([GIT, "init", "-q"], cwd=tmp_path, check=True)
    chance = random.Random(5)  # noqa: S311  # the same in every run
    for _ in range(CHANCE_ROUNDS):
        text = "\n".join(_lines(chance)) + "\n"
        (tmp_path / ".gitignore").write_text(text, encoding="utf-8")
        done = subprocess.run(
            [GIT, "check-ignore", "--no-index", "--stdin", "-z"],
            input="\0".join((*files, *folders)).encode(),
            cwd=tmp_path,
            capture_output=True,
            check=False,
        )
        theirs = set(done.stdout.decode().rstrip("\0").split("\0")) - {""}
        patterns = parse_gitignore(text)
        ours = {path for path in files if patterns.matches(path)}
        ours |= {path for path in folders if patterns.matches(f"{path}/")}
        assert ours == theirs, text


@pytest.mark.parametrize(
    ("pattern", "name", "is_taken"),
    [("[--0]", "/", False), ("[--0]", ".", True), ("[!-]", "-", False), ("[a-]", "-", True)],
)
def test_a_hyphen_in_brackets_is_a_range_only_between_two(
    pattern: str, name: str, is_taken: bool
) -> None:
    assert parse_gitignore(pattern).matches(name) is is_taken


def test_a_reversed_range_is_invalid() -> None:
    with pytest.raises(ValueError, match="bad character range"):
        compile_patterns(("[a--b]",))


@pytest.mark.parametrize(
    ("pattern", "is_anchored", "path", "is_covered"),
    [
        ("src/**", True, "src", True),
        ("src/**", True, "src/a/b", True),
        ("src", True, "lib/src", False),
        ("src", False, "lib/src/a", True),
        ("**", True, "", True),
        ("*", False, "", False),
        ("[", True, "[", True),
        ("a[b/c", True, "a[b/c", True),
        ("a\\", True, "a\\", True),
        ("[[:digit:]]", True, "7", True),
        ("[!]a]", True, "]", False),
        ("[!]", True, "x", True),
        ("a[^]", True, "ab", True),
        ("#a", True, "#a", True),
        ("!a", True, "!a", True),
        ("\ud800*", True, "\ud800x", True),
        ("\udcff", True, "\udcfe", False),
        ("[\udcff]", True, "\udcff", True),
    ],
)
def test_permission_paths_cover_folders_and_are_never_refused(
    pattern: str, is_anchored: bool, path: str, is_covered: bool
) -> None:
    assert covers(pattern, path, is_anchored=is_anchored) is is_covered


def test_a_permission_rule_has_no_depth_limit() -> None:
    """A deny rule must hold for a path of any depth (PATH_MAX allows 2,048 folders)."""
    assert covers("secret", "a/" * 2_048 + "secret", is_anchored=False)


def test_an_ignore_file_larger_than_one_automaton_is_matched_whole() -> None:
    lines = [f"name-{number}-{'x' * 40}*" for number in range(1_500)]
    rules = parse_gitignore("\n".join([*lines, "!name-3-*"]))
    assert rules.matches(f"a/name-1499-{'x' * 40}y")
    assert not rules.matches(f"name-3-{'x' * 40}y")
    assert rules.verdict(f"name-3-{'x' * 40}y") is False


def test_a_file_name_that_is_not_utf8_is_matched_by_wildcards() -> None:
    assert compile_patterns(("*.txt",)).matches("\udcff.txt")


@pytest.mark.parametrize(("path", "taken"), [("x.y", True), ("x0y", True), ("x/y", False)])
def test_a_range_in_brackets_never_matches_the_slash(path: str, taken: bool) -> None:
    assert compile_patterns(("x[.-0]y",)).matches(path) is taken
