"""Grep's regular expressions mean what `re` says they mean, in linear time: no ReDoS."""

import contextlib
import re
import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apexbridge.tools.builtin import regex
from apexbridge.tools.builtin.regex import LinePattern, SearchTimeoutError

LATER = float("inf")
ATOMS = ["a", "b", ".", r"\w", r"\d", r"\s", r"\W", r"\D", r"\S", "[ab]", r"\.", "^", "$", "_"]
UNICODE_ATOMS = ["中", "é", "[^a中]", r"[\w-]", r"[^\W\d]", r"[\s中]", r"[^\S]", r"[\D]"]
ASCII_ATOMS = [r"\b", r"\B"]


def _matches(pattern: str, line: str, *, ignore_case: bool = False) -> bool:
    found = LinePattern(pattern, ignore_case=ignore_case).matching_lines(
        f"{line}\n".encode(), LATER
    )
    return list(found) == [0]


def _patterns(*atoms: str) -> st.SearchStrategy[str]:
    def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.one_of(
            st.lists(inner, min_size=1, max_size=4).map("".join),
            st.lists(inner, min_size=2, max_size=3).map(lambda some: f"(?:{'|'.join(some)})"),
            st.tuples(
                inner, st.sampled_from(["*", "+", "?", "*?", "{2}", "{1,3}", "{,2}", "{0,}"])
            ).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
        )

    return st.recursive(st.sampled_from(atoms), larger, max_leaves=8)


def _expected(pattern: str, line: str, flags: "re.RegexFlag | int") -> bool:
    # On an empty line `\B` matches only in newer versions of `re`, and in RE2.
    return re.search(pattern.replace(r"\B", r"(?!\b)"), line, flags) is not None


@given(_patterns(*ATOMS, *UNICODE_ATOMS), st.text("abAB中 é_1.É\u3000٣", max_size=8), st.booleans())
def test_unicode_classes_agree_with_re(pattern: str, line: str, ignores_case: bool) -> None:
    flags = re.IGNORECASE if ignores_case else re.NOFLAG
    expected = _expected(pattern, line, flags)
    assert _matches(pattern, line, ignore_case=ignores_case) is expected


@given(_patterns(*ATOMS, *ASCII_ATOMS), st.text("abAB _1.", max_size=8))
def test_word_boundaries_agree_with_re_on_ascii_text(pattern: str, line: str) -> None:
    assert _matches(pattern, line) is _expected(pattern, line, re.NOFLAG)


@given(st.lists(st.sampled_from(["a", "é", "中", r"\w", r"\d"]), min_size=1, max_size=3))
@pytest.mark.parametrize("line", ["", "aé", " é中 ", "中a", "a é", "9中", "-a-", "é9 é"])
def test_word_boundaries_around_a_pattern_are_unicode(line: str, words: list[str]) -> None:
    inner = "".join(words)
    for pattern in (rf"\b{inner}\b", rf"\b{inner}", rf"{inner}\b|\bzz", rf"x|\b{inner}+\b"):
        assert _matches(pattern, line) is _expected(pattern, line, re.NOFLAG)


@given(st.text("ab\\[](){}|*+?.^$-:,dwWpxub1<=!i&~#\u4e2d", max_size=14))
def test_no_text_breaks_the_translation(pattern: str) -> None:
    with contextlib.suppress(ValueError):
        list(LinePattern(pattern).matching_lines("ab\n中\n".encode(), LATER))


@given(
    st.lists(st.text("ab \r", max_size=4), max_size=6),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.sampled_from(["a", "^$", "b$", r"\s", "^a*$", ""]),
)
def test_line_numbers_are_those_of_split_lines(
    lines: list[str], newline: str, ends: bool, pattern: str
) -> None:
    text = newline.join(lines) + (newline if ends else "")
    expected = text.split("\n")
    if expected[-1] == "":
        expected.pop()
    numbers = [
        number
        for number, line in enumerate(expected)
        if re.search(pattern.replace("$", r"\Z"), line.removesuffix("\r"))
    ]
    assert list(LinePattern(pattern).matching_lines(text.encode(), LATER)) == numbers


