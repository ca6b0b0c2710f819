"""ShipMyAgent section of the system prompt: folders with skills, and the first skills in them."""

from collections.abc import Callable
from dataclasses import dataclass

from apexbridge.catalog.catalog import Catalog
from apexbridge.catalog.prompt_formats import MAX_LISTED, skills_section
from apexbridge.catalog.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillsSection:
    """The Markdown text, and the skills that it names."""

    text: str = ""
    names: frozenset[str] = frozenset()


NO_SECTION = SkillsSection()


class SectionCache:
    """The section for the present catalog.

    It is the same for all sessions, and changes with the catalog only, because providers cache the
    beginning of a request. Skills that wait for their `paths` are announced when they are active.
    """

    def __init__(self, catalog: Catalog, is_denied: Callable[[str], bool]) -> None:
        self._catalog = catalog
        self._is_denied = is_denied
        self._snapshot: Snapshot | None = None
        self._section = NO_SECTION

    def get(self) -> SkillsSection:
        """Return the section, built anew if the catalog has changed."""
        snapshot = self._catalog.snapshot
        if self._snapshot is not snapshot:
            self._snapshot, self._section = snapshot, self._build(snapshot)
        return self._section

    def _build(self, snapshot: Snapshot) -> SkillsSection:
        skills = [
            skill
            for skill in snapshot.skills
            if not skill.is_conditional
            and not skill.manifest.disable_model_invocation
            and not self._is_denied(skill.name)
        ]
        used = {skill.provenance.source_id for skill in skills}
        states = (state for state in self._catalog.states if state.source_id in used)
        roots = [root for state in states for root in state.source.roots[:1]]
        return SkillsSection(
            text=skills_section(roots, skills).strip(),
            names=frozenset(skill.name for skill in skills[:MAX_LISTED]),
        )
