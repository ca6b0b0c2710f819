"""Skills as those who look after them see them: version, state, size and findings, by pages."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

from apexbridge.catalog.snapshot import Snapshot, matches_text
from apexbridge.lifecycle.scan_results import ScanResultStore, ScanSummary
from apexbridge.skills.model import Skill

SkillState = Literal["enabled", "disabled", "shadowed"]

MAX_PAGE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ListFilter:
    """Which skills, and how many at a time."""

    text: str = ""
    """Stands in the name or the description, in whatever letters."""
    origin: str = ""
    without: str = ""
    """An origin whose skills are not wanted."""
    state: SkillState | Literal[""] = ""
    limit: int = 50
    after: str = ""
    """The `next` of the page before."""
    descending: bool = False
    """Whether the last name comes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSkill:
    """A skill, and what is known of it."""

    skill: Skill
    state: SkillState
    is_pinned: bool
    verdict: ScanSummary | None
    """None where nobody looked for what is dangerous in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillPage:
    """Some of the skills, by name."""

    items: tuple[ListedSkill, ...]
    total: int
    """How many there are on all pages."""
    next: str
    """What to ask for the next page with; empty after the last."""


def list_skills(
    snapshot: Snapshot, wanted: ListFilter, pinned: Collection[str], verdicts: ScanResultStore
) -> SkillPage:
    """The page that is asked for; skills that come or go between two pages shift nothing."""
    found = sorted(
        _filter_skills(snapshot, wanted),
        key=lambda pair: _sort_key(*pair),
        reverse=wanted.descending,
    )
    rest = [pair for pair in found if _is_past_cursor(pair[0].name, wanted)]
    room = max(1, min(wanted.limit, MAX_PAGE))
    while room < len(rest) and rest[room][0].name == rest[room - 1][0].name:
        room += 1  # those of one name stay together: the next page begins behind a name
    shown = rest[:room]
    items = tuple(
        ListedSkill(
            skill=skill,
            state=state,
            is_pinned=state != "shadowed" and skill.name in pinned,
            verdict=verdicts.get(skill.fingerprint.sha256) if skill.fingerprint else None,
        )
        for skill, state in shown
    )
    more = len(rest) > len(shown)
    return SkillPage(items=items, total=len(found), next=shown[-1][0].name if more else "")


def _filter_skills(snapshot: Snapshot, wanted: ListFilter) -> Iterator[tuple[Skill, SkillState]]:
    groups: dict[SkillState, tuple[Skill, ...]] = {
        "enabled": snapshot.skills,
        "disabled": snapshot.disabled,
        "shadowed": snapshot.shadowed,
    }
    for state, skills in groups.items():
        if wanted.state not in ("", state) or (not wanted.state and state == "shadowed"):
            continue
        for skill in skills:
            origin = skill.provenance.origin
            if origin == wanted.without or wanted.origin not in ("", origin):
                continue
            if matches_text(skill, wanted.text):
                yield skill, state


def _is_past_cursor(name: str, wanted: ListFilter) -> bool:
    if not wanted.after:
        return True
    return name < wanted.after if wanted.descending else name > wanted.after


def _sort_key(skill: Skill, state: SkillState) -> tuple[str, ...]:
    return skill.name, state, skill.provenance.source_id, str(skill.root or "")
