"""Read endpoints of the skills API: list, search, show and download."""

from dataclasses import asdict
from pathlib import PurePosixPath
from typing import Literal
from urllib.parse import quote

import anyio.to_thread
from pydantic import Field
from starlette.responses import Response

from apexbridge import locales
from apexbridge.errors import RetrievalError, SourceError
from apexbridge.lifecycle.skill_list import MAX_PAGE, ListFilter
from apexbridge.lifecycle.transactions import sha256_of
from apexbridge.retrieval.results import Hit, Match
from apexbridge.runtime.hidden_paths import hide_paths
from apexbridge.server.routing import QueryModel, RequestContext, Router, json_response
from apexbridge.server.skills.presenters import (
    SKILL_ID,
    make_etag,
    present_skill,
    present_skills,
    request_language,
    skill_from_path,
    strip_id_prefix,
)
from apexbridge.server.skills.schemas import (
    FileSchema,
    HitSchema,
    NoticeSchema,
    ScorePartsSchema,
    SearchSchema,
    SkillListSchema,
    SkillSchema,
    SkillTextSchema,
    TrashedSkillSchema,
    TrashSchema,
)
from apexbridge.skills import tree
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.model import Origin, Skill

ZIP = "application/zip"
_NO_ORIGIN = "\0"
"""Origin that matches no skill."""
_DAY = 86_400

router = Router("/v1/skills", scope="skills:read")


class ListQuery(QueryModel):
    """Filter and pagination of the skill list."""

    limit: int = Field(default=50, ge=1, le=MAX_PAGE)
    after: str = Field(default="", max_length=200)
    """Cursor: id or name of the last skill of the previous page."""
    page: str = Field(default="", max_length=200)
    """Cursor: `next_page` of the previous page."""
    order: Literal["asc", "desc"] = "asc"
    """Sort order by name."""
    text: str = Field(default="", max_length=1_000)
    """Case-insensitive substring of the name or description."""
    origin: str = Field(default="", max_length=100)
    state: Literal["", "enabled", "disabled", "shadowed"] = ""
    """Shadowed skills are listed only on request."""
    source: str = Field(default="", max_length=100)
    """`custom` or `plugin`, as in Anthropic's API."""


class SearchQuery(QueryModel):
    """Search query; translations to English and Chinese improve the results."""

    query: str = Field(min_length=1, max_length=4_000)
    query_en: str = Field(default="", max_length=4_000)
    query_zh: str = Field(default="", max_length=4_000)
    limit: int = Field(default=5, ge=1, le=100)


@router.get("", query=ListQuery, response=SkillListSchema)
async def list_skills(ctx: RequestContext) -> Response:
    """List a page of skills."""
    query = ctx.query(ListQuery)
    wanted = ListFilter(
        text=query.text,
        origin=_origin_filter(query),
        without=Origin.PLUGIN if query.source == "custom" else "",
        state=query.state,
        limit=query.limit,
        after=strip_id_prefix(ctx.runtime, query.page or query.after),
        descending=query.order == "desc",
    )
    page = await ctx.runtime.manager.list(wanted)
    data = await present_skills(ctx.runtime, page.items)
    return json_response(
        SkillListSchema(
            data=data,
            has_more=bool(page.next),
            first_id=data[0].id if data else None,
            last_id=data[-1].id if data else None,
            next_page=page.next or None,
            total=page.total,
        )
    )


def _origin_filter(query: ListQuery) -> str:
    """Map Anthropic's `source` to an origin; there are no skills of the vendor."""
    if query.source in {"", "custom"}:
        return query.origin
    return Origin.PLUGIN if query.source == "plugin" else _NO_ORIGIN


@router.get("/search", query=SearchQuery, response=SearchSchema, errors=(503,))
async def search(ctx: RequestContext) -> Response:
    """Search skills by meaning, with the components of each score."""
    query = ctx.query(SearchQuery)
    found = await ctx.runtime.search(
        query.query,
        query_en=query.query_en or None,
        query_zh=query.query_zh or None,
        limit=query.limit,
    )
    summaries = {skill.name: skill.summary for skill in ctx.runtime.catalog.snapshot.skills}
    threshold = ctx.runtime.config.settings.index.threshold
    return json_response(
        SearchSchema(
            query=query.query,
            confidence=round(found.confidence, 4),
            threshold=threshold,
            searched=found.searched,
            problem=_notice(found.problem, request_language(ctx)),
            hits=[
                _hit(rank, hit, summaries.get(hit.name, ""), hit.match(threshold))
                for rank, hit in enumerate(found.hits, 1)
            ],
        )
    )


