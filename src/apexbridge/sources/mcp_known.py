"""What a scan of an MCP server found, and who may be read of it. Pure."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from apexbridge.errors import SkillNotFoundError, SourceError
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.model import Problem, Provenance, Skill
from apexbridge.sources.mcp_prompts import OfferedPrompt, Prompt, offer_prompts
from apexbridge.sources.mcp_skills import ServedSkill, serve_skills

MAX_LISTED = 1_000
MAX_PAGES = 100

E = TypeVar("E")


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Skills and prompts by the names they go by here, and what was wrong with others."""

    skills: dict[str, ServedSkill] = field(default_factory=dict[str, ServedSkill])
    prompts: dict[str, OfferedPrompt] = field(default_factory=dict[str, OfferedPrompt])
    problems: tuple[Problem, ...] = ()

    def entry(self, skill: Skill) -> OfferedPrompt | ServedSkill:
        """What the server said of a skill.

        Raises:
            SkillNotFoundError: If it is not among them.
            SourceError: If the server says another thing of it now: nobody approved that.
        """
        entry = self.skills.get(skill.name) or self.prompts.get(skill.name)
        source = skill.provenance.source_id
        if entry is None or entry.skill.provenance.source_id != source:
            raise SkillNotFoundError(skill.name)
        if entry.skill.fingerprint != skill.fingerprint:
            raise mismatch(source, SKILL_MD, "it has changed since its listing")
        return entry


def mismatch(source: str, path: str, detail: str) -> SourceError:
    """The error for bytes that are not what was announced."""
    return SourceError(detail, code="digest_mismatch", source=source, path=path)


def know(
    entries: Iterable[Any], prompts: Iterable[Prompt], *, server: str, provenance: Provenance
) -> Known:
    """Make skills of all; a server may offer one thing both ways, and then its files win."""
    skills, wrong = serve_skills(entries, server=server, provenance=provenance)
    offered, odd = offer_prompts(prompts, server=server, provenance=provenance, taken=skills)
    return Known(skills=skills, prompts=offered, problems=(*wrong, *odd))


async def all_pages(
    page: Callable[[str | None], Awaitable[tuple[Sequence[E], str | None]]], where: str
) -> tuple[list[E], list[Problem]]:
    """Follow the pages of a list, not for ever."""
    found, cursor = list[E](), None
    for _ in range(MAX_PAGES):
        more, cursor = await page(cursor)
        found += more
        if cursor is None or len(found) > MAX_LISTED:
            break
    if cursor is None and len(found) <= MAX_LISTED:
        return found, []
    details = {"limit": min(MAX_LISTED, len(found))}
    cut = Problem(code="listing_limit", where=where, severity="warning", details=details)
    return found[:MAX_LISTED], [cut]
