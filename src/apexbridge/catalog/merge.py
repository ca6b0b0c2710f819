"""Which skill wins when several sources know the name. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from apexbridge.skills.model import Origin, Problem, Skill
from apexbridge.sources.base import Scan


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """One skill a name, the skills they hide, and every problem of every source."""

    skills: tuple[Skill, ...] = ()
    shadowed: tuple[Skill, ...] = ()
    problems: tuple[Problem, ...] = ()


def merge(scans: Iterable[Scan], precedence: Sequence[Origin]) -> Merged:
    """Keep the skill of the strongest origin; among equals the source that was scanned first."""
    scans = tuple(scans)
    # What the operator manages is policy: no order of anyone's puts another above it.
    ranks = {**{origin: rank for rank, origin in enumerate(precedence)}, Origin.MANAGED: -1}
    weakest = len(precedence)
    every = [skill for scan in scans for skill in scan.skills]
    every.sort(key=lambda skill: ranks.get(skill.provenance.origin, weakest))
    winners, shadowed = dict[str, Skill](), list[Skill]()
    for skill in every:
        if winners.setdefault(skill.name.casefold(), skill) is not skill:
            shadowed.append(skill)
    problems = [problem for scan in scans for problem in scan.problems]
    problems += [_shadowing(skill, winners[skill.name.casefold()]) for skill in shadowed]
    return Merged(
        skills=tuple(sorted(winners.values(), key=lambda skill: skill.name)),
        shadowed=tuple(shadowed),
        problems=tuple(problems),
    )


def _shadowing(skill: Skill, winner: Skill) -> Problem:
    details = {
        "name": skill.name,
        "source": skill.provenance.source_id,
        "winner": winner.provenance.source_id,
    }
    return Problem(code="skill_shadowed", where=skill.name, severity="warning", details=details)
