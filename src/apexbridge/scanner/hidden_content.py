"""Hidden content: invisible Unicode, bidi overrides, homoglyphs, comments, encodings, padding."""

import base64
import re
from collections.abc import Iterator

from apexbridge.scanner.invisible_unicode import (
    BIDI_CONTROLS,
    HOMOGLYPHS,
    INVISIBLE,
    decode_hidden,
    is_emoji,
    is_selector,
    is_tag,
    split_words,
)
from apexbridge.scanner.pattern_matcher import Hit, SkillContext
from apexbridge.scanner.rules import RiskLevel, fragment, lower_level
from apexbridge.scanner.scan_input import TextFile

_COMMENT_MARKERS = (("<!--", "-->"), ("[//]: #", "\n"))
_MAX_COMMENT = 20_000
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/]{40,8000}={0,2}(?![A-Za-z0-9+/_=-])")
_HEX = re.compile(r"(?<![0-9a-fA-F])(?:[0-9a-fA-F]{2}){24,4000}(?![0-9a-fA-F])")
_SVG_SCRIPT = re.compile(r"<script|\son\w{3,16}\s?=|javascript:", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]{0,8000}>")
_LONG_WHITESPACE = re.compile(r"(?<![ \t])[ \t]{200,}+(?=[^\s|])")
_MAX_BLANK_LINES = 60


def hidden_content(file: TextFile, context: SkillContext) -> Iterator[Hit]:
    """Match content that a model reads and a person does not see: a carrier of prompt injection."""
    # ASCII text, the usual case, has no Unicode tricks: three passes over every character saved.
    if not file.raw.isascii():
        yield from _invisible_characters(file)
        yield from _bidi_overrides(file)
        yield from _homoglyph_words(file)
    yield from _html_comments(file, context)
    yield from _encoded_payloads(file)
    yield from _whitespace_padding(file)


def _invisible_characters(file: TextFile) -> Iterator[Hit]:
    for number, line in enumerate(file.raw_lines, 1):
        if line.isascii():
            continue
        found = _suspicious_invisibles(line, is_first=number == 1)
        if not found:
            continue
        decoded = decode_hidden(found)
        yield Hit(
            rule="AB001", level=_invisible_level(found, decoded), line=number, matched=decoded
        )


def _invisible_level(found: str, decoded: str) -> RiskLevel:
    if decoded:
        return "block"
    return "warn" if len(found) >= 5 or any(map(is_tag, found)) else "review"


def _suspicious_invisibles(line: str, *, is_first: bool) -> str:
    """Return the invisible characters of a line that neither its script nor emoji explain."""
    found = list[str]()
    for at, char in enumerate(line):
        if ord(char) not in INVISIBLE or char in BIDI_CONTROLS or char in "\u200e\u200f\u061c":
            continue
        before = line[at - 1] if at else ""
        if char == "\ufeff" and at == 0 and is_first:
            continue
        if is_tag(char) and _is_flag_emoji(line, at):
            continue
        if char in "\u200c\u200d" and before and (_uses_joiners(before) or is_emoji(before)):
            continue
        if ord(char) in range(0xFE00, 0xFE10) and before and ord(before) not in INVISIBLE:
            continue
        if char == "\u00ad" and before.isalpha():
            continue
        found.append(char)
    return "".join(found) if len(found) > 1 or any(map(is_tag, found)) else ""


def _is_flag_emoji(line: str, at: int) -> bool:
    """Return whether a tag character belongs to a regional flag: a black flag and tags after it."""
    return "\U0001f3f4" in line[max(0, at - 7) : at]


def _uses_joiners(char: str) -> bool:
    """Return whether joiners are part of the writing system: Arabic and Indic scripts."""
    return 0x0600 <= ord(char) < 0x0E00 or is_selector(char)


def _bidi_overrides(file: TextFile) -> Iterator[Hit]:
    for number, line in enumerate(file.raw_lines, 1):
        marks = [char for char in line if char in BIDI_CONTROLS]
        if marks:
            is_override = any(char in "\u202d\u202e" for char in marks)
            level: RiskLevel = (
                "warn" if is_override or file.role_of(number) == "script" else "review"
            )
            yield Hit(rule="AB002", level=level, line=number, matched="")


