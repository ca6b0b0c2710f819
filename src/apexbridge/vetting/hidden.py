"""What a reader does not see: unseen characters, switched direction, comments, padding, codes."""

import base64
import re
from collections.abc import Iterator

from apexbridge.vetting import unseen
from apexbridge.vetting.patterns import Hit, Setting
from apexbridge.vetting.rulebook import Level, lowered
from apexbridge.vetting.view import View

_MARKS = (("<!--", "-->"), ("[//]: #", "\n"))
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
_TELLING = re.compile(
    r"(?i)\b(?:ignore|curl|wget|bash|exec|eval|import|https?:|send|read|user|credentials|"
    "password|instructions?|powershell|rm -)"
)
_BLANKS = re.compile(r"(?<![ \t])[ \t]{200,}+(?=[^\s|])")
_MANY_EMPTY = 60


def hidden(view: View, setting: Setting) -> Iterator[Hit]:
    """Everything that this file says without showing it."""
    if not view.raw.isascii():
        yield from _unseen(view)
        yield from _switched(view)
        yield from _mixed(view)
    yield from _comments(view, setting)
    yield from _encoded(view)
    yield from _padded(view)


def _unseen(view: View) -> Iterator[Hit]:
    for number, line in enumerate(view.raw_lines, 1):
        if line.isascii():
            continue
        found = _unexplained(line, is_first=number == 1)
        if not found:
            continue
        said = unseen.decoded(found)
        yield Hit(rule="AB001", level=_gravity(found, said), line=number, matched=said)


def _gravity(found: str, said: str) -> Level:
    if said:
        return "block"
    return "warn" if len(found) >= 5 or any(map(unseen.is_tag, found)) else "review"


def _unexplained(line: str, *, is_first: bool) -> str:
    """The unseen characters of a line that neither writing nor pictures account for."""
    found = list[str]()
    for at, char in enumerate(line):
        if ord(char) not in unseen.INVISIBLE or char in unseen.BIDI or char in "\u200e\u200f\u061c":
            continue
        before = line[at - 1] if at else ""
        if char == "\ufeff" and at == 0 and is_first:
            continue
        if unseen.is_tag(char) and _is_flag(line, at):
            continue
        if char in "\u200c\u200d" and before and (_joins(before) or unseen.is_pictogram(before)):
            continue
        if ord(char) in range(0xFE00, 0xFE10) and before and ord(before) not in unseen.INVISIBLE:
            continue
        if char == "\u00ad" and before.isalpha():
            continue
        found.append(char)
    return "".join(found) if len(found) > 1 or any(map(unseen.is_tag, found)) else ""


def _is_flag(line: str, at: int) -> bool:
    """Flags of regions are a black flag and tags behind it."""
    return "\U0001f3f4" in line[max(0, at - 7) : at]


def _joins(char: str) -> bool:
    """Scripts in which joiners are a part of writing: Arabic and those of India."""
    return 0x0600 <= ord(char) < 0x0E00 or unseen.is_selector(char)


def _switched(view: View) -> Iterator[Hit]:
    for number, line in enumerate(view.raw_lines, 1):
        marks = [char for char in line if char in unseen.BIDI]
        if marks:
            is_override = any(char in "\u202d\u202e" for char in marks)
            level: Level = "warn" if is_override or view.place_of(number) == "script" else "review"
            yield Hit(rule="AB002", level=level, line=number, matched="")


def _mixed(view: View) -> Iterator[Hit]:
    for number, line in enumerate(view.raw_lines, 1):
        if line.isascii():
            continue
        word = next(filter(_is_mixed, unseen.words_of(line[:4_000])), None)
        if word:
            yield Hit(rule="AB003", level="review", line=number, matched=word)


def _is_mixed(word: str) -> bool:
    """Latin letters with look-alikes among them. One Greek letter is mathematics."""
    if len(word) < 4 or word.isascii():
        return False
    latin = sum(char.isascii() for char in word)
    lookalike = sum(ord(char) in unseen.LOOKALIKES and 0x370 <= ord(char) < 0x530 for char in word)
    cyrillic = any(0x400 <= ord(char) < 0x530 for char in word)
    return latin >= 2 and lookalike >= 1 and latin + lookalike == len(word) and cyrillic


def _comments(view: View, setting: Setting) -> Iterator[Hit]:
    if view.place_of(1) == "script":
        return
    for start, inside in _unshown(view.text):
        if not _DIRECTIVE.search(inside):
            continue
        line = view.line_at(start)
        level: Level = "warn" if _STRONG.search(inside) else "info"
        steps = int(view.place_of(line) not in {"instruction", "command"})
        steps += int(setting.is_about_security)
        shown = " ".join(inside.split())
        yield Hit(rule="AB007", level=lowered(level, steps), line=line, matched=shown)


def _unshown(text: str) -> Iterator[tuple[int, str]]:
    """Comments of documents, with their places; one that never ends reaches to the end."""
    for opening, closing in _MARKS:
        at = text.find(opening)
        while at >= 0:
            end = text.find(closing, at)
            end = end if end >= 0 else len(text)
            yield at, text[at + len(opening) : min(end, at + _MAX_COMMENT)]
            at = text.find(opening, end)


def _encoded(view: View) -> Iterator[Hit]:
    """Codes in prose, or in programs, that turn into sentences or commands."""
    for find, decode in ((_BASE64, _from_base64), (_HEX, _from_hex)):
        for match in find.finditer(view.text):
            said = decode(match[0])
            if not said or not _TELLING.search(said):
                continue
            line = view.line_at(match.start())
            place = view.place_of(line)
            level: Level = "warn" if place in {"instruction", "command", "script"} else "review"
            yield Hit(rule="AB010", level=level, line=line, matched=said)


def _from_base64(text: str) -> str:
    body = text.rstrip("=")
    return _as_text(base64.b64decode(body[: len(body) // 4 * 4]))


def _from_hex(text: str) -> str:
    return _as_text(bytes.fromhex(text))


def _as_text(data: bytes) -> str:
    """Bytes as text, if that is what they are."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return ""
    letters = sum(char.isalpha() or char in " /-_.:" for char in text)
    return text if text.isprintable() or letters > len(text) * 0.8 else ""


def _padded(view: View) -> Iterator[Hit]:
    match = _BLANKS.search(view.folded)
    if match:
        yield _pushed(view, view.line_at(match.end()), view.folded[match.end() :][:120])
    empty = 0
    for number, line in enumerate(view.lines, 1):
        if line.strip():
            if empty >= _MANY_EMPTY:
                yield _pushed(view, number, line[:120])
                return
            empty = 0
        else:
            empty += 1


def _pushed(view: View, line: int, text: str) -> Hit:
    level: Level = "warn" if view.place_of(line) in {"instruction", "script"} else "review"
    return Hit(rule="AB044", level=level, line=line, matched=text)
