"""Frontmatter parser: YAML within limits, and repair of missing quotes."""

import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from apexbridge.skills import frontmatter
from apexbridge.skills.frontmatter import Frontmatter, read
from apexbridge.skills.model import Problem


def _values(text: str) -> dict[str, object]:
    read_ = read(text)
    assert isinstance(read_, Frontmatter), read_
    return dict(read_.values)


def _refusal(text: str) -> str:
    """The code of the refusal, which must come at once."""
    start = time.monotonic()
    problem = read(text)
    assert time.monotonic() - start < 1
    assert isinstance(problem, Problem), problem
    return problem.code


@pytest.mark.promise("M07")
def test_values_stay_the_text_their_author_wrote() -> None:
    text = "name: no\nversion: 1.10\nwhen: 2026-01-02\ncount: 3000\nhex: 0x1F\nyes: on\n"
    assert _values(text) == {
        "name": "no",
        "version": "1.10",
        "when": "2026-01-02",
        "count": "3000",
        "hex": "0x1F",
        "yes": "on",
    }


def test_nothing_is_null_and_quotes_make_text() -> None:
    assert _values("a:\nb: ~\nc: null\nd: ''\ne: 'null'\n") == {
        "a": None,
        "b": None,
        "c": None,
        "d": "",
        "e": "null",
    }


def test_lists_and_mappings_nest() -> None:
    assert _values("a: [x, {b: c}]\nd:\n  - e\n  - f: g\n") == {
        "a": ["x", {"b": "c"}],
        "d": ["e", {"f": "g"}],
    }


def test_an_empty_frontmatter_has_no_values() -> None:
    assert _values("") == {}
    assert _values("# only a comment\n") == {}


@pytest.mark.promise("M03")
def test_a_python_tag_runs_nothing_and_is_refused(tmp_path: Path) -> None:
    text = f"name: !!python/object/apply:os.system ['touch {tmp_path}/ran']\n"
    assert _refusal(text) == "frontmatter_tag"
    assert not list(tmp_path.iterdir())


def test_a_standard_tag_is_fine() -> None:
    assert _values("name: !!str 12\n") == {"name": "12"}


@pytest.mark.promise("M04")
@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\n",
        "a: &a {k: v}\nb:\n  <<: *a\n",
        "b:\n  <<: {k: v}\n",
        "a: &a x\nb: *a\n",
    ],
    ids=["bomb", "merge", "merge-inline", "alias"],
)
def test_anchors_aliases_and_merges_are_refused(text: str) -> None:
    assert _refusal(text) == "frontmatter_alias"


@pytest.mark.promise("M05")
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a: " + "[" * 5_000, "frontmatter_too_deep"),
        ("a: " + "{x: " * 5_000, "frontmatter_too_deep"),
        ("\n".join("  " * n + "a:" for n in range(40)), "frontmatter_too_deep"),
        ("".join(f"k{n}: v\n" for n in range(2_000)), "frontmatter_too_many_nodes"),
        ("a: [" + "x, " * 20_000 + "]", "frontmatter_too_many_nodes"),
        ("".join(f"k{n}: v\n" for n in range(200_000)), "frontmatter_too_large"),
        ("a: " + "x" * 20_000_000, "frontmatter_too_large"),
        ("- " * 30_000, "frontmatter_too_deep"),
        ("? " * 30_000, "key_not_text"),
    ],
    ids=[
        "deep-list",
        "deep-map",
        "deep-block",
        "keys",
        "items",
        "many-keys",
        "huge",
        "dashes",
        "complex",
    ],
)
def test_frontmatter_beyond_its_bounds_is_refused_at_once(text: str, code: str) -> None:
    assert _refusal(text) == code


@pytest.mark.promise("M06")
@pytest.mark.parametrize("text", ["name: a\nname: b\n", "m:\n  k: 1\n  k: 2\n", "{a: 1, a: 2}"])
def test_a_duplicate_key_is_rejected(text: str) -> None:
    assert _refusal(text) == "duplicate_key"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("- a\n- b\n", "frontmatter_not_mapping"),
        ("just text", "frontmatter_not_mapping"),
        ("name: [invalid\ndescription: broken\n", "yaml_invalid"),
        ("name: a\n\tb: c\n", "yaml_invalid"),
        ("name: \x01\n", "yaml_invalid"),
        ("name: \ud800\n", "yaml_invalid"),
        ("a: b\n...\nc: d\n", "yaml_invalid"),
        ("a: b\n--- text\n", "yaml_invalid"),
        ("? [a]\n: b\n", "key_not_text"),
    ],
)
def test_other_broken_frontmatter_says_what_is_wrong(text: str, code: str) -> None:
    assert _refusal(text) == code


@pytest.mark.promise("M02")
def test_an_unquoted_colon_is_parsed_as_text_and_reported() -> None:
    outcome = read("name: a\ndescription: Build for AWS: ECS, and don't stop\n")
    assert isinstance(outcome, Frontmatter)
    assert outcome.values["description"] == "Build for AWS: ECS, and don't stop"
    assert [(r.key, r.line) for r in outcome.repairs] == [("description", 1)]


