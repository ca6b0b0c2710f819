"""What a script is run with: its first line says, else its suffix. Pure."""

import re
import shlex
from pathlib import PurePosixPath

BY_SUFFIX = {
    ".py": "python", ".js": "node", ".mjs": "node", ".cjs": "node", ".sh": "bash",
    ".ts": "typescript", ".mts": "typescript",
}  # fmt: skip
FIRST_LINE_BYTES = 256
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def runner_of(first_line: bytes, suffix: str) -> list[str]:
    """The interpreter's name and the words behind it; an empty name if nothing says.

    >>> runner_of(b"#!/usr/bin/env -S python3 -u", ".txt")
    ['python3', '-u']
    >>> runner_of(b"print(1)", ".py")
    ['python']
    """
    words = [BY_SUFFIX.get(suffix, "")]
    line = first_line.decode("utf-8", "replace").strip()
    if line.startswith("#!"):
        words = _words_of(line[2:]) or words
        if PurePosixPath(words[0]).name == "env":
            words = _without_flags(words[1:]) or [""]
    name = PurePosixPath(words[0]).name
    return [name if _NAME.fullmatch(name) else "", *words[1:]]


def _without_flags(words: list[str]) -> list[str]:
    """What `env` starts: what stands before it is meant for `env` itself."""
    while words and words[0].startswith("-"):
        words = words[1:]
    return words


def _words_of(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:  # an open quote: no program is called that
        return ["?"]
