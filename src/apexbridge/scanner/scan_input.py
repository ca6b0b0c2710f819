"""Scanner input: the files of a skill, limits, and normalized text with a role for each line.

Unicode normalization undoes obfuscation (invisible characters, full-width letters, homoglyphs) and
joins continued shell lines, but keeps every newline, so that line numbers stay correct.
"""

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
    """A file of a skill, with its path relative to the skill folder."""

    path: PurePosixPath
    data: bytes
    executable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanTarget:
    """A skill to scan."""

    folder: str
    files: tuple[ScannedFile, ...]
    known_skills: Mapping[str, str] = field(default_factory=dict[str, str])
    """Descriptions of the installed skills by name, to detect clones and typosquatting."""
    is_partial: bool = False
    """Whether files were already left out when the skill was read."""
    origin: str = ""
    """The address that the installer fetched from; never what the skill says of itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannerLimits:
    """Bounds of a scan; exceeding one makes the report partial."""

    files: int = 2_000
    file_bytes: int = 1024 * 1024
    total_bytes: int = 64 * 1024 * 1024
    text_bytes: int = 8 * 1024 * 1024
    """Text read in all, SKILL.md and scripts first."""
    findings: int = 10_000
    findings_per_rule: int = 20
    """Findings of one rule in one file; more of them add no information."""
    script_bytes: int = 256 * 1024
    """The largest Python file that is parsed for taint analysis."""
    known_skills: int = 20_000
    """Installed skills to compare names and descriptions with."""
    file_seconds: float = 2.0
    """CPU time for one file, and for the checks across files."""
    total_seconds: float = 5.0
    """CPU time for all files."""


DEFAULT_LIMITS = ScannerLimits()


LineRole = Literal["instruction", "command", "script", "reference", "data"]
"""Prose of SKILL.md, code blocks in it, scripts, other documents, everything else."""

MAX_LINE = 800
"""Characters of a line that are examined on each side of a match."""

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
_SUFFIXES_BY_LANGUAGE = {
    "python": (".py", ".pyw"),
    "shell": (".sh", ".bash", ".zsh", ".ksh"),
    "javascript": (".js", ".mjs", ".cjs", ".ts", ".mts", ".tsx", ".jsx"),
    "powershell": (".ps1", ".psm1"),
    "batch": (".bat", ".cmd"),
}
_LANGUAGES = {s: language for language, names in _SUFFIXES_BY_LANGUAGE.items() for s in names}
_FENCES_BY_LANGUAGE = {
    "python": ("python", "py", "python3"),
    "shell": ("sh", "bash", "shell", "zsh", "console", "terminal", "", "!"),
    "javascript": ("javascript", "js", "typescript", "ts", "node"),
    "powershell": ("powershell", "ps1", "pwsh"),
}
_FENCE_LANGUAGES = {s: language for language, names in _FENCES_BY_LANGUAGE.items() for s in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeBlock:
    """A fenced code block, or a whole script."""

    first: int
    last: int
    language: str
    role: LineRole


@dataclass(frozen=True, kw_only=True)
class TextFile:
    """A decoded text file with normalized text and a role for each line."""

    path: str
    raw: str
    normalized: str
    roles: Sequence[LineRole]
    code_blocks: Sequence[CodeBlock]
    is_skill_md: bool = False

    @cached_property
    def text(self) -> str:
        """The normalized text with continued lines joined by blanks, so that offsets stay valid."""
        return self.normalized.replace("\\\n", "  ")

    @cached_property
    def lower(self) -> str:
        """The text in lower case, for substring pre-filters."""
        return self.text.lower()

    @cached_property
    def line_starts(self) -> list[int]:
        """The offset of each line."""
        return [0, *(match.end() for match in re.finditer("\n", self.normalized))]

    @cached_property
    def raw_lines(self) -> list[str]:
        """The lines as written, for excerpts."""
        return self.raw.split("\n")

    @cached_property
    def lines(self) -> list[str]:
        """The normalized lines."""
        return self.normalized.split("\n")

    @cached_property
    def educational_lines(self) -> dict[int, bool]:
        """Whether the lines before a line teach or warn, as far as it was asked."""
        return {}

    @cached_property
    def frontmatter_end(self) -> int:
        """The number of the line that closes the frontmatter; 0 if there is none."""
        if not self.is_skill_md or self.lines[0].strip() != "---":
            return 0
        rest = enumerate(self.lines[1:], 2)
        return next((number for number, line in rest if line.strip() == "---"), 0)

    def line_number(self, offset: int) -> int:
        """Return the 1-based number of the line at an offset."""
        return bisect_right(self.line_starts, offset)

    def line_end(self, line: int) -> int:
        """Return the end offset of a line, including the lines that continue it."""
        end = self.text.find("\n", self.line_starts[line - 1])
        return end if end >= 0 else len(self.text)

    def role_of(self, line: int) -> LineRole:
        """Return the role of a line."""
        return self.roles[min(line, len(self.roles)) - 1]

    def line_context(self, start: int, end: int) -> str:
        """Return the line around a match, cut to a bounded length on both sides."""
        line_start = self.text.rfind("\n", max(0, start - MAX_LINE), start) + 1
        line_end = self.text.find("\n", end, end + MAX_LINE)
        line_end = line_end if line_end >= 0 else end + MAX_LINE
        return self.text[max(line_start, start - MAX_LINE) : line_end]

    def preceding_lines(self, line: int, count: int) -> str:
        """Return some lines before a line."""
        return "\n".join(row[:MAX_LINE] for row in self.lines[max(0, line - 1 - count) : line - 1])


def normalize_text(text: str) -> str:
    """Normalize Unicode: remove invisible characters, apply NFKC, replace homoglyphs."""
    # A carriage return alone would hide text in a terminal; a NUL would end it in C programs.
    text = text.replace("\r", " ").replace("\0", "").translate(INVISIBLE)
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).translate(HOMOGLYPHS)
    return text


def read_text_file(file: ScannedFile, data: bytes) -> TextFile | None:
    """Decode a file, normalize it and parse its Markdown fences; return None for a binary file."""
    if b"\0" in data and not data.startswith(_UTF16_BOMS) and not _has_text_suffix(file.path):
        return None
    raw = _decode(data)
    text = normalize_text(raw)
    count = text.count("\n") + 1
    is_skill_md = False
    roles: list[LineRole]
    if is_script(file.path, data, executable=file.executable):
        language = _script_language(file.path, raw)
        roles = ["script"] * count
        blocks = [CodeBlock(first=1, last=count, language=language, role="script")]
    elif file.path.suffix.lower() in _PROSE_SUFFIXES and not _is_license(file.path):
        is_skill_md = file.path.as_posix() == SKILL_MD
        roles, blocks = _classify_lines(text, is_skill_md=is_skill_md)
    else:
        roles = ["data"] * count
        blocks = []
    return TextFile(
        path=str(file.path),
        raw=raw,
        normalized=text,
        roles=roles,
        code_blocks=blocks,
        is_skill_md=is_skill_md,
    )


def _is_license(path: PurePosixPath) -> bool:
    return path.name.lower().startswith("license")


def _has_text_suffix(path: PurePosixPath) -> bool:
    """Return whether a text file is expected; a shell runs one despite a NUL byte."""
    return (
        path.suffix.lower() in _SCRIPT_SUFFIXES | _PROSE_SUFFIXES | _DATA_SUFFIXES
        and path.suffix != ""
    )


def is_script(path: PurePosixPath, data: bytes, *, executable: bool = False) -> bool:
    """Return whether a file is executable as it is: by suffix, name, shebang or mode."""
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
    # Older Chinese text is GB18030. It is tried second, because it accepts some Latin-1 too.
    try:
        return data.decode("gb18030")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


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
    """Parse Markdown fences, to distinguish prose from code blocks."""
    prose: LineRole = "instruction" if is_skill_md else "reference"
    code: LineRole = "command" if is_skill_md else "reference"
    roles, blocks = list[LineRole](), list[CodeBlock]()
    fence, language, first = "", "", 0
    for number, line in enumerate(text.split("\n"), 1):
        mark = _FENCE.match(line)
        if fence:
            roles.append(prose if language in _PROSE_FENCES else code)
            if mark and mark[1].startswith(fence) and not mark[2]:
                blocks.append(_code_block(first, number, language, code))
                fence = ""
        elif mark:
            fence, language, first = mark[1], mark[2].lower(), number
            roles.append(code)
        else:
            roles.append(prose)
    if fence:
        blocks.append(_code_block(first, len(roles), language, code))
    return roles, blocks


def _code_block(first: int, last: int, language: str, role: LineRole) -> CodeBlock:
    known = _FENCE_LANGUAGES.get(language, language)
    return CodeBlock(first=first, last=last, language=known, role=role)
