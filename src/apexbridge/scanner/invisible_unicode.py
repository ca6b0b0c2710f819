"""Invisible Unicode and homoglyphs: tables, a decoder for hidden payloads, escaping for display.

Three encodings carry hidden prompts: tag characters (ASCII smuggling), variation selectors (a byte
each) and two kinds of zero-width characters (a bit each).
"""

import unicodedata
from collections.abc import Iterator

ZERO_WIDTH = frozenset(
    "\u200b\u200c\u200d\u2060\u2061\u2062\u2063\u2064\ufeff\u180e\u00ad\u034f\u115f\u1160"
    "\u3164\uffa0"
)
BIDI_CONTROLS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_TAGS = range(0xE0000, 0xE0080)
_SELECTORS = range(0xFE00, 0xFE10)
_SUPPLEMENT_SELECTORS = range(0xE0100, 0xE01F0)

_INVISIBLE_CODEPOINTS = (
    *map(ord, ZERO_WIDTH | BIDI_CONTROLS),
    *_TAGS,
    *_SELECTORS,
    *_SUPPLEMENT_SELECTORS,
    0x200E,
    0x200F,
    0x061C,
)
INVISIBLE = dict.fromkeys(_INVISIBLE_CODEPOINTS)
"""Table for `str.translate` that removes every invisible character."""

HOMOGLYPHS = str.maketrans(
    "аеорсхуіјѕһԁԛԝАВЕКМНОРСТХУІЈЅαοινρΑΒΕΖΗΙΚΜΝΟΡΤΥΧɡıⅼ’‘“”",
    "aeopcxyijshdqwABEKMHOPCTXYIJSaoivpABEZHIKMNOPTYXgil''\"\"",
)
"""Table for `str.translate`: Cyrillic and Greek homoglyphs of Latin letters, and curly quotes."""


def is_tag(char: str) -> bool:
    """Return whether a character is in the tag block, an invisible mirror of ASCII."""
    return ord(char) in _TAGS


def is_selector(char: str) -> bool:
    """Return whether a character is a variation selector."""
    return ord(char) in _SELECTORS or ord(char) in _SUPPLEMENT_SELECTORS


def is_emoji(char: str) -> bool:
    """Return whether a character is an emoji or symbol, after which joiners are legitimate."""
    number = ord(char)
    return (
        (number >= 0x1F000 and number < 0x1FB00)
        or 0x2190 <= number < 0x2C00
        or char
        in "\u00a9\u00ae\u203c\u2049\u2122\u2139\u3030\u303d\u3297\u3299#*0123456789\ufe0f\u20e3"
    )


def decode_hidden(text: str) -> str:
    """Decode hidden text: tags as ASCII, variation selectors as bytes, zero-width pairs as bits."""
    tags = "".join(chr(ord(char) - 0xE0000) for char in text if is_tag(char))
    if len(tags) > 1:
        return "".join(char for char in tags if char.isprintable())
    data = bytes(_selector_byte(char) for char in text if is_selector(char))
    if len(data) > 3:
        return data.decode("utf-8", "replace")
    return _zero_width_bits(text)


def _selector_byte(char: str) -> int:
    number = ord(char)
    return number - 0xFE00 if number in _SELECTORS else number - 0xE0100 + 16


def _zero_width_bits(text: str) -> str:
    marks = [char for char in text if char in ZERO_WIDTH and char != "\ufeff"]
    kinds = sorted(set(marks))
    if len(kinds) != 2 or len(marks) < 16:
        return ""
    for zero in kinds:
        bits = "".join("0" if char == zero else "1" for char in marks)
        data = bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits) - 7, 8))
        if all(32 <= byte < 127 for byte in data):
            return data.decode("ascii")
    return ""


def escape_invisible(text: str, limit: int) -> str:
    """Escape invisible characters for display on one line, and truncate."""
    escaped = "".join(_escape_char(char) for char in text[: limit * 2].strip())
    return escaped if len(escaped) <= limit else escaped[: limit - 1] + "…"


def _escape_char(char: str) -> str:
    if char.isprintable() and ord(char) not in INVISIBLE:
        return char
    if char in "\t\n\r":
        return " "
    number = ord(char)
    return f"\\u{{{number:X}}}" if unicodedata.category(char) != "Zs" else " "


def split_words(text: str) -> Iterator[str]:
    """Tokenize a text into runs of letters of any alphabet; `re` has no Unicode letter class."""
    word = ""
    for char in text:
        if char.isalpha():
            word += char
        elif word:
            yield word
            word = ""
    if word:
        yield word
