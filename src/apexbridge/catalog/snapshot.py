"""Catalog snapshot: merge the scans of all sources by precedence, one skill for each name."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from apexbridge.skills import names
from apexbridge.skills.model import FolderId, Origin, Problem, Skill
from apexbridge.sources.base import Scan


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Winning, shadowed and disabled skills, and the problems of all sources.

    Immutable, so that readers need no lock.
    """

    skills: tuple[Skill, ...] = ()
    shadowed: tuple[Skill, ...] = ()
    disabled: tuple[Skill, ...] = ()
    """Skills that were disabled; what they shadow stays shadowed."""
    problems: tuple[Problem, ...] = ()
    by_name: Mapping[str, Skill] = field(default_factory=dict[str, Skill])
    """Winners by folded name, see `casefold_name`."""

    def winner(self, name: str) -> Skill | None:
        """Return the skill of a name, ignoring case and Unicode form."""
        return self.by_name.get(name) or self.by_name.get(casefold_name(name))


def casefold_name(name: str) -> str:
    """Fold case and Unicode form of a name, so that look-alikes compare equal.

    >>> casefold_name("ＰＤＦ") == casefold_name("pdf")
    True
    """
    # Twice: case folding can produce a sequence that is not in normal form.
    return names.normalise(names.normalise(name).casefold())


def matches_text(skill: Skill, text: str) -> bool:
    """Say whether a skill's name or description contains a text, ignoring case."""
    wanted = casefold_name(text)
    return wanted in casefold_name(skill.name) or wanted in casefold_name(skill.summary)


def without_disabled(snapshot: Snapshot, names: Collection[str]) -> Snapshot:
    """Move the skills of these names from the winners to the disabled ones."""
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
    """Keep the skill of the origin with the highest precedence; among equals, the first source.

    A folder reachable from several roots counts once, for the root of highest precedence. A user's
    own folder stays the user's, even if a project links to it.
    """
    scans = tuple(scans)
    # Managed skills are operator policy: no configured precedence outranks them.
    ranks = {**{origin: rank for rank, origin in enumerate(precedence)}, Origin.MANAGED: -1}
    lowest = len(precedence)
    every = [skill for scan in scans for skill in scan.skills]
    every.sort(key=lambda skill: ranks.get(skill.provenance.origin, lowest))
    own = {skill.folder_id for skill in every if not skill.provenance.needs_trust}
    winners, shadowed, seen = dict[str, Skill](), list[Skill](), set[FolderId]()
    for skill in every:
        if skill.folder_id is not None:
            is_link_to_own = skill.provenance.needs_trust and skill.folder_id in own
            if is_link_to_own or skill.folder_id in seen:
                continue
            seen.add(skill.folder_id)
        if winners.setdefault(casefold_name(skill.name), skill) is not skill:
            shadowed.append(skill)
    found = [problem for scan in scans for problem in scan.problems]
    found += [_shadow_problem(skill, winners[casefold_name(skill.name)]) for skill in shadowed]
    return Snapshot(
        skills=tuple(sorted(winners.values(), key=lambda skill: skill.name)),
        shadowed=tuple(shadowed),
        problems=(*found, *problems),
        by_name=winners,
    )


def _shadow_problem(skill: Skill, winner: Skill) -> Problem:
    details = {
        "name": skill.name,
        "source": skill.provenance.source_id,
        "winner": winner.provenance.source_id,
    }
    return Problem(code="skill_shadowed", where=skill.name, severity="warning", details=details)
