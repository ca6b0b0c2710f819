"""Skills that sleep until a file they are about is touched; one of these for each session."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from apexbridge.skills.model import Skill
from apexbridge.skills.patterns import Patterns, compile_patterns


class Waking:
    """What has woken in a session. Once awake, a skill stays awake until the session ends."""

    def __init__(self, project: Path) -> None:
        self._project = project
        self._awake: set[str] = set()
        self._compiled: dict[tuple[str, ...], Patterns] = {}

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

    def _matcher(self, patterns: tuple[str, ...]) -> Patterns:
        if patterns not in self._compiled:
            try:
                self._compiled[patterns] = compile_patterns(patterns)
            except ValueError:  # a source did not look at them: they mean no file
                self._compiled[patterns] = Patterns(())
        return self._compiled[patterns]
