"""Skills as those who look after them see them: version, state, size and findings, by pages."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

from apexbridge.catalog.merge import Snapshot, has_text
from apexbridge.lifecycle.verdicts import Verdict, Verdicts
from apexbridge.skills.model import Skill

State = Literal["enabled", "disabled", "shadowed"]

MAX_PAGE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which skills, and how many at a time."""

    text: str = ""
    """Stands in the name or the description, in whatever letters."""
    origin: str = ""
    without: str = ""
    """An origin whose skills are not wanted."""
    state: State | Literal[""] = ""
    limit: int = 50
    after: str = ""
    """The `next` of the page before."""
    descending: bool = False
    """Whether the last name comes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A skill, and what is known of it."""

    skill: Skill
    state: State
    is_pinned: bool
    verdict: Verdict | None
    """None where nobody looked for what is dangerous in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some of the skills, by name."""

    items: tuple[Kept, ...]
    total: int
    """How many there are on all pages."""
    next: str
    """What to ask for the next page with; empty after the last."""


def list_skills(
    snapshot: Snapshot, wanted: Wanted, pinned: Collection[str], verdicts: Verdicts
) -> Page:
    """The page that is asked for; skills that come or go between two pages shift nothing."""
    found = sorted(
        _matching(snapshot, wanted), key=lambda pair: _key(*pair), reverse=wanted.descending
    )
    rest = [pair for pair in found if _is_behind(pair[0].name, wanted)]
    room = max(1, min(wanted.limit, MAX_PAGE))
    while room < len(rest) and rest[room][0].name == rest[room - 1][0].name:
        room += 1  # those of one name stay together: the next page begins behind a name
    shown = rest[:room]
    items = tuple(
        Kept(
            skill=skill,
            state=state,
            is_pinned=state != "shadowed" and skill.name in pinned,
            verdict=verdicts.get(skill.fingerprint.sha256) if skill.fingerprint else None,
        )
        for skill, state in shown
    )
    more = len(rest) > len(shown)
    return Page(items=items, total=len(found), next=shown[-1][0].name if more else "")


def _matching(snapshot: Snapshot, wanted: Wanted) -> Iterator[tuple[Skill, State]]:
    groups: dict[State, tuple[Skill, ...]] = {
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
            if has_text(skill, wanted.text):
                yield skill, state


def _is_behind(name: str, wanted: Wanted) -> bool:
    if not wanted.after:
        return True
    return name < wanted.after if wanted.descending else name > wanted.after


def _key(skill: Skill, state: State) -> tuple[str, ...]:
    return skill.name, state, skill.provenance.source_id, str(skill.root or "")
