"""What is vetted: the bytes of a skill, and how much of them is looked at."""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath
from typing import Literal

from apexbridge.scanner.invisible_unicode import HOMOGLYPHS, INVISIBLE

SKILL_MD = "SKILL.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedFile:
    """One file of a skill, by its path inside the folder."""

    path: PurePosixPath
    data: bytes
    executable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanTarget:
    """A skill as it was found."""

    folder: str
    files: tuple[ScannedFile, ...]
    others: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names and descriptions of the skills already known."""
    is_partial: bool = False
    """Whether files were left out before they came here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannerLimits:
    """Where looking stops; what lies behind makes a report partial."""

    files: int = 2_000
    file_bytes: int = 1024 * 1024
    total_bytes: int = 64 * 1024 * 1024
    text_bytes: int = 8 * 1024 * 1024
    """How much text is read in all, SKILL.md and programs first."""
    findings: int = 10_000
    findings_per_rule: int = 20
    """In one file; the others would say the same again."""
    program_bytes: int = 256 * 1024
    """The largest Python file whose data flow is followed."""
    others: int = 20_000
    """How many known skills names and descriptions are compared with."""


DEFAULT_LIMITS = ScannerLimits()


LineRole = Literal["instruction", "command", "script", "reference", "data"]
"""Prose of SKILL.md, code in it, a program, other documents, everything else."""

MAX_LINE = 800
"""How much of a line is looked at around a match."""

_SCRIPT_SUFFIXES = frozenset(
    {".py", ".pyw", ".sh", ".bash", ".zsh", ".fish", ".ksh", ".js", ".mjs", ".cjs", ".ts",
     ".mts", ".cts", ".tsx", ".jsx", ".rb", ".pl", ".php", ".lua", ".ps1", ".psm1", ".bat",
     ".cmd", ".vbs", ".wsf", ".hta", ".applescript", ".scpt", ".go", ".rs", ".c", ".cc",
     ".cpp", ".java", ".kt", ".swift", ".r", ".jl", ".awk", ".tcl", ".command"}
)  # fmt: skip
_SCRIPT_NAMES = frozenset({"makefile", "dockerfile", "justfile", "rakefile", "package.json"})
_PROSE_SUFFIXES = frozenset({".md", ".mdx", ".markdown", ".txt", ".rst", ".adoc", ""})
_DATA_SUFFIXES = frozenset(
    {".json", ".yaml", ".yml", ".toml", ".xml", ".html", ".csv", ".svg", ".ini"}
)
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")
_PROSE_FENCES = frozenset({"markdown", "md", "text", "txt", "plaintext", "mdx"})
_FENCE = re.compile(r"[ \t]{0,8}(?:[-*>][ \t]{1,4})?(`{3,}|~{3,})[ \t]*([\w+#.!-]{0,40})")


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeBlock:
    """Lines that run together: a code block, or a whole program."""

    first: int
    last: int
    language: str
    place: LineRole


@dataclass(frozen=True, kw_only=True)
class TextFile:
    """One text file."""

    path: str
    raw: str
    folded: str
    places: Sequence[LineRole]
    units: Sequence[CodeBlock]
    is_skill_md: bool = False

    @cached_property
    def text(self) -> str:
        """The folded text with continued lines joined; as long as before, so places stay true."""
        return self.folded.replace("\\\n", "  ")

    @cached_property
    def lower(self) -> str:
        """The folded text in small letters, for quick looks."""
        return self.text.lower()

    @cached_property
    def starts(self) -> list[int]:
        """Where each line of the folded text begins."""
        return [0, *(match.end() for match in re.finditer("\n", self.folded))]

    @cached_property
    def raw_lines(self) -> list[str]:
        """The lines as their author wrote them."""
        return self.raw.split("\n")

    @cached_property
    def lines(self) -> list[str]:
        """The folded lines."""
        return self.folded.split("\n")

    @cached_property
    def front_end(self) -> int:
        """The number of the line that ends the frontmatter; 0 if there is none."""
        if not self.is_skill_md or self.lines[0].strip() != "---":
            return 0
        rest = enumerate(self.lines[1:], 2)
        return next((number for number, line in rest if line.strip() == "---"), 0)

    def line_at(self, offset: int) -> int:
        """The number of the line, from 1, in which a place of the folded text lies."""
        return bisect_right(self.starts, offset)

    def end_of(self, line: int) -> int:
        """Where a line ends; one that is continued ends with the last of those joined to it."""
        end = self.text.find("\n", self.starts[line - 1])
        return end if end >= 0 else len(self.text)

    def place_of(self, line: int) -> LineRole:
        """What a line is for."""
        return self.places[min(line, len(self.places)) - 1]

    def around(self, start: int, end: int) -> str:
        """The line around a match, but no more of a very long one than can be read."""
        line_start = self.text.rfind("\n", max(0, start - MAX_LINE), start) + 1
        line_end = self.text.find("\n", end, end + MAX_LINE)
        line_end = line_end if line_end >= 0 else end + MAX_LINE
        return self.text[max(line_start, start - MAX_LINE) : line_end]

    def before(self, line: int, count: int) -> str:
        """Some lines in front of a line."""
        return "\n".join(row[:MAX_LINE] for row in self.lines[max(0, line - 1 - count) : line - 1])