def _homoglyph_words(file: TextFile) -> Iterator[Hit]:
    for number, line in enumerate(file.raw_lines, 1):
        if line.isascii():
            continue
        word = next(filter(_has_homoglyphs, split_words(line[:4_000])), None)
        if word:
            yield Hit(rule="AB003", level="review", line=number, matched=word)


def _has_homoglyphs(word: str) -> bool:
    """Return whether Latin letters are mixed with Cyrillic homoglyphs; Greek is mathematics."""
    if len(word) < 4 or word.isascii():
        return False
    latin = sum(char.isascii() for char in word)
    homoglyphs = sum(ord(char) in HOMOGLYPHS and 0x370 <= ord(char) < 0x530 for char in word)
    cyrillic = any(0x400 <= ord(char) < 0x530 for char in word)
    return latin >= 2 and homoglyphs >= 1 and latin + homoglyphs == len(word) and cyrillic


def _html_comments(file: TextFile, context: SkillContext) -> Iterator[Hit]:
    if file.role_of(1) == "script":
        return
    for start, inside in _find_comments(file.text):
        if not fragment("comment_directive").search(inside):
            continue
        line = file.line_number(start)
        level: RiskLevel = "warn" if fragment("comment_attack").search(inside) else "info"
        steps = int(file.role_of(line) not in {"instruction", "command"})
        steps += int(context.is_about_security)
        matched = " ".join(inside.split())
        yield Hit(rule="AB007", level=lower_level(level, steps), line=line, matched=matched)


def _find_comments(text: str) -> Iterator[tuple[int, str]]:
    """Return comments with their offsets; an unclosed one extends to the end."""
    for opening, closing in _COMMENT_MARKERS:
        at = text.find(opening)
        while at >= 0:
            end = text.find(closing, at)
            end = end if end >= 0 else len(text)
            yield at, text[at + len(opening) : min(end, at + _MAX_COMMENT)]
            at = text.find(opening, end)


def _encoded_payloads(file: TextFile) -> Iterator[Hit]:
    """Match base64 and hex strings that decode to instructions or commands."""
    for find, decode in ((_BASE64, _from_base64), (_HEX, _from_hex)):
        for match in find.finditer(file.text):
            decoded = decode(match[0])
            if not decoded or not _is_order(decoded):
                continue
            line = file.line_number(match.start())
            role = file.role_of(line)
            level: RiskLevel = "warn" if role in {"instruction", "command", "script"} else "review"
            yield Hit(rule="AB010", level=level, line=line, matched=decoded)


def _is_order(decoded: str) -> bool:
    """Return whether a decoded text orders something; a JSON object, as in a JWT, is data."""
    if decoded.lstrip().startswith("{"):
        return bool(fragment("comment_directive").search(decoded))
    return bool(fragment("decoded_attack").search(_without_svg_tags(decoded)))


def _without_svg_tags(text: str) -> str:
    """Return the text of an SVG picture, whose tags name addresses; other text as it is."""
    is_picture = text.lstrip().startswith(("<svg", "<?xml")) and not _SVG_SCRIPT.search(text)
    return _TAG.sub(" ", text) if is_picture else text


def _from_base64(text: str) -> str:
    # Without padding, and cut to whole groups: many decoders accept what `base64` refuses.
    body = text.rstrip("=")
    return _printable_text(base64.b64decode(body[: len(body) // 4 * 4]))


def _from_hex(text: str) -> str:
    return _printable_text(bytes.fromhex(text))


def _printable_text(data: bytes) -> str:
    """Decode bytes that are readable UTF-8; return an empty string for a binary payload."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return ""
    letters = sum(char.isalpha() or char in " /-_.:" for char in text)
    return text if text.isprintable() or letters > len(text) * 0.8 else ""


def _whitespace_padding(file: TextFile) -> Iterator[Hit]:
    match = _LONG_WHITESPACE.search(file.normalized)
    if match:
        yield _padding_hit(
            file, file.line_number(match.end()), file.normalized[match.end() :][:120]
        )
    empty = 0
    for number, line in enumerate(file.lines, 1):
        if line.strip():
            if empty >= _MAX_BLANK_LINES:
                yield _padding_hit(file, number, line[:120])
                return
            empty = 0
        else:
            empty += 1


def _padding_hit(file: TextFile, line: int, text: str) -> Hit:
    level: RiskLevel = "warn" if file.role_of(line) in {"instruction", "script"} else "review"
    return Hit(rule="AB044", level=level, line=line, matched=text)
