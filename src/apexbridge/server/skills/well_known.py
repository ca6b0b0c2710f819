"""Well-known skill index: publishes the whole skills of this host to other hosts and programs.

`sources.remote.discovery` is its client. A skill with further files is an archive (Agent Skills
discovery 0.2.0); the index of 0.1 lists them one by one, for older programs. Nothing is served that
does not match the digest in the index.
"""

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from urllib.parse import quote

import anyio.to_thread
from pydantic import Field
from starlette.responses import Response

from apexbridge.errors import ArchiveError, RequestError, SkillNotFoundError
from apexbridge.lifecycle.zip.archive import pack_skill
from apexbridge.regular_files import read_regular
from apexbridge.runtime import Runtime
from apexbridge.runtime.hidden_paths import hide_paths
from apexbridge.server.routing import RequestContext, Router
from apexbridge.server.skills.presenters import make_etag
from apexbridge.server.skills.schemas import ResponseModel
from apexbridge.skills import tree
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.model import Origin, Skill
from apexbridge.sources.remote.discovery import (
    LEGACY_WELL_KNOWN,
    MAX_ENTRIES,
    SCHEMA,
    WELL_KNOWN,
    is_url_path,
)

_BASE_PATH = WELL_KNOWN.removesuffix("/index.json")
_LEGACY_PATH = LEGACY_WELL_KNOWN.removesuffix("/index.json")
_MEDIA_TYPES = {".md": "text/markdown; charset=utf-8", ".zip": "application/zip"}
_BINARY = "application/octet-stream"
_PUBLISHED_ORIGINS = frozenset(
    {Origin.MANAGED, Origin.USER, Origin.PROJECT, Origin.INSTALLED, Origin.ADDITIONAL}
    | {Origin.BUNDLED}
)
"""Skills that came from another host are for that host to publish."""
_SPEC_NAME = re.compile(r"(?=.{1,64}\Z)[a-z0-9]+(-[a-z0-9]+)*")
"""Names of the specification: clients of 0.1 refuse a whole index for any other."""
_MAX_DESCRIPTION = 1_024

router = Router(scope=None)


class IndexSkillSchema(ResponseModel):
    """Published skill: one SKILL.md, or an archive of all of its files."""

    name: str
    type: str
    description: str
    url: str
    digest: str


class SkippedSkillSchema(ResponseModel):
    """Skill that is not published, and why. Other programs ignore this field."""

    name: str
    reason: str


class SkillIndexSchema(ResponseModel):
    """Index of published skills, Agent Skills discovery 0.2.0."""

    schema_id: str = Field(default=SCHEMA, serialization_alias="$schema")
    skills: list[IndexSkillSchema]
    skipped: list[SkippedSkillSchema]


class LegacySkillSchema(ResponseModel):
    """Published skill and the paths of its files."""

    name: str
    description: str
    files: list[str]


class LegacyIndexSchema(ResponseModel):
    """Index of published skills, Agent Skills discovery 0.1."""

    skills: list[LegacySkillSchema]
    skipped: list[SkippedSkillSchema]


@router.get(WELL_KNOWN, response=SkillIndexSchema, errors=(401, 403))
async def index(ctx: RequestContext) -> Response:
    """Serve the index."""
    _require_read(ctx)
    return await anyio.to_thread.run_sync(_index_response, _published_skills(ctx.runtime))


@router.get(LEGACY_WELL_KNOWN, response=LegacyIndexSchema, errors=(401, 403))
async def legacy_index(ctx: RequestContext) -> Response:
    """Serve the index of discovery 0.1, which lists every file."""
    _require_read(ctx)
    return await anyio.to_thread.run_sync(_legacy_response, _published_skills(ctx.runtime))


@router.get(f"{_BASE_PATH}/{{name}}.zip", media_type="application/zip", errors=(401, 403, 404))
async def archive(ctx: RequestContext) -> Response:
    """Serve a skill that the index lists as an archive."""
    skill = _published_skill(ctx)
    published = await anyio.to_thread.run_sync(_publish, skill)
    if published.digest:
        data = await anyio.to_thread.run_sync(_pack, skill.root)
        if _digest(data) == published.digest:
            return _attachment(data, ".zip")
    raise RequestError(code="route_unknown", path=ctx.request.url.path)


@router.get(f"{_BASE_PATH}/{{name}}/{{path:path}}", media_type=_BINARY, errors=(401, 403, 404))
async def file(ctx: RequestContext) -> Response:
    """Serve a file of a skill that the index lists."""
    path = ctx.path_param("path")
    data = await anyio.to_thread.run_sync(_read_file, _published_skill(ctx), path)
    if data is None:
        raise RequestError(code="route_unknown", path=ctx.request.url.path)
    return _attachment(data, PurePosixPath(path).suffix)


@router.get(f"{_LEGACY_PATH}/{{name}}/{{path:path}}", media_type=_BINARY, errors=(401, 403, 404))
async def legacy_file(ctx: RequestContext) -> Response:
    """Serve a file of a skill where discovery 0.1 has it."""
    return await file(ctx)


def _attachment(data: bytes, suffix: str) -> Response:
    # Stored XSS: HTML of a skill must not run in our origin.
    headers = {"Content-Disposition": "attachment"}
    return Response(data, headers=headers, media_type=_MEDIA_TYPES.get(suffix, _BINARY))


