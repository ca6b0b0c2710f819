"""`ls --long` and `ls --budget`: paginated details, and the listing budget of a model."""

import time
from collections.abc import Mapping

import anyio
import anyio.to_thread

from apexbridge.catalog.listing_budget import Listing, ListingBudget, render_listing
from apexbridge.catalog.path_activation import PathActivation
from apexbridge.cli.output import Output
from apexbridge.cli.runtime_call import with_runtime
from apexbridge.lifecycle.skill_list import ListedSkill, ListFilter, SkillPage
from apexbridge.lifecycle.source_records import SourceRecord, display_source
from apexbridge.runtime import Runtime


def ls_long(out: Output, *, text: str, origin: str, after: str, limit: int) -> None:
    """Print one page of skills."""
    wanted = ListFilter(text=text, origin=origin, after=after, limit=limit)

    async def load(runtime: Runtime) -> tuple[SkillPage, dict[str, SourceRecord]]:
        records = await anyio.to_thread.run_sync(runtime.manager.sources.all)
        return await runtime.manager.list(wanted), records

    page, records = with_runtime(out, load)
    keys = (
        "name", "version", "origin", "state", "field_size", "findings", "field_source",
        "description",
    )  # fmt: skip

    def draw() -> None:
        if not page.items:
            out.line(out.text("no_skills"))
            return
        out.table(
            [out.text(key) for key in keys], [_row(out, item, records) for item in page.items]
        )
        if page.next:
            out.line(out.text("page_more", after=page.next, total=page.total))

    data = {
        "skills": [_as_json(item, records) for item in page.items],
        "total": page.total,
        "next": page.next or None,
    }
    out.finish(data, draw)


def _row(out: Output, item: ListedSkill, records: Mapping[str, SourceRecord]) -> tuple[str, ...]:
    skill = item.skill
    held = [out.text("state_disabled")] if item.state == "disabled" else []
    held += [out.text("state_pinned")] if item.is_pinned else []
    return (
        skill.name,
        skill.manifest.version or "",
        skill.provenance.origin,
        ", ".join(held),
        str(skill.fingerprint.size) if skill.fingerprint else "",
        _findings(out, item),
        display_source(record.source) if (record := _record(item, records)) else "",
        skill.summary,
    )


def _findings(out: Output, item: ListedSkill) -> str:
    if item.scan is None:
        return "-"
    said = (f"{out.text(f'level_{level}')} {n}" for level, n in item.scan.counts.items())
    return ", ".join(said) or "0"


def _record(item: ListedSkill, records: Mapping[str, SourceRecord]) -> SourceRecord | None:
    """Return where an installed skill came from; another source's skill may have its name."""
    is_own = item.skill.provenance.writable and item.state != "shadowed"
    return records.get(item.skill.name) if is_own else None


def _as_json(item: ListedSkill, records: Mapping[str, SourceRecord]) -> dict[str, object]:
    skill, record = item.skill, _record(item, records)
    return {
        "name": skill.name,
        "description": skill.description,
        "version": skill.manifest.version,
        "origin": skill.provenance.origin,
        "state": item.state,
        "pinned": item.is_pinned,
        "size": skill.fingerprint.size if skill.fingerprint else None,
        "sha256": skill.fingerprint.sha256 if skill.fingerprint else None,
        "findings": item.scan.model_dump() if item.scan else None,
        "installed_from": record.model_dump() if record else None,
    }


def ls_budget(out: Output, *, window: int, request: str) -> None:
    """Build the listing of a new session, and print how much of each skill fits the budget."""
    cap = out.config.settings.agent.listing_description_chars
    budget = ListingBudget.for_window(window, cap)
    listing = anyio.run(_listing, out, budget, request)

    def draw() -> None:
        heads = [out.text("name"), out.text("extent"), out.text("characters")]
        rows = [
            (skill.name, out.text(f"extent_{skill.extent}"), f"{skill.kept}/{skill.chars}")
            for skill in listing.skills
        ]
        if rows:
            out.table(heads, rows)
        used, room = len(listing.text), budget.total_chars
        out.line(out.text("budget_used", used=used, room=room, window=window))
        if listing.is_cut:
            out.line(out.text("budget_cut", count=len(listing.skills) - len(listing.names("full"))))

    data = {
        "window": window,
        "budget": budget.total_chars,
        "used": len(listing.text),
        "skills": [skill._asdict() for skill in listing.skills],
        "text": listing.text,
    }
    out.finish(data, draw)


async def _listing(out: Output, budget: ListingBudget, request: str) -> Listing:
    async with Runtime.open(out.config) as runtime:
        awake = PathActivation(out.config.project).visible(runtime.catalog.snapshot.skills)
        usage = await anyio.to_thread.run_sync(runtime.usage.scores, time.time())
        relevance = dict[str, float]()
        if request:
            results = await runtime.search(request, limit=len(awake) or 1)
            named = ((hit, name) for hit in results.hits for name in (hit.name, *hit.alike))
            relevance = {name: hit.score for hit, name in named}
        return render_listing(awake, budget, relevance=relevance, usage=usage)