def _hit(rank: int, hit: Hit, description: str, match: Match) -> HitSchema:
    parts = {
        key: round(value, 4) if isinstance(value, float) else value
        for key, value in asdict(hit.parts).items()
    }
    parts["words"] = {word: round(share, 4) for word, share in hit.parts.words.items()}
    return HitSchema(
        rank=rank,
        id=f"{SKILL_ID}{hit.name}",
        name=hit.name,
        description=description,
        score=round(hit.score, 4),
        match=match,
        alike=list(hit.alike),
        kind=hit.kind,
        parts=ScorePartsSchema.model_validate(parts),
    )


def _notice(problem: RetrievalError | None, language: locales.Language) -> NoticeSchema | None:
    if problem is None:
        return None
    text = problem.localized(language)
    return NoticeSchema(
        code=problem.code, message=hide_paths(text.message), hint=hide_paths(text.hint)
    )


@router.get("/{id}", response=SkillSchema, headers=("If-None-Match",), errors=(304, 404))
async def retrieve(ctx: RequestContext) -> Response:
    """Show a skill; HTTP 304 if the client's ETag is current."""
    skill = skill_from_path(ctx)
    shown = await present_skill(ctx.runtime, skill)
    etag = make_etag(shown.sha256)
    if shown.sha256 and etag in ctx.request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers={"ETag": etag})
    return json_response(shown, ETag=etag)


@router.get("/{id}/text", response=SkillTextSchema, errors=(404, 502))
async def read_text(ctx: RequestContext) -> Response:
    """Show the source text of SKILL.md, and the list of files."""
    skill = skill_from_path(ctx)
    sha256 = sha256_of(skill)
    files = await anyio.to_thread.run_sync(_files, skill)
    text = await _text(ctx, skill)
    shape = SkillTextSchema(
        id=f"{SKILL_ID}{skill.name}", name=skill.name, text=text, files=files, sha256=sha256
    )
    return json_response(shape, ETag=make_etag(sha256))


async def _text(ctx: RequestContext, skill: Skill) -> str:
    source = ctx.runtime.catalog.source_of(skill).source
    try:
        resource = await source.resource(skill, PurePosixPath(SKILL_MD))
    except SourceError:  # a source without files still has the text
        return (await source.content(skill)).body
    return resource.data.decode("utf-8", "replace")


def _files(skill: Skill) -> list[FileSchema]:
    if skill.root is None:
        return []
    found = (entry for entry in tree.entries(skill.root) if entry.kind == "file")
    return [
        FileSchema(path=str(entry.path), size=entry.size, executable=entry.executable)
        for entry in sorted(found, key=lambda entry: entry.path.as_posix())
        if not tree.is_junk(entry.path)
    ]


@router.get("/{id}/content", media_type=ZIP, errors=(404, 413, 422))
async def content(ctx: RequestContext) -> Response:
    """Download a skill as a zip archive."""
    skill = skill_from_path(ctx)
    data = await ctx.runtime.manager.export(skill.name)
    return zip_response(data, skill.name, sha256_of(skill))


def zip_response(data: bytes, name: str, sha256: str) -> Response:
    """Build an archive download; RFC 5987 encodes a name that is not ASCII."""
    headers = {
        "ETag": make_etag(sha256),
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}.zip",
    }
    return Response(data, headers=headers, media_type=ZIP)


@router.get("/trash", response=TrashSchema)
async def trash(ctx: RequestContext) -> Response:
    """List the removed skills that can be restored."""
    gone = await anyio.to_thread.run_sync(ctx.runtime.store.trash.list)
    keep = ctx.runtime.config.settings.skills.undo_days * _DAY
    return json_response(
        TrashSchema(
            data=[
                TrashedSkillSchema(
                    id=f"{SKILL_ID}{entry.name}",
                    name=entry.name,
                    removed_at=int(entry.at),
                    expires_at=int(entry.at + keep),
                )
                for entry in gone
            ]
        )
    )
