"""Read git's `core.excludesFile`, the user's global ignore file, from config files.

No git process is started: a skill folder is looked for at every touched file.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from apexbridge.regular_files import read_regular

_SYSTEM_CONFIG = Path("/etc/gitconfig")
_SECTION = re.compile(r'\s*\[\s*([\w.-]+)\s*("(?:[^"\\]|\\.)*")?\s*\]')
_VARIABLE = re.compile(r"\s*([A-Za-z][A-Za-z0-9-]*)\s*=[^\S\n]*")
_ESCAPES = {"n": "\n", "t": "\t", "b": "\b"}
_MAX_BYTES = 1024 * 1024
_MAX_INCLUDES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class GitUser:
    """Folders in which git looks for a user's configuration."""

    home: Path
    config_home: Path
    """`$XDG_CONFIG_HOME`, by default `~/.config`."""

    def excludes_file(self, git_dir: Path) -> Path:
        """Return the global ignore file for a repository; it need not exist."""
        written = ""
        places = (self.config_home / "git/config", self.home / ".gitconfig", git_dir / "config")
        for place in (_SYSTEM_CONFIG, *places):
            for name, value in self._variables(place):
                written = value if name == "core.excludesfile" else written
        if written:
            return self._path(written, git_dir.parent)
        return self.config_home / "git/ignore"

    def _path(self, written: str, base: Path) -> Path:
        return self.home / written[2:] if written.startswith("~/") else base / written

    def _variables(self, place: Path, depth: int = 0) -> Iterator[tuple[str, str]]:
        """Yield the variables of a file and of those that it includes, names in lower case."""
        for name, value in parse_git_config(read_small_file(place)):
            if name == "include.path" and depth < _MAX_INCLUDES:
                yield from self._variables(self._path(value, place.parent), depth + 1)
            else:
                yield name, value


def find_git_dir(top: Path) -> Path:
    """Return the common git folder of a working tree, which may be a linked worktree."""
    written = top / ".git"
    text = read_small_file(written)
    if not text.startswith("gitdir:"):
        return written
    linked = top / text.removeprefix("gitdir:").strip()
    common = read_small_file(linked / "commondir").strip()
    return linked / common if common else linked


def parse_git_config(text: str) -> Iterator[tuple[str, str]]:
    """Yield variables as `section.name`; subsections and what cannot be parsed are left out."""
    section, at = "", 0
    while at < len(text):
        if found := _SECTION.match(text, at):
            section = "" if found[2] else found[1].lower()
            at = found.end()
        elif found := _VARIABLE.match(text, at):
            value, at = _value(text, found.end())
            if section:
                yield f"{section}.{found[1].lower()}", value
        else:
            end = text.find("\n", at)
            at = len(text) if end < 0 else end + 1


def _value(text: str, at: int) -> tuple[str, int]:
    """Parse a value with quotes, escapes, comments and continued lines; return it and its end."""
    value, is_quoted, kept = "", False, 0
    while at < len(text):
        char = text[at]
        at += 1
        if char == "\n":
            break
        if char == "\\":
            escaped = text[at : at + 1]
            at += 1
            value += "" if escaped == "\n" else _ESCAPES.get(escaped, escaped)
            kept = len(value)
        elif char == '"':
            is_quoted = not is_quoted
            kept = len(value)
        elif char in "#;" and not is_quoted:
            at = text.find("\n", at)
            at = len(text) if at < 0 else at
        else:
            value += char
            kept = kept if char.isspace() and not is_quoted else len(value)
    return value[:kept], at


def read_small_file(path: Path) -> str:
    """Read a regular file; empty if there is none or it cannot be read."""
    try:
        data = read_regular(path.resolve(), _MAX_BYTES)
    except (OSError, ValueError):
        return ""
    return data.decode("utf-8", "replace").replace("\r\n", "\n")