@pytest.mark.promise("M02")
def test_globs_emphasis_and_long_plain_text_are_read_as_text() -> None:
    text = (
        "paths: **/*.ts\nglobs:\n  - **/*.py\n  - src/*.c\ndescription: Use when: the\n"
        "  user asks: yes\nname: x\nnote: @here\n"
    )
    assert _values(text) == {
        "paths": "**/*.ts",
        "globs": ["**/*.py", "src/*.c"],
        "description": "Use when: the user asks: yes",
        "name": "x",
        "note": "@here",
    }


@pytest.mark.promise("M02")
@pytest.mark.parametrize("value", [", then more", "] odd", "[Thinking: this never closes", "{a: b"])
def test_text_that_only_looks_like_a_list_is_read_as_text(value: str) -> None:
    assert _values(f"name: x\ndescription: {value}\n")["description"] == value


def test_a_failed_repair_reports_the_first_error() -> None:
    problem = read("description: a: b\nname: [c\n")
    assert isinstance(problem, Problem)
    assert (problem.code, problem.where) == ("yaml_invalid", "SKILL.md:2")


def test_a_word_that_names_no_anchor_is_a_glob_without_quotes() -> None:
    assert _values("paths: *ts\n") == {"paths": "*ts"}


@given(st.text(max_size=300))
def test_no_text_makes_the_reader_fail(text: str) -> None:
    assert isinstance(read(text), Frontmatter | Problem)


_SPANNING = ("'", '"', "[", "{", "!", "&")
"""Beginnings of values that YAML may continue over lines: quotes, collections, tags before them."""


@given(
    st.dictionaries(
        st.text(st.sampled_from("abcxyz-_"), min_size=1, max_size=8),
        st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=60),
        max_size=6,
    )
)
@example({"_": "'", "__": "'"})
def test_plain_lines_are_read_or_refused_but_never_lost(fields: dict[str, str]) -> None:
    outcome = read("".join(f"{key}: {value}\n" for key, value in fields.items()))
    if not isinstance(outcome, Frontmatter):
        return
    if any(value.lstrip().startswith(_SPANNING) for value in fields.values()):
        # What such a value opens may end in a later line, whose key is then a part of its text.
        texts = [repr(value) for value in outcome.values.values()]
        for key in set(fields) - set(outcome.values):
            assert any(key in text for text in texts), key
    else:
        assert set(outcome.values) == set(fields)


def test_the_slow_parser_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "name: a\ndescription: >\n  long\n  text\npaths: **/*.ts\n"
    fast = read(text)
    monkeypatch.setattr(frontmatter, "_LOADER", frontmatter.yaml.SafeLoader)
    assert not frontmatter.is_compiled()
    assert read(text) == fast
    deep = read("a: " + "[" * 5_000)
    assert isinstance(deep, Problem)
    assert deep.code == "frontmatter_too_deep"


@pytest.mark.promise("M02")
@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("argument-hint: [file] [options]", "[file] [options]"),
        ('d: "Quoted" then more', '"Quoted" then more'),
        ("d: [Beta] Does things", "[Beta] Does things"),
        ("paths: {src,lib}/**/*.ts", "{src,lib}/**/*.ts"),
        ("paths: [**/*.ts, src/*.c]", ["**/*.ts", "src/*.c"]),
        ("allowed-tools: [Bash(git: *), Read]", ["Bash(git: *)", "Read"]),
        ("paths: !node_modules/**", "!node_modules/**"),
        ("description: !Important use: it", "!Important use: it"),
        ("d: a: b # and why: c", "a: b"),
        ("d: it's: fine", "it's: fine"),
        ("d: 100% sure: @you", "100% sure: @you"),
    ],
)
def test_what_authors_really_write_is_read_as_they_meant_it(line: str, value: object) -> None:
    assert _values(f"name: x\n{line}\nlast: y\n") == {
        "name": "x",
        line.split(":")[0]: value,
        "last": "y",
    }


def test_a_valid_value_beside_a_broken_one_stays_as_it_is() -> None:
    text = "name: a # the tool: pdf\ndescription: Build for AWS: ECS\nlicense: MIT # see: LICENSE\n"
    assert _values(text) == {"name": "a", "description": "Build for AWS: ECS", "license": "MIT"}


def test_repair_leaves_the_structure_of_lists_alone() -> None:
    text = (
        "description: x: y\nhooks:\n  PreToolUse:\n    - matcher: *\n      hooks:\n"
        "        - type: command\n          command: echo a: b\n"
    )
    assert _values(text)["hooks"] == {
        "PreToolUse": [{"matcher": "*", "hooks": [{"type": "command", "command": "echo a: b"}]}]
    }


@pytest.mark.parametrize("mark", ["\x85", "\u2028", "\u2029"])
def test_a_unicode_line_break_hides_no_key(mark: str) -> None:
    outcome = read(f"description: line{mark}sep: x\nname: a\n")
    assert isinstance(outcome, Frontmatter)
    assert outcome.values == {"description": "line sep: x", "name": "a"}
    assert outcome.has_unicode_line_breaks