def normalize_text(text: str) -> str:
    """Take away what hides words; lines stay where they are."""
    text = text.replace("\r", " ").replace("\0", "").translate(INVISIBLE)
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).translate(HOMOGLYPHS)
    return text


def read_text_file(file: ScannedFile, data: bytes) -> TextFile | None:
    """Read a file as text; None if it is none."""
    if b"\0" in data and not data.startswith(_UTF16_BOMS) and not _has_text_suffix(file.path):
        return None
    raw = _decode(data)
    text = normalize_text(raw)
    count = text.count("\n") + 1
    name = file.path.name.lower()
    is_skill_md = file.path.as_posix() == SKILL_MD
    if is_script(file.path, data, executable=file.executable):
        unit = CodeBlock(
            first=1, last=count, language=_script_language(file.path, raw), place="script"
        )
        places: list[LineRole] = ["script"] * count
        return TextFile(path=str(file.path), raw=raw, folded=text, places=places, units=(unit,))
    data_places: list[LineRole] = ["data"] * count
    if file.path.suffix.lower() not in _PROSE_SUFFIXES or name.startswith("license"):
        return TextFile(path=str(file.path), raw=raw, folded=text, places=data_places, units=())
    places, units = _classify_lines(text, is_skill_md=is_skill_md)
    return TextFile(
        path=str(file.path),
        raw=raw,
        folded=text,
        places=places,
        units=units,
        is_skill_md=is_skill_md,
    )


def _has_text_suffix(path: PurePosixPath) -> bool:
    """Say whether a name promises text; shells read on behind a NUL, and so do we."""
    return (
        path.suffix.lower() in _SCRIPT_SUFFIXES | _PROSE_SUFFIXES | _DATA_SUFFIXES
        and path.suffix != ""
    )


def is_script(path: PurePosixPath, data: bytes, *, executable: bool = False) -> bool:
    """Say whether a file is one that can be run as it is."""
    if path.suffix.lower() in _SCRIPT_SUFFIXES or path.name.lower() in _SCRIPT_NAMES:
        return True
    return data.startswith(b"#!") or (executable and path.suffix == "")


def _decode(data: bytes) -> str:
    if data.startswith(_UTF16_BOMS):
        return data.decode("utf-16", "replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        pass
    try:
        return data.decode("gb18030")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


_LANGUAGES = {
    ".py": "python",
    ".pyw": "python",
    ".sh": "shell",
    ".bash": "shell",
    ".zsh": "shell",
    ".ksh": "shell",
    ".js": "javascript",
    ".mjs": "javascript",
    ".cjs": "javascript",
    ".ts": "javascript",
    ".mts": "javascript",
    ".tsx": "javascript",
    ".jsx": "javascript",
    ".ps1": "powershell",
    ".psm1": "powershell",
    ".bat": "batch",
    ".cmd": "batch",
}
_FENCE_LANGUAGES = {
    "python": "python",
    "py": "python",
    "python3": "python",
    "sh": "shell",
    "bash": "shell",
    "shell": "shell",
    "zsh": "shell",
    "console": "shell",
    "terminal": "shell",
    "": "shell",
    "!": "shell",
    "javascript": "javascript",
    "js": "javascript",
    "typescript": "javascript",
    "ts": "javascript",
    "node": "javascript",
    "powershell": "powershell",
    "ps1": "powershell",
    "pwsh": "powershell",
}


def _script_language(path: PurePosixPath, text: str) -> str:
    known = _LANGUAGES.get(path.suffix.lower())
    if known:
        return known
    first = text.split("\n", 1)[0][:200]
    if first.startswith("#!"):
        for word, language in (("python", "python"), ("node", "javascript"), ("sh", "shell")):
            if word in first:
                return language
    return path.suffix.lower().lstrip(".") or "shell"


def _classify_lines(text: str, *, is_skill_md: bool) -> tuple[list[LineRole], list[CodeBlock]]:
    """Tell prose from code by its fences."""
    prose: LineRole = "instruction" if is_skill_md else "reference"
    code: LineRole = "command" if is_skill_md else "reference"
    places, units = list[LineRole](), list[CodeBlock]()
    fence, language, first = "", "", 0
    for number, line in enumerate(text.split("\n"), 1):
        mark = _FENCE.match(line)
        if fence:
            places.append(prose if language in _PROSE_FENCES else code)
            if mark and mark[1].startswith(fence) and not mark[2]:
                units.append(_code_block(first, number, language, code))
                fence = ""
        elif mark:
            fence, language, first = mark[1], mark[2].lower(), number
            places.append(code)
        else:
            places.append(prose)
    if fence:
        units.append(_code_block(first, len(places), language, code))
    return places, units


def _code_block(first: int, last: int, language: str, place: LineRole) -> CodeBlock:
    known = _FENCE_LANGUAGES.get(language, language)
    return CodeBlock(first=first, last=last, language=known, place=place)
