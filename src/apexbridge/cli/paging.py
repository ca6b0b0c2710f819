"""`ls --long`: skills with version, state, size and findings, by pages."""

import anyio

from apexbridge.cli.output import Out
from apexbridge.lifecycle.listing import Kept, Page, Wanted
from apexbridge.runtime import Runtime


def ls_long(out: Out, *, text: str, origin: str, after: str, limit: int) -> None:
    """Show one page."""

    async def asked() -> Page:
        async with Runtime.open(out.loaded) as runtime:
            wanted = Wanted(text=text, origin=origin, after=after, limit=limit)
            return await runtime.manager.list(wanted)

    page = anyio.run(asked)
    keys = ("name", "version", "origin", "state", "field_size", "findings", "description")

    def draw() -> None:
        if not page.items:
            out.line(out.word("no_skills"))
            return
        out.table([out.word(key) for key in keys], [_row(out, item) for item in page.items])
        if page.next:
            out.line(out.word("page_more", after=page.next, total=page.total))

    data = {
        "skills": [_as_json(item) for item in page.items],
        "total": page.total,
        "next": page.next or None,
    }
    out.finish(data, draw)


def _row(out: Out, item: Kept) -> tuple[str, ...]:
    skill = item.skill
    held = [out.word("state_disabled")] if item.state == "disabled" else []
    held += [out.word("state_pinned")] if item.is_pinned else []
    return (
        skill.name,
        skill.manifest.version or "",
        skill.provenance.origin,
        ", ".join(held),
        str(skill.fingerprint.size) if skill.fingerprint else "",
        _findings(out, item),
        skill.summary,
    )


def _findings(out: Out, item: Kept) -> str:
    if item.verdict is None:
        return "-"
    said = (f"{out.word(f'level_{level}')} {n}" for level, n in item.verdict.counts.items())
    return ", ".join(said) or "0"


def _as_json(item: Kept) -> dict[str, object]:
    skill = item.skill
    return {
        "name": skill.name,
        "description": skill.description,
        "version": skill.manifest.version,
        "origin": skill.provenance.origin,
        "state": item.state,
        "pinned": item.is_pinned,
        "size": skill.fingerprint.size if skill.fingerprint else None,
        "sha256": skill.fingerprint.sha256 if skill.fingerprint else None,
        "findings": item.verdict.model_dump() if item.verdict else None,
    }
