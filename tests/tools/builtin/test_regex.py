"""Regular expressions mean what `re` says they mean, and none takes forever."""

import contextlib
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apexbridge.tools.builtin.regex_automaton import (
    Automaton,
    TooSlowError,
    compile_lines,
    needle_of,
    tries_of,
)
from apexbridge.tools.builtin.regex_parser import parse, source_of

LATER = float("inf")

PIECES = st.sampled_from(
    [
        "a",
        "b",
        "中",
        ".",
        r"\w",
        r"\d",
        r"\s",
        "[ab]",
        "[^a中]",
        r"\.",
        r"\b",
        r"\B",
        "^",
        "$",
        "é",
        "_",
    ]
)


def _patterns() -> st.SearchStrategy[str]:
    def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.one_of(
            st.lists(inner, min_size=1, max_size=4).map("".join),
            st.lists(inner, min_size=2, max_size=3).map(lambda some: f"(?:{'|'.join(some)})"),
            st.tuples(
                inner, st.sampled_from(["*", "+", "?", "*?", "{2}", "{1,3}", "{,2}", "{0,}"])
            ).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
        )

    return st.recursive(PIECES, larger, max_leaves=8)


@given(_patterns(), st.text("abAB中 é_1.É", max_size=8), st.booleans())
def test_every_way_to_match_agrees_with_re(pattern: str, line: str, ignores_case: bool) -> None:
    flags = re.IGNORECASE if ignores_case else re.NOFLAG
    # Where nothing stands, `\B` says yes only in newer Pythons, and so do we.
    expected = re.search(pattern.replace(r"\B", r"(?!\b)"), line, flags) is not None
    expression = parse(pattern, ignores_case=ignores_case)
    assert Automaton(expression).matches(line, LATER) is expected
    assert compile_lines(expression)(line, LATER) is expected
    assert (re.search(source_of(expression.node), line, flags) is not None) is expected
    if expected:
        assert needle_of(expression) in line


@given(st.text("ab\\[](){}|*+?.^$-:,dwpx1<=!i&~\u4e2d", max_size=14))
def test_no_text_breaks_the_parser(pattern: str) -> None:
    with contextlib.suppress(ValueError):
        assert re.compile(source_of(parse(pattern).node))


@pytest.mark.parametrize(
    ("pattern", "line", "fits"),
    [
        ("[[:alpha:]]+[[:digit:]]", "ab1", True),
        ("[[:upper:]]", "ab1", False),
        (r"[]a]", "]", True),
        (r"[^]a]", "]", False),
        (r"[a\]]", "]", True),
        (r"[a-c&&~~||[]", "[", True),
        (r"\x{4e2d}\u{6587}", "中文", True),
        (r"[\x{4e00}-\x{9fff}]", "中", True),
        (r"\x41\u0042\U00000043", "ABC", True),
        ("(?i)HELLO", "hello", True),
        ("(?P<name>a)(?<other>b)(c)", "abc", True),
        ("interface{}", "interface{}", True),
        ("a{,}", "a{,}", True),
        ("x{2,1000}", "xx", True),
        (r"\Aab\z", "ab", True),
        ("", "", True),
        ("a||b", "zzz", True),
        ("(a|b)*?c", "ababc", True),
        (r"\t", "a\tb", True),
    ],
)
def test_what_people_write_is_understood(pattern: str, line: str, fits: bool) -> None:
    expression = parse(pattern)
    assert Automaton(expression).matches(line, LATER) is fits
    assert compile_lines(expression)(line, LATER) is fits


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("(a", "is not closed"),
        ("a)", "closes nothing"),
        ("[a", "is not closed"),
        ("[", "is not closed"),
        ("*a", "nothing before"),
        ("a**", "another one"),
        ("a++", "another one"),
        ("a\\", "ends in a backslash"),
        ("[a\\", "ends in a backslash"),
        ("(?=a)", "not supported"),
        ("(?<!a)", "not supported"),
        (r"(a)\1", "backreferences"),
        (r"\p{Han}", "not supported"),
        (r"\q", "makes no sense"),
        ("[z-a]", "makes no sense"),
        ("[a--b]", "unclear"),
        ("[[:nope:]]", "no class"),
        (r"\x{ffffff}", "no character"),
        ("a{3,2}", "upside down"),
        ("a{2000}", "more than"),
        ("(?x)a", "not known"),
        ("(" * 60 + ")" * 60, "nested too deep"),
        ("a" * 2_000, "longer than"),
    ],
)
def test_what_makes_no_sense_or_has_no_bound_is_refused_in_words(pattern: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse(pattern)


@pytest.mark.parametrize(
    "pattern", ["(?:a{1000}){1000}", "(?:(?:a?){100}){100}", "(?:ab){999}{9}x{999}"]
)
def test_a_pattern_that_stands_for_too_much_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"stands for too much|another"):
        compile_lines(parse(pattern))


def test_nothing_many_times_is_nothing() -> None:
    assert compile_lines(parse("(?:(?:(?:){1000}){1000}){1000}"))("", LATER)


EVIL = [
    ("(a+)+$", "a" * 5_000 + "!"),
    ("(a|a)*b", "a" * 5_000),
    ("(a|aa)+$", "a" * 5_000 + "!"),
    ("(.*a){20}z", "a" * 5_000),
    (".*.*.*.*=.*.*z", "x" * 5_000),
    (r"(\w+\s?)*\d{3}!", "word " * 1_000),
    ("(?:a?){100}a{100}b", "a" * 1_000),
    ("(x+x+)+y", "x" * 1_900),
    (r"^(([a-z])+.)+[A-Z]([a-z])+$", "a" * 1_900),
    (r"(\d+|\w+)*@", "1" * 1_900),
    ("(?:a|a)(?:a|a)(?:a|a)" * 8 + "b", "a" * 1_900),
]


@pytest.mark.parametrize(("pattern", "line"), EVIL, ids=[pattern[:20] for pattern, _ in EVIL])
def test_no_pattern_makes_a_line_take_forever(pattern: str, line: str) -> None:
    """`re` would need longer than the world has been there; the deadline is far beyond need."""
    expression = parse(pattern)
    assert tries_of(expression.node) > 4_000
    assert compile_lines(expression)(line, time.monotonic() + 60) is False


def test_a_deadline_ends_a_search() -> None:
    with pytest.raises(TooSlowError):
        Automaton(parse("(a|b)*c")).matches("ab" * 10, 0)


def test_what_is_remembered_is_bounded_and_stays_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apexbridge.tools.builtin.regex_automaton._MOST_REMEMBERED", 50)
    automaton = Automaton(parse(r"(a|b)*a(a|b){6}c"))
    lines = ("ab" * 50 + "c", "ba" * 50 + "c", "b" * 99 + "c", "a" + "b" * 6 + "c")
    found = [automaton.matches(line, LATER) for line in lines]
    assert found == [re.search("a(a|b){6}c", line) is not None for line in lines]


@pytest.mark.parametrize(
    ("pattern", "needle"),
    [
        ("def foo", "def foo"),
        (r"class \w+\(Bases\)", "(Bases)"),
        ("a|b", ""),
        ("(?i)abc", ""),
        ("ab*cd", "cd"),
    ],
)
def test_the_longest_sure_text_is_looked_for_first(pattern: str, needle: str) -> None:
    assert needle_of(parse(pattern)) == needle
