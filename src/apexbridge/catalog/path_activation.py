"""Which paths a shell command names. Pure."""

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
    """The words of a command that may be paths, counted from the folder it runs in.

    It errs on the side of naming too many: a word that is no path concerns no skill.
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
    except ValueError:  # a quote that does not close
        return spaced.replace("'", " ").replace('"', " ").split()


def _normalize(path: Path) -> Path:
    """Without `.` and `..`, and without asking the disk."""
    return Path(os.path.normpath(path))


class PathActivation:
    """What has woken in a session. Once awake, a skill stays awake until the session ends."""

    def __init__(self, project: Path) -> None:
        self._project = project
        self._awake: set[str] = set()
        self._compiled: dict[tuple[str, ...], PathMatcher] = {}

    @property
    def has_woken(self) -> bool:
        """Whether any skill is awake that slept."""
        return bool(self._awake)

    def is_asleep(self, skill: Skill) -> bool:
        """Say whether a skill waits for its files."""
        return skill.is_conditional and skill.name not in self._awake

    def visible(self, skills: Iterable[Skill]) -> list[Skill]:
        """Those that do not sleep."""
        return [skill for skill in skills if not self.is_asleep(skill)]

    def wake(self, skills: Iterable[Skill], touched: Sequence[Path]) -> tuple[str, ...]:
        """Wake the skills that one of the paths concerns, and name those that slept."""
        # Many skills share a folder or even their patterns, and there may be very many skills.
        below, said = dict[Path, list[str]](), dict[tuple[tuple[str, ...], Path], bool]()

        def concerns(patterns: tuple[str, ...], base: Path) -> bool:
            if base not in below:
                inside = [path for path in touched if path.is_relative_to(base)]
                below[base] = [path.relative_to(base).as_posix() for path in inside]
            if (patterns, base) not in said:
                said[patterns, base] = any(map(self._matcher(patterns).matches, below[base]))
            return said[patterns, base]

        # Patterns count from the project, and from the folder that keeps the skill.
        woken = [
            skill.name
            for skill in skills
            if self.is_asleep(skill)
            and any(
                concerns(skill.manifest.paths, base)
                for base in {self._project, skill.provenance.home or self._project}
            )
        ]
        self._awake.update(woken)
        return tuple(woken)

    def _matcher(self, patterns: tuple[str, ...]) -> PathMatcher:
        if patterns not in self._compiled:
            try:
                self._compiled[patterns] = compile_patterns(patterns)
            except ValueError:  # a source did not look at them: they mean no file
                self._compiled[patterns] = PathMatcher(())
        return self._compiled[patterns]
