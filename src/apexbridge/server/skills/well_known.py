"""Well-known skill index: publishes the skills of this host, and their files, to other hosts.

`sources.discovery` is its client. A file is served only while it matches the digest in the index.
"""

import hashlib
from functools import lru_cache
from pathlib import Path, PurePosixPath
from urllib.parse import quote

import anyio.to_thread
from pydantic import Field
from starlette.responses import Response

from apexbridge.errors import RequestError, SkillNotFoundError
from apexbridge.runtime import Runtime
from apexbridge.server.routing import RequestContext, Router
from apexbridge.server.skills.presenters import make_etag
from apexbridge.server.skills.schemas import ResponseModel
from apexbridge.skills import tree
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.model import Origin, Skill
from apexbridge.sources.remote.discovery import (
    MAX_ENTRIES,
    MAX_FILES,
    SCHEMA,
    WELL_KNOWN,
    is_plain_path,
)

_BASE_PATH = WELL_KNOWN.removesuffix("/index.json")
_MEDIA_TYPES = {".md": "text/markdown; charset=utf-8"}
_BINARY = "application/octet-stream"
_PUBLISHED_ORIGINS = frozenset(
    {Origin.MANAGED, Origin.USER, Origin.PROJECT, Origin.INSTALLED, Origin.ADDITIONAL}
    | {Origin.BUNDLED}
)
"""Skills that came from another host are for that host to publish."""

router = Router(scope=None)


class IndexFileSchema(ResponseModel):
    """File of a skill; its URL is relative to that of SKILL.md."""

    path: str
    digest: str


class IndexSkillSchema(ResponseModel):
    """Published skill."""

    name: str
    type: str = "skill-md"
    description: str
    url: str
    digest: str
    files: list[IndexFileSchema]


class SkillIndexSchema(ResponseModel):
    """Index of published skills."""

    schema_id: str = Field(default=SCHEMA, serialization_alias="$schema")
    skills: list[IndexSkillSchema]


@router.get(WELL_KNOWN, response=SkillIndexSchema, errors=(401, 403))
async def index(ctx: RequestContext) -> Response:
    """Serve the index."""
    _require_read(ctx)
    skills = _published_skills(ctx.runtime)[:MAX_ENTRIES]
    listed = await anyio.to_thread.run_sync(lambda: [_index_entry(skill) for skill in skills])
    shape = SkillIndexSchema(skills=[each for each in listed if each is not None])
    data = shape.model_dump_json(by_alias=True)
    mark = hashlib.sha256(data.encode()).hexdigest()
    return Response(data, headers={"ETag": make_etag(mark)}, media_type="application/json")


@router.get(f"{_BASE_PATH}/{{name}}/{{path:path}}", media_type=_BINARY, errors=(401, 403, 404))
async def file(ctx: RequestContext) -> Response:
    """Serve a file that the index lists."""
    _require_read(ctx)
    name, path = ctx.path_param("name"), ctx.path_param("path")
    skill = next((skill for skill in _published_skills(ctx.runtime) if skill.name == name), None)
    if skill is None:
        raise SkillNotFoundError(name[:200])
    data = await anyio.to_thread.run_sync(_read_file, skill, path)
    if data is None:
        raise RequestError(code="route_unknown", path=ctx.request.url.path)
    kind = _MEDIA_TYPES.get(PurePosixPath(path).suffix, _BINARY)
    # Stored XSS: HTML of a skill must not run in our origin.
    headers = {"Content-Disposition": "attachment"}
    return Response(data, headers=headers, media_type=kind)


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


def _index_entry(skill: Skill) -> IndexSkillSchema | None:
    files = dict(_skill_digests(skill))
    digest = files.pop(SKILL_MD, None)
    if digest is None:
        return None
    return IndexSkillSchema(
        name=skill.name,
        description=skill.description,
        url=f"{_BASE_PATH}/{quote(skill.name, safe='')}/{SKILL_MD}",
        digest=digest,
        files=[IndexFileSchema(path=path, digest=digest) for path, digest in files.items()],
    )


def _read_file(skill: Skill, path: str) -> bytes | None:
    wanted = dict(_skill_digests(skill)).get(path)
    if wanted is None or skill.root is None:
        return None
    try:
        data = (skill.root / path).read_bytes()
    except OSError:
        return None
    return data if _digest(data) == wanted else None


def _skill_digests(skill: Skill) -> tuple[tuple[str, str], ...]:
    if skill.root is None or skill.fingerprint is None:
        return ()
    return _digests(skill.root, skill.fingerprint.sha256)


@lru_cache(maxsize=MAX_ENTRIES)
def _digests(root: Path, _sha256: str) -> tuple[tuple[str, str], ...]:
    """Hash the publishable files of a skill; cached by content hash."""
    found = list[tuple[str, str]]()
    for entry in sorted(tree.entries(root), key=lambda entry: entry.path.as_posix()):
        path = entry.path.as_posix()
        if entry.kind != "file" or tree.is_junk(entry.path) or not is_plain_path(path):
            continue
        if path == SKILL_MD or len(found) < MAX_FILES:
            found.append((path, _digest((root / entry.path).read_bytes())))
    return tuple(found)


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