@pytest.mark.parametrize("size", [1, 7, 64])
def test_chunks_change_no_line_number(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(f"{'needle' if number % 7 == 3 else ''} {number}" for number in range(200))
    monkeypatch.setattr(regex, "_CHUNK_BYTES", size)
    assert list(LinePattern("needle").matching_lines(text.encode(), LATER)) == list(
        range(3, 200, 7)
    )


@pytest.mark.parametrize(
    ("pattern", "line", "fits"),
    [
        ("[[:alpha:]]+[[:digit:]]", "ab1", True),
        ("[[:upper:]]", "ab1", False),
        ("[[:word:]]", "中", True),
        ("[[:space:]]", "\u3000", True),
        (r"[]a]", "]", True),
        (r"[^]a]", "]", False),
        (r"[a\]]", "]", True),
        (r"[a-c&&~~||[]", "[", True),
        (r"\x{4e2d}\u{6587}", "中文", True),
        (r"[\x{4e00}-\x{9fff}]", "中", True),
        (r"\x41\u0042\U00000043", "ABC", True),
        ("(?i)HELLO", "hello", True),
        ("a(?i:B)c", "abc", True),
        ("(?P<name>a)(?<other>b)(c)", "abc", True),
        ("interface{}", "interface{}", True),
        ("a{,}", "a{,}", True),
        ("x{2,1000}", "xx", True),
        (r"\Aab\z", "ab", True),
        (r"\Aab\Z", "xab", False),
        ("", "", True),
        ("a||b", "zzz", True),
        ("(a|b)*?c", "ababc", True),
        (r"\t", "a\tb", True),
        (r"\p{Han}", "中", True),
        (r"(?i)\bcafé\b", "un CAFÉ noir", True),
        (r"\bcafé\b", "cafés", False),
        ("(" * 60 + ")" * 60, "", True),
    ],
)
def test_the_usual_syntax_is_supported(pattern: str, line: str, fits: bool) -> None:
    assert _matches(pattern, line) is fits


@pytest.mark.parametrize(
    ("pattern", "message"),
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
        ("(?=a)", "lookaround.* not supported"),
        ("(?<!a)", "lookaround.* not supported"),
        ("(?>a)", "not supported"),
        ("(?P<x>a)(?P=x)", "backreferences.* not supported"),
        (r"(a)\1", "backreferences"),
        (r"\C", "not supported"),
        (r"\q", "invalid escape"),
        ("[z-a]", "invalid character class"),
        ("[a--b]", "invalid character class"),
        ("[[:nope:]]", "invalid character class"),
        (r"\x{ffffff}", "invalid escape"),
        ("a{3,2}", "reversed"),
        ("a{2000}", "more than 1,000"),
        ("(?x)a", "flags"),
        ("(?-m)a", "flags"),
        (r"(?:\b中)", "ASCII"),
        (r"中\B文", "ASCII"),
        (r"(\b\x{4e2d})", "ASCII"),
        ("a" * 2_000, "longer than"),
        ("(?:a{1000}){1000}", "more than 1,000"),
        ("(?:(?:a?){100}){100}", "more than 1,000"),
        (r"\w{999}", "too large"),
    ],
)
def test_an_invalid_or_unsupported_pattern_has_a_clear_error(pattern: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LinePattern(pattern)


REDOS = [
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


@pytest.mark.parametrize(("pattern", "line"), REDOS, ids=[pattern[:20] for pattern, _ in REDOS])
def test_no_pattern_backtracks(pattern: str, line: str) -> None:
    """Python's `re` would not end on any of these; the deadline is far beyond need."""
    assert list(LinePattern(pattern).matching_lines(line.encode(), time.monotonic() + 60)) == []


def test_a_search_lets_other_threads_run() -> None:
    """RE2 releases the GIL, so the event loop answers while a slow pattern runs."""
    pattern, done = LinePattern(r"\w{150}z"), threading.Event()

    def search() -> None:
        list(pattern.matching_lines(b"a" * 250_000, LATER))
        done.set()

    interval = sys.getswitchinterval()
    thread = threading.Thread(target=search)
    thread.start()
    turns = 0
    while not done.wait(interval):
        turns += 1
    thread.join()
    assert turns > 5


def test_a_deadline_ends_a_search() -> None:
    with pytest.raises(SearchTimeoutError):
        list(LinePattern("(a|b)*c").matching_lines(b"ab\n" * 10, 0))


def test_a_line_too_long_for_the_deadline_is_not_begun() -> None:
    """RE2 cannot be interrupted: the time is estimated from the beginning of the line."""
    pattern = LinePattern(r"\w{150}z")
    with pytest.raises(SearchTimeoutError):
        list(pattern.matching_lines(b"a" * (10 << 20), time.monotonic() + 2))
