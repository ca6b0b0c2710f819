"""Skills, looked at: listed, searched, read and downloaded."""

from dataclasses import asdict
from pathlib import PurePosixPath
from typing import Literal
from urllib.parse import quote

import anyio.to_thread
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from apexbridge import locales
from apexbridge.errors import RetrievalError, SourceError
from apexbridge.lifecycle.skill_list import MAX_PAGE, ListFilter
from apexbridge.retrieval.results import Hit
from apexbridge.server.routing import RequestContext
from apexbridge.server.skills.presenters import (
    SKILL_ID,
    json_response,
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
    SkillTextSchema,
    TrashedSkillSchema,
    TrashSchema,
)
from apexbridge.skills import tree
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.model import Origin, Skill

ZIP = "application/zip"
_NO_ORIGIN = "\0"
"""An origin that no skill has."""
_DAY = 86_400


class ListQuery(BaseModel):
    """Which skills, and how many at a time."""

    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True)

    limit: int = Field(default=50, ge=1, le=MAX_PAGE)
    after: str = Field(default="", max_length=200)
    """The id or name of the last skill of the page before."""
    page: str = Field(default="", max_length=200)
    """The `next_page` of the page before."""
    order: Literal["asc", "desc"] = "asc"
    """By name."""
    text: str = Field(default="", max_length=1_000)
    """Stands in the name or the description, in whatever letters."""
    origin: str = Field(default="", max_length=100)
    state: Literal["", "enabled", "disabled", "shadowed"] = ""
    """Those that others hide are shown only if they are asked for."""
    source: str = Field(default="", max_length=100)
    """`custom` or `plugin`, as a vendor's clients ask."""


class SearchQuery(BaseModel):
    """What is wanted; the same in English and in Chinese helps where there is one."""

    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True)

    query: str = Field(min_length=1, max_length=4_000)
    query_en: str = Field(default="", max_length=4_000)
    query_zh: str = Field(default="", max_length=4_000)
    limit: int = Field(default=5, ge=1, le=100)


async def list_skills(call: RequestContext) -> Response:
    """A page of skills, by name."""
    asked = call.query(ListQuery)
    wanted = ListFilter(
        text=asked.text,
        origin=_origin_filter(asked),
        without=Origin.PLUGIN if asked.source == "custom" else "",
        state=asked.state,
        limit=asked.limit,
        after=strip_id_prefix(call.runtime, asked.page or asked.after),
        descending=asked.order == "desc",
    )
    page = await call.runtime.manager.list(wanted)
    data = await present_skills(call.runtime, page.items)
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


def _origin_filter(asked: ListQuery) -> str:
    """What a vendor calls source is a plugin, one's own, or that vendor's, of which are none."""
    if asked.source in {"", "custom"}:
        return asked.origin
    return Origin.PLUGIN if asked.source == "plugin" else _NO_ORIGIN


async def search(call: RequestContext) -> Response:
    """The skills that fit a request best, with what their scores are made of."""
    asked = call.query(SearchQuery)
    found = await call.runtime.search(
        asked.query,
        query_en=asked.query_en or None,
        query_zh=asked.query_zh or None,
        limit=asked.limit,
    )
    said = {skill.name: skill.summary for skill in call.runtime.catalog.snapshot.skills}
    return json_response(
        SearchSchema(
            query=asked.query,
            confidence=round(found.confidence, 4),
            threshold=call.runtime.config.settings.index.threshold,
            searched=found.searched,
            problem=_notice(found.problem, request_language(call)),
            hits=[_hit(at, hit, said.get(hit.name, "")) for at, hit in enumerate(found.hits, 1)],
        )
    )


def _hit(rank: int, hit: Hit, description: str) -> HitSchema:
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
        parts=ScorePartsSchema.model_validate(parts),
    )


def _notice(problem: RetrievalError | None, language: locales.Language) -> NoticeSchema | None:
    if problem is None:
        return None
    said = problem.localized(language)
    return NoticeSchema(code=problem.code, message=said.message, hint=said.hint)


async def retrieve(call: RequestContext) -> Response:
    """One skill; a client that has its state already is told so."""
    skill = skill_from_path(call)
    shown = await present_skill(call.runtime, skill)
    etag = make_etag(shown.sha256)
    if shown.sha256 and etag in call.request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers={"ETag": etag})
    return json_response(shown, ETag=etag)


async def read_text(call: RequestContext) -> Response:
    """SKILL.md as it is written, and what lies beside it."""
    skill = skill_from_path(call)
    sha256 = skill.fingerprint.sha256 if skill.fingerprint else ""
    files = await anyio.to_thread.run_sync(_files, skill)
    text = await _text(call, skill)
    shape = SkillTextSchema(
        id=f"{SKILL_ID}{skill.name}", name=skill.name, text=text, files=files, sha256=sha256
    )
    return json_response(shape, ETag=make_etag(sha256))


async def _text(call: RequestContext, skill: Skill) -> str:
    source = call.runtime.catalog.source_of(skill).source
    try:
        resource = await source.resource(skill, PurePosixPath(SKILL_MD))
    except SourceError:  # a source that has no files has a text all the same
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


async def content(call: RequestContext) -> Response:
    """A skill as a zip that installs elsewhere."""
    skill = skill_from_path(call)
    data = await call.runtime.manager.export(skill.name)
    return zip_response(data, skill.name, skill.fingerprint.sha256 if skill.fingerprint else "")


def zip_response(data: bytes, name: str, sha256: str) -> Response:
    """A zip to be saved under a skill's name, in whatever letters that is written."""
    headers = {
        "ETag": make_etag(sha256),
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}.zip",
    }
    return Response(data, headers=headers, media_type=ZIP)


async def trash(call: RequestContext) -> Response:
    """What can be brought back."""
    gone = await anyio.to_thread.run_sync(call.runtime.store.trash.list)
    keep = call.runtime.config.settings.skills.undo_days * _DAY
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