def _require_read(ctx: RequestContext) -> None:
    """Require the scope `skills:read`, unless the settings make the index public."""
    if ctx.state.settings.public_index or ctx.caller.has_scope("skills:read"):
        return
    code = "scope_missing" if ctx.caller.id else "key_missing"
    raise RequestError(code=code, scope="skills:read")


def _published_skills(runtime: Runtime) -> list[Skill]:
    return [
        skill
        for skill in runtime.catalog.snapshot.skills
        if skill.provenance.origin in _PUBLISHED_ORIGINS
        and skill.root is not None
        and skill.fingerprint
    ]


def _published_skill(ctx: RequestContext) -> Skill:
    _require_read(ctx)
    name = ctx.path_param("name")
    for skill in _published_skills(ctx.runtime):
        if skill.name == name:
            return skill
    raise SkillNotFoundError(name[:200])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Published:
    """Digests of what is served of a skill; a reason if it cannot be published."""

    files: tuple[tuple[str, str], ...] = ()
    digest: str = ""
    """Digest of the archive; empty for a skill that is SKILL.md alone."""
    reason: str = ""


def _index_response(skills: list[Skill]) -> Response:
    listed, skipped = list[IndexSkillSchema](), list[SkippedSkillSchema]()
    for skill in skills:
        published = _publish(skill)
        if published.reason or len(listed) == MAX_ENTRIES:
            reason = published.reason or f"the index has {MAX_ENTRIES} skills"
            skipped.append(SkippedSkillSchema(name=skill.name, reason=reason))
            continue
        place = f"{_BASE_PATH}/{quote(skill.name, safe='')}"
        listed.append(
            IndexSkillSchema(
                name=skill.name,
                type="archive" if published.digest else "skill-md",
                description=_shorten(skill.description),
                url=f"{place}.zip" if published.digest else f"{place}/{SKILL_MD}",
                digest=published.digest or dict(published.files)[SKILL_MD],
            )
        )
    return _json(SkillIndexSchema(skills=listed, skipped=skipped))


def _legacy_response(skills: list[Skill]) -> Response:
    listed, skipped = list[LegacySkillSchema](), list[SkippedSkillSchema]()
    for skill in skills:
        published = _publish(skill)
        files = [path for path, _ in published.files]
        reason = published.reason or _legacy_reason(skill.name, files)
        if reason or len(listed) == MAX_ENTRIES:
            reason = reason or f"the index has {MAX_ENTRIES} skills"
            skipped.append(SkippedSkillSchema(name=skill.name, reason=reason))
            continue
        listed.append(
            LegacySkillSchema(name=skill.name, description=_shorten(skill.description), files=files)
        )
    return _json(LegacyIndexSchema(skills=listed, skipped=skipped))


def _legacy_reason(name: str, files: list[str]) -> str:
    if not _SPEC_NAME.fullmatch(name):
        return "its name is not one of the specification"
    # 0.1 has no archives: a path that changes in a URL would be lost.
    unsafe = next((path for path in files if not is_url_path(path)), None)
    return f"the path of '{unsafe}' cannot stand in a URL" if unsafe else ""


def _json(shape: ResponseModel) -> Response:
    data = shape.model_dump_json(by_alias=True)
    mark = hashlib.sha256(data.encode()).hexdigest()
    return Response(data, headers={"ETag": make_etag(mark)}, media_type="application/json")


def _shorten(description: str) -> str:
    """Cut to the length of the specification, counted as JavaScript clients do (UTF-16)."""
    cut = description.encode("utf-16-le")[: 2 * _MAX_DESCRIPTION]
    return cut.decode("utf-16-le", "ignore")


def _read_file(skill: Skill, path: str) -> bytes | None:
    wanted = dict(_publish(skill).files).get(path)
    if wanted is None or skill.root is None:
        return None
    try:
        data = read_regular(skill.root / path)
    except OSError:
        return None
    return data if _digest(data) == wanted else None


def _publish(skill: Skill) -> _Published:
    if skill.root is None or skill.fingerprint is None:
        return _Published(reason="it has no files")
    return _publish_folder(skill.root, skill.fingerprint.sha256)


@lru_cache(maxsize=MAX_ENTRIES)
def _publish_folder(root: Path, _sha256: str) -> _Published:
    """Hash what is published of a folder; cached by content hash."""
    try:
        files = tuple(_digests(root))
        if SKILL_MD not in dict(files):
            return _Published(reason=f"it has no {SKILL_MD}")
        return _Published(files=files, digest=_digest(_pack(root)) if len(files) > 1 else "")
    except ArchiveError as error:
        return _Published(reason=hide_paths(error.message))
    except OSError as error:
        return _Published(reason=error.strerror or str(error))


def _digests(root: Path) -> list[tuple[str, str]]:
    found = list[tuple[str, str]]()
    for entry in sorted(tree.entries(root), key=lambda entry: entry.path.as_posix()):
        if entry.kind == "file" and not tree.is_junk(entry.path):
            found.append((entry.path.as_posix(), _digest(read_regular(root / entry.path))))
    return found


def _pack(root: Path | None) -> bytes:
    """Pack all files of a skill with SKILL.md at the root of the archive."""
    return b"" if root is None else pack_skill(root, "", with_evals=True)


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
