"""Path activation: skills with `paths` patterns stay inactive until a matching file is touched."""

import os
import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from apexbridge.path_patterns import PathMatcher, compile_patterns
from apexbridge.skills.model import Skill

MAX_COMMAND = 64 * 1024
MAX_PATHS = 256
_MAX_WORD = 4_096
_OPERATORS = re.compile(r"[;&|<>()`\n]+|\d?>>?")
_ASSIGNED = re.compile(r"-{0,2}[A-Za-z0-9_-]+=")


def paths_in_command(command: str, folder: Path) -> tuple[Path, ...]:
    """Extract the words of a shell command that may be paths, relative to its working directory.

    False positives are harmless: a word that is not a path matches no pattern.
    """
    found = dict[Path, None]()
    for word in _split_words(command[:MAX_COMMAND]):
        plain = _ASSIGNED.sub("", word, count=1) if "=" in word else word
        if not plain or plain.startswith("-") or "\0" in plain or len(plain) > _MAX_WORD:
            continue
        found[_normalize(folder / plain)] = None
        if len(found) == MAX_PATHS:
            break
    return tuple(found)


def _split_words(command: str) -> list[str]:
    spaced = _OPERATORS.sub(" ", command)
    try:
        return shlex.split(spaced, comments=False)
    except ValueError:  # unbalanced quote
        return spaced.replace("'", " ").replace('"', " ").split()


def _normalize(path: Path) -> Path:
    """Resolve `.` and `..` lexically, without file system access."""
    return Path(os.path.normpath(path))


class PathActivation:
    """Skills activated in one session; an active skill stays so until the session ends."""

    def __init__(self, project: Path) -> None:
        self._project = project
        self.active: set[str] = set()
        """Names of the skills that touched paths have activated."""
        self._compiled: dict[tuple[str, ...], PathMatcher] = {}

    def is_inactive(self, skill: Skill) -> bool:
        """Say whether a skill waits for a matching path."""
        return bool(skill.manifest.paths) and skill.name not in self.active

    def visible(self, skills: Iterable[Skill]) -> list[Skill]:
        """Return the skills that are not inactive."""
        return [skill for skill in skills if not self.is_inactive(skill)]

    def activate(self, skills: Iterable[Skill], touched: Sequence[Path]) -> tuple[str, ...]:
        """Activate the skills that a path matches; return the names of those that were inactive."""
        # Thousands of skills share few folders and patterns: match each combination once.
        below, results = dict[Path, list[str]](), dict[tuple[tuple[str, ...], Path], bool]()

        def matches(patterns: tuple[str, ...], base: Path) -> bool:
            if base not in below:
                inside = [path for path in touched if path.is_relative_to(base)]
                below[base] = [path.relative_to(base).as_posix() for path in inside]
            if (patterns, base) not in results:
                results[patterns, base] = any(map(self._matcher(patterns).matches, below[base]))
            return results[patterns, base]

        # Patterns are relative to the project, and to the folder that holds the skill.
        activated = [
            skill.name
            for skill in skills
            if self.is_inactive(skill)
            and any(
                matches(skill.manifest.paths, base)
                for base in {self._project, skill.provenance.home or self._project}
            )
        ]
        self.active.update(activated)
        return tuple(activated)

    def _matcher(self, patterns: tuple[str, ...]) -> PathMatcher:
        if patterns not in self._compiled:
            try:
                self._compiled[patterns] = compile_patterns(patterns)
            except ValueError:  # a source that does not validate patterns: they match nothing
                self._compiled[patterns] = PathMatcher(())
        return self._compiled[patterns]
