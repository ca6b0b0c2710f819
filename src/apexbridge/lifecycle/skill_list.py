"""Skill list for administration: state, pin and scan summary, with filters and pagination."""

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
    """Filter and page of a list request."""

    text: str = ""
    """Substring of the name or description, ignoring case."""
    origin: str = ""
    without: str = ""
    """An excluded origin."""
    state: SkillState | Literal[""] = ""
    limit: int = 50
    after: str = ""
    """Cursor: `next` of the previous page."""
    descending: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSkill:
    """A skill with its administrative state."""

    skill: Skill
    state: SkillState
    is_pinned: bool
    scan: ScanSummary | None
    """None if it was never scanned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillPage:
    """One page of skills, sorted by name."""

    items: tuple[ListedSkill, ...]
    total: int
    """Number of skills on all pages."""
    next: str
    """Cursor of the next page; empty after the last."""


def list_skills(
    snapshot: Snapshot, wanted: ListFilter, pinned: Collection[str], scans: ScanResultStore
) -> SkillPage:
    """Return one page; cursors are names, so changes between two requests shift nothing."""
    found = sorted(
        _filter_skills(snapshot, wanted),
        key=lambda pair: _sort_key(*pair),
        reverse=wanted.descending,
    )
    rest = [pair for pair in found if _is_past_cursor(pair[0].name, wanted)]
    size = max(1, min(wanted.limit, MAX_PAGE))
    while size < len(rest) and rest[size][0].name == rest[size - 1][0].name:
        size += 1  # skills of one name stay on one page, because the cursor is a name
    shown = rest[:size]
    items = tuple(
        ListedSkill(
            skill=skill,
            state=state,
            is_pinned=state != "shadowed" and skill.name in pinned,
            scan=scans.get(skill.fingerprint.sha256) if skill.fingerprint else None,
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
