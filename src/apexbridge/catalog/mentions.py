"""Which paths a shell command names. Pure."""

import os
import re
import shlex
from pathlib import Path

MAX_COMMAND = 64 * 1024
MAX_PATHS = 256
_MAX_WORD = 4_096
_OPERATORS = re.compile(r"[;&|<>()`\n]+|\d?>>?")
_ASSIGNED = re.compile(r"-{0,2}[A-Za-z0-9_-]+=")


def named_paths(command: str, folder: Path) -> tuple[Path, ...]:
    """The words of a command that may be paths, counted from the folder it runs in.

    It errs on the side of naming too many: a word that is no path concerns no skill.
    """
    found = dict[Path, None]()
    for word in _words(command[:MAX_COMMAND]):
        plain = _ASSIGNED.sub("", word, count=1) if "=" in word else word
        if not plain or plain.startswith("-") or "\0" in plain or len(plain) > _MAX_WORD:
            continue
        found[_normal(folder / plain)] = None
        if len(found) == MAX_PATHS:
            break
    return tuple(found)


def _words(command: str) -> list[str]:
    spaced = _OPERATORS.sub(" ", command)
    try:
        return shlex.split(spaced, comments=False)
    except ValueError:  # a quote that does not close
        return spaced.replace("'", " ").replace('"', " ").split()


def _normal(path: Path) -> Path:
    """Without `.` and `..`, and without asking the disk."""
    return Path(os.path.normpath(path))
