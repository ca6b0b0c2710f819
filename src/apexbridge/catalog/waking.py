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

    def is_asleep(self, skill: Skill) -> bool:
        """Say whether a skill waits for its files."""
        return skill.is_conditional and skill.name not in self._awake

    def visible(self, skills: Iterable[Skill]) -> list[Skill]:
        """Those that do not sleep."""
        return [skill for skill in skills if not self.is_asleep(skill)]

    def wake(self, skills: Iterable[Skill], touched: Sequence[Path]) -> tuple[str, ...]:
        """Wake the skills that one of the paths concerns, and name those that slept."""
        woken = [
            skill.name
            for skill in skills
            if self.is_asleep(skill) and any(self._concerns(skill, path) for path in touched)
        ]
        self._awake.update(woken)
        return tuple(woken)

    def _concerns(self, skill: Skill, path: Path) -> bool:
        """Patterns count from the project, and from the folder that keeps the skill."""
        patterns = skill.manifest.paths
        matcher = self._compiled.get(patterns)
        if matcher is None:
            matcher = self._compiled.setdefault(patterns, compile_patterns(patterns))
        bases = {self._project, skill.provenance.home or self._project}
        return any(
            path.is_relative_to(base) and matcher.matches(path.relative_to(base).as_posix())
            for base in bases
        )
