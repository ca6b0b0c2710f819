"""What a reader does not see: unseen characters, switched direction, comments, padding, codes."""

import base64
import re
from collections.abc import Iterator

from apexbridge.scanner import invisible_unicode
from apexbridge.scanner.pattern_matcher import Hit, SkillContext
from apexbridge.scanner.rules import RiskLevel, lower_level
from apexbridge.scanner.scan_input import TextFile

_COMMENT_MARKERS = (("<!--", "-->"), ("[//]: #", "\n"))
_MAX_COMMENT = 20_000
_DIRECTIVE = re.compile(
    r"(?i)\b(?:ignore|disregard|you must|you should|do not (?:tell|mention|inform)|don't "
    "(?:tell|mention)|execute"
    "|send|upload|exfiltrate|curl|wget|base64|run the|system prompt|assistant|AI agents?|"
    "secretly|silently"
    r"|before (?:processing|responding|answering)|credentials?|password|api[ _-]?key)\b|忽略|执行|"
    "发送|上传|不要告诉"
)
_STRONG = re.compile(
    r"(?i)\b(?:ignore|disregard) (?:all|any|previous|prior|the)|do not (?:tell|mention|inform)|"
    "exfiltrate|secretly|silently"
    r"|curl\s|wget\s|(?:send|upload|post)\b[^\n]{0,60}https?://|AI (?:agent|"
    r"assistant)s?\b[^\n]{0,40}\b(?:must|should|please)|you must\b|system prompt"
    "|忽略|不要告诉|发送到"
)
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/]{40,8000}={0,2}(?![A-Za-z0-9+/_=-])")
_HEX = re.compile(r"(?<![0-9a-fA-F])(?:[0-9a-fA-F]{2}){24,4000}(?![0-9a-fA-F])")
_SUSPICIOUS_WORDS = re.compile(
    r"(?i)\b(?:ignore|curl|wget|bash|exec|eval|import|https?:|send|read|user|credentials|"
    "password|instructions?|powershell|rm -)"
)
_LONG_WHITESPACE = re.compile(r"(?<![ \t])[ \t]{200,}+(?=[^\s|])")
_MAX_BLANK_LINES = 60


def hidden_content(view: TextFile, setting: SkillContext) -> Iterator[Hit]:
    """Everything that this file says without showing it."""
    if not view.raw.isascii():
        yield from _invisible_characters(view)
        yield from _bidi_overrides(view)
        yield from _homoglyph_words(view)
    yield from _html_comments(view, setting)
    yield from _encoded_payloads(view)
    yield from _whitespace_padding(view)


def _invisible_characters(view: TextFile) -> Iterator[Hit]:
    for number, line in enumerate(view.raw_lines, 1):
        if line.isascii():
            continue
        found = _suspicious_invisibles(line, is_first=number == 1)
        if not found:
            continue
        said = invisible_unicode.decode_hidden(found)
        yield Hit(rule="AB001", level=_invisible_level(found, said), line=number, matched=said)


def _invisible_level(found: str, said: str) -> RiskLevel:
    if said:
        return "block"
    return "warn" if len(found) >= 5 or any(map(invisible_unicode.is_tag, found)) else "review"


def _suspicious_invisibles(line: str, *, is_first: bool) -> str:
    """The unseen characters of a line that neither writing nor pictures account for."""
    found = list[str]()
    for at, char in enumerate(line):
        if (
            ord(char) not in invisible_unicode.INVISIBLE
            or char in invisible_unicode.BIDI_CONTROLS
            or char in "\u200e\u200f\u061c"
        ):
            continue
        before = line[at - 1] if at else ""
        if char == "\ufeff" and at == 0 and is_first:
            continue
        if invisible_unicode.is_tag(char) and _is_flag_emoji(line, at):
            continue
        if (
            char in "\u200c\u200d"
            and before
            and (_uses_joiners(before) or invisible_unicode.is_emoji(before))
        ):
            continue
        if (
            ord(char) in range(0xFE00, 0xFE10)
            and before
            and ord(before) not in invisible_unicode.INVISIBLE
        ):
            continue
        if char == "\u00ad" and before.isalpha():
            continue
        found.append(char)
    return "".join(found) if len(found) > 1 or any(map(invisible_unicode.is_tag, found)) else ""


def _is_flag_emoji(line: str, at: int) -> bool:
    """Flags of regions are a black flag and tags behind it."""
    return "\U0001f3f4" in line[max(0, at - 7) : at]


