"""Brace expansion of path patterns, and its limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apexbridge.path_patterns import (
    compile_patterns,
    count_expansions,
    expand_braces,
    parse_gitignore,
)


@pytest.mark.parametrize(
    ("pattern", "expanded"),
    [
        ("*.py", ("*.py",)),
        ("*.{ts,tsx}", ("*.ts", "*.tsx")),
        ("{a,b}/{c,d}", ("a/c", "a/d", "b/c", "b/d")),
        ("{a,b{c,d}}", ("a", "bc", "a", "bd")),
        ("{a}", ("{a}",)),
        ("a{b", ("a{b",)),
        ("{,x}y", ("y", "xy")),
    ],
)
def test_braces_are_expanded(pattern: str, expanded: tuple[str, ...]) -> None:
    assert set(expand_braces(pattern)) == set(expanded)
    assert count_expansions(pattern) <= len(expanded)


def test_counting_thirty_doublings_costs_nothing() -> None:
    assert count_expansions("{a,b}" * 30) == 2**30
    assert count_expansions("{a,{b,{c,d}}}") == 4


@given(st.text(st.sampled_from("ab,{}/*"), max_size=12))
def test_counting_bounds_the_expansion(pattern: str) -> None:
    if count_expansions(pattern) <= 256:
        assert len(set(expand_braces(pattern))) <= 256


def test_patterns_match_as_gitignore_does() -> None:
    spec = compile_patterns(("src/**/*.{ts,tsx}", "*.md", "!README.md"))
    paths = ["src/a/b.ts", "src/c.tsx", "lib/d.ts", "docs/e.md", "README.md"]
    assert [path for path in paths if spec.matches(path)] == [
        "src/a/b.ts",
        "src/c.tsx",
        "docs/e.md",
    ]


def test_too_many_patterns_are_refused() -> None:
    with pytest.raises(ValueError, match="more than 256"):
        compile_patterns(("{a,b}" * 9,))


BOMBS = [
    "{x," + ",".join(["{a,b}"] * 100) + "}",
    "{a,b}" * 40 + "{",
    "{a,b}" * 40 + "{x",
    "{" * 900,
]


@pytest.mark.parametrize("pattern", BOMBS, ids=["nested", "open-end", "open-choice", "open"])
def test_no_brace_bomb_expands_to_more_than_was_counted(pattern: str) -> None:
    count = count_expansions(pattern)
    if count <= 256:
        assert len(expand_braces(pattern)) == count
    else:
        with pytest.raises(ValueError, match="more than 256"):
            compile_patterns((pattern,))


@given(st.text(st.sampled_from("ab,{}"), max_size=20))
def test_counting_is_exact(pattern: str) -> None:
    if (count := count_expansions(pattern)) <= 256:
        assert len(expand_braces(pattern)) == count


def test_an_ignore_file_of_any_length_is_read_in_part() -> None:
    rules = parse_gitignore("".join(f"a{number}\n" for number in range(100_000)))
    assert rules.verdict("a0") is True
    assert rules.verdict("a99999") is None
