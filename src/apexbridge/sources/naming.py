"""Names with their origin in front: `plugin:skill`."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath

from apexbridge.errors import SkillNotFoundError
from apexbridge.skills import names
from apexbridge.skills.model import Skill, SkillContent, SkillResource
from apexbridge.sources.base import Scan, SkillSource

SEPARATOR = ":"


def usable_part(text: str) -> str:
    """One part of a name: as it is written if that can be typed, else what can be made of it.

    >>> usable_part("fix_bug"), usable_part("Code Review!"), usable_part("?")
    ('fix_bug', 'code-review', '')
    """
    part = names.normalise(text)
    is_plain = all(char.isalnum() or char in "-_." for char in part)
    if is_plain and len(part) <= names.MAX_LENGTH and any(map(str.isalnum, part)):
        return part
    return names.slug(part)


class NamespacedSource:
    """A source whose skills carry a prefix; everything else is the inner source's.

    `namespace` may put more between prefix and name. It is asked with the skill as the inner
    source lists it and, to find the way back, with the renamed one, and must answer alike.
    """

    def __init__(
        self, inner: SkillSource, prefix: str, namespace: Callable[[Skill], str] = lambda _: ""
    ) -> None:
        self._inner = inner
        self._prefix = prefix
        self._namespace = namespace

    @property
    def id(self) -> str:
        """The inner source's."""
        return self._inner.id

    @property
    def roots(self) -> tuple[Path, ...]:
        """The inner source's."""
        return self._inner.roots

    async def scan(self) -> Scan:
        """List the inner source's skills under their long names."""
        scan = await self._inner.scan()
        renamed = [replace(skill, name=self._front(skill) + skill.name) for skill in scan.skills]
        return replace(scan, skills=tuple(renamed))

    async def content(self, skill: Skill, arguments: str = "") -> SkillContent:
        """Read the body."""
        return replace(await self._inner.content(self._original(skill), arguments), skill=skill)

    async def resource(self, skill: Skill, path: PurePosixPath) -> SkillResource:
        """Read a file beside SKILL.md."""
        return replace(await self._inner.resource(self._original(skill), path), skill=skill)

    async def close(self) -> None:
        """Let go of what the inner source holds."""
        await self._inner.close()

    def _front(self, skill: Skill) -> str:
        parts = (self._prefix, self._namespace(skill))
        return "".join(part + SEPARATOR for part in parts if part)

    def _original(self, skill: Skill) -> Skill:
        front = self._front(skill)
        if not skill.name.startswith(front):
            raise SkillNotFoundError(skill.name)
        return replace(skill, name=skill.name.removeprefix(front))
