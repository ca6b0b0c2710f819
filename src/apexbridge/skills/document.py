"""Decode SKILL.md and split it into frontmatter, body and inline commands, without parsing YAML."""

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass

from apexbridge.skills.model import Problem

SKILL_MD = "SKILL.md"

# The closing line is a YAML document marker: `---` at the very start of a line. No value can hold
# one there, so a `---` inside a value, or indented, ends nothing.
_FRONTMATTER = re.compile(r"---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A SKILL.md split in two; `start` is the offset of the frontmatter in `text`."""

    text: str
    start: int
    frontmatter: str
    body: str

    @property
    def newline(self) -> str:
        """The line ending of this file."""
        return "\r\n" if self.text[: self.start].endswith("\r\n") else "\n"


def decode_skill_md(data: bytes) -> str | Problem:
    """Decode UTF-8; a byte order mark stays in front of the text."""
    if data.startswith(_UTF16_MARKS):
        return Problem(code="encoding_utf16", where=SKILL_MD)
    nul = data.find(b"\0")
    if nul >= 0:
        line = data.count(b"\n", 0, nul) + 1
        return Problem.error("encoding_nul", line_location(line), line=line)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        guess = _guess_encoding(data)
        return Problem.error("encoding_not_utf8", line_location(line), line=line, guess=guess)


def _guess_encoding(data: bytes) -> str:
    try:
        data.decode("gb18030")
    except UnicodeDecodeError:
        return "Latin-1"
    return "GBK"


def split_frontmatter(text: str) -> Document | Problem:
    """Split off the frontmatter, which must begin on the first line."""
    first = 1 if text.startswith("\ufeff") else 0
    match = _FRONTMATTER.match(text, first)
    if match:
        return Document(
            text=text, start=match.start(1), frontmatter=match[1], body=text[match.end() :]
        )
    opened = re.compile(r"---[ \t]*(\r?\n|\Z)").match(text, first)
    return Problem(
        code="frontmatter_unclosed" if opened else "frontmatter_missing", where=line_location(1)
    )


def line_location(line: int) -> str:
    """Format a location in SKILL.md."""
    return f"{SKILL_MD}:{line}"


_COMMAND = re.compile(
    r"^[ \t]*```![ \t]*\r?\n(?P<block>.*?)^[ \t]*```[ \t]*\r?$|(?<![^\s])!`(?P<line>[^`\n]+)`",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class InlineCommand:
    """A shell command in the body, and the span that its output replaces."""

    start: int
    end: int
    command: str


def inline_commands(text: str) -> Iterator[InlineCommand]:
    """Find the inline commands of a body, in order; blank ones are ignored.

    >>> [found.command for found in inline_commands("Now: !`date` and not a!`b`")]
    ['date']
    """
    for match in _COMMAND.finditer(text):
        command = (match["block"] or match["line"] or "").replace("\r\n", "\n").strip()
        if command:
            yield InlineCommand(match.start(), match.end(), command)
