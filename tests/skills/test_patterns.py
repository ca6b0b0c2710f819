"""Path patterns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apexbridge.skills.patterns import compile_patterns, count_expansions, expand


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
def test_braces_are_written_out(pattern: str, expanded: tuple[str, ...]) -> None:
    assert set(expand(pattern)) == set(expanded)
    assert count_expansions(pattern) <= len(expanded)


def test_counting_thirty_doublings_costs_nothing() -> None:
    assert count_expansions("{a,b}" * 30) == 2**30
    assert count_expansions("{a,{b,{c,d}}}") == 4


@given(st.text(st.sampled_from("ab,{}/*"), max_size=12))
def test_counting_bounds_the_work_of_writing_out(pattern: str) -> None:
    if count_expansions(pattern) <= 256:
        assert len(set(expand(pattern))) <= 256


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
