"""The index by which other hosts find the skills of this one, and the files that it lists.

It is what `sources.discovery` reads. A file is given only as the index told it: one that has
changed since is not there until the index is read again.
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
from apexbridge.server.base import Call, Route
from apexbridge.server.skills_shapes import Shape
from apexbridge.server.skills_showing import etag_of
from apexbridge.skills import tree
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.model import Origin, Skill
from apexbridge.sources.discovery import MAX_ENTRIES, MAX_FILES, SCHEMA, WELL_KNOWN, is_plain

_PLACE = WELL_KNOWN.removesuffix("/index.json")
_KINDS = {".md": "text/markdown; charset=utf-8"}
_ANY_KIND = "application/octet-stream"
_OURS = frozenset(
    {Origin.MANAGED, Origin.USER, Origin.PROJECT, Origin.INSTALLED, Origin.ADDITIONAL}
    | {Origin.BUNDLED}
)
"""What came from another host is that host's to give."""


class ListedFileShape(Shape):
    """A file beside SKILL.md; its address is relative to that of SKILL.md."""

    path: str
    digest: str


class ListedSkillShape(Shape):
    """A skill that can be had."""

    name: str
    type: str = "skill-md"
    description: str
    url: str
    digest: str
    files: list[ListedFileShape]


class IndexShape(Shape):
    """The skills that can be had."""

    schema_id: str = Field(default=SCHEMA, serialization_alias="$schema")
    skills: list[ListedSkillShape]


async def index(call: Call) -> Response:
    """List the skills that can be had."""
    _refuse_stranger(call)
    skills = _given(call.runtime)[:MAX_ENTRIES]
    listed = await anyio.to_thread.run_sync(lambda: [_listed(skill) for skill in skills])
    shape = IndexShape(skills=[each for each in listed if each is not None])
    data = shape.model_dump_json(by_alias=True)
    mark = hashlib.sha256(data.encode()).hexdigest()
    return Response(data, headers={"ETag": etag_of(mark)}, media_type="application/json")


async def file(call: Call) -> Response:
    """Give a file that the index lists."""
    _refuse_stranger(call)
    name, path = call.at("name"), call.at("path")
    skill = next((skill for skill in _given(call.runtime) if skill.name == name), None)
    if skill is None:
        raise SkillNotFoundError(name[:200])
    data = await anyio.to_thread.run_sync(_read, skill, path)
    if data is None:
        raise RequestError(code="route_unknown", path=call.request.url.path)
    kind = _KINDS.get(PurePosixPath(path).suffix, _ANY_KIND)
    headers = {"Content-Disposition": "attachment"}  # a page of a skill's is no page of ours
    return Response(data, headers=headers, media_type=kind)


def _refuse_stranger(call: Call) -> None:
    """Who has no key sees the index only where settings say that all may."""
    if call.house.settings.open_index or call.caller.may("skills:read"):
        return
    code = "scope_missing" if call.caller.id else "key_missing"
    raise RequestError(code=code, scope="skills:read")


def _given(runtime: Runtime) -> list[Skill]:
    return [
        skill
        for skill in runtime.catalog.snapshot.skills
        if skill.provenance.origin in _OURS and skill.root is not None and skill.fingerprint
    ]


def _listed(skill: Skill) -> ListedSkillShape | None:
    files = dict(_digests_of(skill))
    digest = files.pop(SKILL_MD, None)
    if digest is None:
        return None
    return ListedSkillShape(
        name=skill.name,
        description=skill.description,
        url=f"{_PLACE}/{quote(skill.name, safe='')}/{SKILL_MD}",
        digest=digest,
        files=[ListedFileShape(path=path, digest=digest) for path, digest in files.items()],
    )


def _read(skill: Skill, path: str) -> bytes | None:
    wanted = dict(_digests_of(skill)).get(path)
    if wanted is None or skill.root is None:
        return None
    try:
        data = (skill.root / path).read_bytes()
    except OSError:
        return None
    return data if _digest(data) == wanted else None


def _digests_of(skill: Skill) -> tuple[tuple[str, str], ...]:
    if skill.root is None or skill.fingerprint is None:
        return ()
    return _digests(skill.root, skill.fingerprint.sha256)


@lru_cache(maxsize=MAX_ENTRIES)
def _digests(root: Path, _sha256: str) -> tuple[tuple[str, str], ...]:
    """The files of one state that an index can list, each with its digest; read once a state."""
    found = list[tuple[str, str]]()
    for entry in sorted(tree.entries(root), key=lambda entry: entry.path.as_posix()):
        path = entry.path.as_posix()
        if entry.kind != "file" or tree.is_litter(entry.path) or not is_plain(path):
            continue
        if path == SKILL_MD or len(found) < MAX_FILES:
            found.append((path, _digest((root / entry.path).read_bytes())))
    return tuple(found)


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


ROUTES: tuple[Route, ...] = (
    Route(
        method="GET",
        path=WELL_KNOWN,
        endpoint=index,
        summary="List the skills that other hosts can have",
        scope=None,
        gives=IndexShape,
        errors=(401, 403),
    ),
    Route(
        method="GET",
        path=f"{_PLACE}/{{name}}/{{path:path}}",
        endpoint=file,
        summary="Give a file that the index lists",
        scope=None,
        media=_ANY_KIND,
        errors=(401, 403, 404),
    ),
)