def _uses_joiners(char: str) -> bool:
    """Scripts in which joiners are a part of writing: Arabic and those of India."""
    return 0x0600 <= ord(char) < 0x0E00 or invisible_unicode.is_selector(char)


def _bidi_overrides(view: TextFile) -> Iterator[Hit]:
    for number, line in enumerate(view.raw_lines, 1):
        marks = [char for char in line if char in invisible_unicode.BIDI_CONTROLS]
        if marks:
            is_override = any(char in "\u202d\u202e" for char in marks)
            level: RiskLevel = (
                "warn" if is_override or view.place_of(number) == "script" else "review"
            )
            yield Hit(rule="AB002", level=level, line=number, matched="")


def _homoglyph_words(view: TextFile) -> Iterator[Hit]:
    for number, line in enumerate(view.raw_lines, 1):
        if line.isascii():
            continue
        word = next(filter(_has_homoglyphs, invisible_unicode.split_words(line[:4_000])), None)
        if word:
            yield Hit(rule="AB003", level="review", line=number, matched=word)


def _has_homoglyphs(word: str) -> bool:
    """Latin letters with look-alikes among them. One Greek letter is mathematics."""
    if len(word) < 4 or word.isascii():
        return False
    latin = sum(char.isascii() for char in word)
    lookalike = sum(
        ord(char) in invisible_unicode.HOMOGLYPHS and 0x370 <= ord(char) < 0x530 for char in word
    )
    cyrillic = any(0x400 <= ord(char) < 0x530 for char in word)
    return latin >= 2 and lookalike >= 1 and latin + lookalike == len(word) and cyrillic


def _html_comments(view: TextFile, setting: SkillContext) -> Iterator[Hit]:
    if view.place_of(1) == "script":
        return
    for start, inside in _find_comments(view.text):
        if not _DIRECTIVE.search(inside):
            continue
        line = view.line_at(start)
        level: RiskLevel = "warn" if _STRONG.search(inside) else "info"
        steps = int(view.place_of(line) not in {"instruction", "command"})
        steps += int(setting.is_about_security)
        shown = " ".join(inside.split())
        yield Hit(rule="AB007", level=lower_level(level, steps), line=line, matched=shown)


def _find_comments(text: str) -> Iterator[tuple[int, str]]:
    """Comments of documents, with their places; one that never ends reaches to the end."""
    for opening, closing in _COMMENT_MARKERS:
        at = text.find(opening)
        while at >= 0:
            end = text.find(closing, at)
            end = end if end >= 0 else len(text)
            yield at, text[at + len(opening) : min(end, at + _MAX_COMMENT)]
            at = text.find(opening, end)


def _encoded_payloads(view: TextFile) -> Iterator[Hit]:
    """Codes in prose, or in programs, that turn into sentences or commands."""
    for find, decode in ((_BASE64, _from_base64), (_HEX, _from_hex)):
        for match in find.finditer(view.text):
            said = decode(match[0])
            if not said or not _SUSPICIOUS_WORDS.search(said):
                continue
            line = view.line_at(match.start())
            place = view.place_of(line)
            level: RiskLevel = "warn" if place in {"instruction", "command", "script"} else "review"
            yield Hit(rule="AB010", level=level, line=line, matched=said)


def _from_base64(text: str) -> str:
    body = text.rstrip("=")
    return _printable_text(base64.b64decode(body[: len(body) // 4 * 4]))


def _from_hex(text: str) -> str:
    return _printable_text(bytes.fromhex(text))


def _printable_text(data: bytes) -> str:
    """Bytes as text, if that is what they are."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return ""
    letters = sum(char.isalpha() or char in " /-_.:" for char in text)
    return text if text.isprintable() or letters > len(text) * 0.8 else ""


def _whitespace_padding(view: TextFile) -> Iterator[Hit]:
    match = _LONG_WHITESPACE.search(view.folded)
    if match:
        yield _padding_hit(view, view.line_at(match.end()), view.folded[match.end() :][:120])
    empty = 0
    for number, line in enumerate(view.lines, 1):
        if line.strip():
            if empty >= _MAX_BLANK_LINES:
                yield _padding_hit(view, number, line[:120])
                return
            empty = 0
        else:
            empty += 1


def _padding_hit(view: TextFile, line: int, text: str) -> Hit:
    level: RiskLevel = "warn" if view.place_of(line) in {"instruction", "script"} else "review"
    return Hit(rule="AB044", level=level, line=line, matched=text)
