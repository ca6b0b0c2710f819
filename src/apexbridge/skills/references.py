"""References of a skill's text to its own files, and those that lead nowhere.

Prose is full of what only looks like one: `[text](url)` in a lesson on links, examples in code,
placeholders, patterns. A reference counts if it can only mean a file: it is no code, has no
placeholder, and names a file with a suffix, a well-known one, or one in a folder of the skill.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from urllib.parse import unquote

from apexbridge.skills import names
from apexbridge.skills.document import line_location
from apexbridge.skills.model import Problem

_MAX_REFERENCES = 1_000
# The closing fence is at least as long as the opening one; an unclosed one ends with the text.
_FENCE = re.compile(r"^[ \t>]{0,40}(?:[-*+][ \t]+)?(`{3,40}|~{3,40})")
_BACKTICKS = re.compile(r"`+")
_BLANK_LINE = re.compile(r"\n[ \t]*\n")
_MAX_CODE_CHARS = 2_000
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_LINK = re.compile(r"\]\(<?([^()<>\s]{1,400})>?\)")
_VARIABLE = re.compile(r"\$\{CLAUDE_SKILL_DIR\}/([\w./-]{1,400})")
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*:|#|\$|\{|//", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"[<>{}\[\]*|$…]|\.\.\.|\bfilename\b|\bpath/to\b", re.IGNORECASE)
_WITHOUT_SUFFIX = frozenset({"license", "notice", "readme", "changelog", "makefile", "dockerfile"})


def reference_problems(
    body: str, first_line: int, files: frozenset[PurePosixPath]
) -> Iterator[Problem]:
    """Warn of each reference to a file that is not there or outside, once, up to a limit."""
    reported, line, seen = set[str](), first_line, 0
    for start, path in sorted(_references(body)):
        if path in reported:
            continue
        if len(reported) == _MAX_REFERENCES:
            return
        reported.add(path)
        line, seen = line + body.count("\n", seen, start), start
        code = _problem(path, files)
        if code:
            yield Problem.warning(code, line_location(line), path=path)


def _references(body: str) -> Iterator[tuple[int, str]]:
    """Yield offsets and paths; code and comments are replaced by blanks of the same length."""
    text = _COMMENT.sub(_blank, _without_fences(body))
    # A variable is expanded in code too, where it is mostly written; a link there is an example.
    for match in _VARIABLE.finditer(text):
        path = match[1].rstrip(".")
        if path and not _PLACEHOLDER.search(match[1]):
            yield match.start(), path
    for match in _LINK.finditer(_without_code(text)):
        path = unquote(match[1]).split("#")[0].split("?")[0]
        if path and not _ADDRESS.match(match[1]) and not _PLACEHOLDER.search(path):
            yield match.start(), path


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def _without_code(text: str) -> str:
    """Blank code spans: as many backticks as have opened one close it, in the same paragraph."""
    runs, kept, at, done = list(_BACKTICKS.finditer(text)), list[str](), 0, 0
    while at < len(runs):
        close = _closing(text, runs, at)
        if close:
            kept += [text[done : runs[at].start()], " " * (runs[close].end() - runs[at].start())]
            done = runs[close].end()
        at = (close or at) + 1
    return "".join((*kept, text[done:]))


def _closing(text: str, runs: Sequence[re.Match[str]], opening: int) -> int:
    """Return the place of the closing run; 0 if there is none."""
    start = runs[opening].end()
    for number in range(opening + 1, len(runs)):
        run = runs[number]
        if run.start() - start > _MAX_CODE_CHARS:
            return 0
        if len(run[0]) == len(runs[opening][0]):
            return 0 if _BLANK_LINE.search(text, start, run.start()) else number
    return 0


def _without_fences(body: str) -> str:
    lines, opened = body.split("\n"), ""
    for number, line in enumerate(lines):
        fence = _FENCE.match(line)
        mark = fence[1] if fence else ""
        if not opened and not mark:
            continue
        lines[number] = " " * len(line)
        if not opened:
            opened = mark
        elif mark.startswith(opened) and not line.strip(" \t>").strip(opened[0]):
            opened = ""
    return "\n".join(lines)


def _problem(path: str, files: frozenset[PurePosixPath]) -> str:
    if path.startswith(("/", "~", "\\")):
        return "reference_outside"
    parts = _resolved(PurePosixPath(path).parts)
    if parts is None:
        return "" if _is_other_skill(path) else "reference_outside"
    if not parts or PurePosixPath(*parts) in files:
        return ""
    return "reference_missing" if _is_file_name(path, parts, files) else ""


def _resolved(written: Iterable[str]) -> list[str] | None:
    """Resolve `..` on paper; None if it leads out of the skill."""
    parts = list[str]()
    for part in written:
        if part == ".." and not parts:
            return None
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return parts


def _is_other_skill(path: str) -> bool:
    """Return whether it names a skill beside this one: installed, they lie side by side too."""
    up, *inside = PurePosixPath(path).parts
    is_beside = up == ".." and bool(inside) and ".." not in inside and "." not in inside[0]
    return is_beside and not names.name_problems(inside[0], "")


def _is_file_name(path: str, parts: list[str], files: frozenset[PurePosixPath]) -> bool:
    name = PurePosixPath(parts[-1])
    if name.suffix or path.endswith("/") or name.name.lower() in _WITHOUT_SUFFIX:
        return True
    # `internal-wiki/page` is an address; `scripts/run` beside other scripts is a file.
    return len(parts) > 1 and PurePosixPath(parts[0]) in files
