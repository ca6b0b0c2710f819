"""Which skill wins when several sources know the name. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from apexbridge.skills.model import FolderId, Origin, Problem, Skill
from apexbridge.sources.base import Scan


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One skill a name, the skills they hide, and every problem of every source.

    Never changed once it is made: whoever holds one reads it without locks.
    """

    skills: tuple[Skill, ...] = ()
    shadowed: tuple[Skill, ...] = ()
    problems: tuple[Problem, ...] = ()
    by_name: Mapping[str, Skill] = field(default_factory=dict[str, Skill])
    """The winners by folded name."""

    def winner(self, name: str) -> Skill | None:
        """The skill that has the name, whatever the case of its letters."""
        return self.by_name.get(name.casefold())


def merge(
    scans: Iterable[Scan], precedence: Sequence[Origin], problems: Iterable[Problem] = ()
) -> Snapshot:
    """Keep the skill of the strongest origin; among equals the source that was scanned first.

    A folder that several roots lead to counts once, for the strongest of them.
    """
    scans = tuple(scans)
    # What the operator manages is policy: no order of anyone's puts another above it.
    ranks = {**{origin: rank for rank, origin in enumerate(precedence)}, Origin.MANAGED: -1}
    weakest = len(precedence)
    every = [skill for scan in scans for skill in scan.skills]
    every.sort(key=lambda skill: ranks.get(skill.provenance.origin, weakest))
    winners, shadowed, seen = dict[str, Skill](), list[Skill](), set[FolderId]()
    for skill in every:
        if skill.folder_id is not None:
            if skill.folder_id in seen:
                continue
            seen.add(skill.folder_id)
        if winners.setdefault(skill.name.casefold(), skill) is not skill:
            shadowed.append(skill)
    told = [problem for scan in scans for problem in scan.problems]
    told += [_shadowing(skill, winners[skill.name.casefold()]) for skill in shadowed]
    return Snapshot(
        skills=tuple(sorted(winners.values(), key=lambda skill: skill.name)),
        shadowed=tuple(shadowed),
        problems=(*told, *problems),
        by_name=winners,
    )


def _shadowing(skill: Skill, winner: Skill) -> Problem:
    details = {
        "name": skill.name,
        "source": skill.provenance.source_id,
        "winner": winner.provenance.source_id,
    }
    return Problem(code="skill_shadowed", where=skill.name, severity="warning", details=details)
