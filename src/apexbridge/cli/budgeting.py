"""`ls --budget`: what of each skill a model is told, and what does not fit."""

import time

import anyio
import anyio.to_thread

from apexbridge.catalog.listing import Listing, ListingBudget, render
from apexbridge.catalog.waking import Waking
from apexbridge.cli.output import Out
from apexbridge.runtime import Runtime


def show_budget(out: Out, *, window: int, request: str) -> None:
    """Make the listing as a fresh session would get it, and tell what became of each skill."""
    budget = ListingBudget.for_window(window)
    listing = anyio.run(_listing, out, budget, request)

    def draw() -> None:
        heads = [out.word("name"), out.word("extent"), out.word("characters")]
        rows = [
            (skill.name, out.word(f"extent_{skill.extent}"), f"{skill.kept}/{skill.chars}")
            for skill in listing.skills
        ]
        if rows:
            out.table(heads, rows)
        used, room = len(listing.text), budget.total_chars
        out.line(out.word("budget_used", used=used, room=room, window=window))
        if listing.is_cut:
            out.line(out.word("budget_cut", count=len(listing.skills) - len(listing.names("full"))))

    data = {
        "window": window,
        "budget": budget.total_chars,
        "used": len(listing.text),
        "skills": [skill._asdict() for skill in listing.skills],
        "text": listing.text,
    }
    out.finish(data, draw)


async def _listing(out: Out, budget: ListingBudget, request: str) -> Listing:
    async with Runtime.open(out.loaded) as runtime:
        awake = Waking(out.loaded.project).visible(runtime.catalog.snapshot.skills)
        usage = await anyio.to_thread.run_sync(runtime.usage.scores, time.time())
        relevance = dict[str, float]()
        if request:
            results = await runtime.search(request, limit=len(awake) or 1)
            relevance = {hit.name: hit.score for hit in results.hits}
        return render(awake, budget, relevance=relevance, usage=usage)
