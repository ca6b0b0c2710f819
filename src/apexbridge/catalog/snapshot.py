"""Which skill wins when several sources know the name. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from apexbridge.skills import names
from apexbridge.skills.model import FolderId, Origin, Problem, Skill
from apexbridge.sources.base import Scan


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One skill a name, the skills they hide, and every problem of every source.

    Never changed once it is made: whoever holds one reads it without locks.
    """

    skills: tuple[Skill, ...] = ()
    shadowed: tuple[Skill, ...] = ()
    disabled: tuple[Skill, ...] = ()
    """Those that somebody switched off; what they hide stays hidden."""
    problems: tuple[Problem, ...] = ()
    by_name: Mapping[str, Skill] = field(default_factory=dict[str, Skill])
    """The winners by folded name, see `fold`."""

    def winner(self, name: str) -> Skill | None:
        """The skill that has the name, whatever the case and the form of its letters."""
        return self.by_name.get(name) or self.by_name.get(casefold_name(name))


def casefold_name(name: str) -> str:
    """What two names have in common that nobody can tell apart.

    >>> fold("ＰＤＦ") == fold("pdf")
    True
    """
    return names.normalise(names.normalise(name).casefold())


def matches_text(skill: Skill, text: str) -> bool:
    """Say whether a text stands in a skill's name or description, in whatever letters."""
    wanted = casefold_name(text)
    return wanted in casefold_name(skill.name) or wanted in casefold_name(skill.summary)


def without_disabled(snapshot: Snapshot, names: Collection[str]) -> Snapshot:
    """The same without the skills of these names."""
    off = {casefold_name(name) for name in names}
    if off.isdisjoint(snapshot.by_name):
        return snapshot
    return replace(
        snapshot,
        skills=tuple(s for s in snapshot.skills if casefold_name(s.name) not in off),
        disabled=tuple(s for s in snapshot.skills if casefold_name(s.name) in off),
        by_name={name: s for name, s in snapshot.by_name.items() if name not in off},
    )


def merge_scans(
    scans: Iterable[Scan], precedence: Sequence[Origin], problems: Iterable[Problem] = ()
) -> Snapshot:
    """Keep the skill of the strongest origin; among equals the source that was scanned first.

    A folder that several roots lead to counts once, for the strongest of them; one of the user's
    own stays so, even if a project leads to it as well.
    """
    scans = tuple(scans)
    # What the operator manages is policy: no order of anyone's puts another above it.
    ranks = {**{origin: rank for rank, origin in enumerate(precedence)}, Origin.MANAGED: -1}
    weakest = len(precedence)
    every = [skill for scan in scans for skill in scan.skills]
    every.sort(key=lambda skill: ranks.get(skill.provenance.origin, weakest))
    own = {skill.folder_id for skill in every if not skill.provenance.needs_trust}
    winners, shadowed, seen = dict[str, Skill](), list[Skill](), set[FolderId]()
    for skill in every:
        if skill.folder_id is not None:
            is_lent = skill.provenance.needs_trust and skill.folder_id in own
            if is_lent or skill.folder_id in seen:
                continue
            seen.add(skill.folder_id)
        if winners.setdefault(casefold_name(skill.name), skill) is not skill:
            shadowed.append(skill)
    told = [problem for scan in scans for problem in scan.problems]
    told += [_shadow_problem(skill, winners[casefold_name(skill.name)]) for skill in shadowed]
    return Snapshot(
        skills=tuple(sorted(winners.values(), key=lambda skill: skill.name)),
        shadowed=tuple(shadowed),
        problems=(*told, *problems),
        by_name=winners,
    )


def _shadow_problem(skill: Skill, winner: Skill) -> Problem:
    details = {
        "name": skill.name,
        "source": skill.provenance.source_id,
        "winner": winner.provenance.source_id,
    }
    return Problem(code="skill_shadowed", where=skill.name, severity="warning", details=details)
