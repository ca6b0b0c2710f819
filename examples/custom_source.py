"""Skills from a place of your own: here a dictionary, as well a database or an intranet.

python examples/custom_source.py
"""

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

import anyio

from apexbridge import Extensions, Origin, Runtime, Skill, SkillSource
from apexbridge.errors import SourceError
from apexbridge.extensions import hook
from apexbridge.skills.model import Provenance, SkillContent, SkillResource
from apexbridge.skills.parser import parse_document, parse_skill
from apexbridge.sources.base import Scan

PAGES = {
    "tea": b"---\nname: tea\ndescription: Brews a pot of tea.\n---\nBoil water, then wait.\n",
    "broken": b"no frontmatter at all",
}


class Wiki:
    """A source of skills."""

    id = "additional:wiki"
    roots: tuple[Path, ...] = ()  # no folder that could be watched

    def __init__(self, pages: Mapping[str, bytes]) -> None:
        self._pages = pages

    async def scan(self) -> Scan:
        """List the skills; what is wrong with one is a problem beside the others."""
        # What others wrote needs trust before it may act; reading it needs none.
        where = Provenance(origin=Origin.ADDITIONAL, source_id=self.id, needs_trust=True)
        read = [parse_skill(page, folder=name, provenance=where) for name, page in self._all()]
        return Scan(
            skills=tuple(one.skill for one in read if one.skill),
            problems=tuple(problem for one in read for problem in one.problems),
        )

    async def content(self, skill: Skill, arguments: str = "") -> SkillContent:
        """Read the body."""
        opened = parse_document(self._pages[skill.name])
        if not isinstance(opened, tuple):
            raise SourceError(opened.message, source=self.id)
        return SkillContent(skill=skill, body=opened[0].body)

    async def resource(self, skill: Skill, path: PurePosixPath) -> SkillResource:
        """Read a file beside SKILL.md; here are none."""
        raise SourceError(f"there is no {path}", source=self.id)

    async def close(self) -> None:
        """Let go of connections; here are none."""

    def _all(self) -> Sequence[tuple[str, bytes]]:
        return sorted(self._pages.items())


class WikiExtension:
    """The extension."""

    @hook
    def apexbridge_sources(self, project: Path) -> Sequence[SkillSource]:
        """Give the sources for a project."""
        return [Wiki(PAGES)]


async def main() -> None:
    """List what the source holds, and read it."""
    extensions = Extensions.installed()
    extensions.add(WikiExtension(), "wiki")
    async with Runtime.open(extensions=extensions) as runtime:
        tea = runtime.catalog.get("tea")
        content = await runtime.catalog.content(tea)
        print(tea.name, tea.provenance.source_id, content.body.strip())
        for problem in runtime.problems_of(tea):
            print("problem:", problem.message)
        found = await runtime.search("a pot of tea")
        print("found:", found.hits[0].name)


if __name__ == "__main__":
    anyio.run(main)
