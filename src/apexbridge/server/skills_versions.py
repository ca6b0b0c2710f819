"""Versions of skills: listed, taken in, downloaded, put to use and forgotten."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from apexbridge.errors import RequestError, SkillVersionError
from apexbridge.lifecycle.changes import Done
from apexbridge.lifecycle.kept import Version, written_at
from apexbridge.lifecycle.listing import MAX_PAGE
from apexbridge.lifecycle.versioning import KeptVersion
from apexbridge.runtime import Runtime
from apexbridge.server.base import Call
from apexbridge.server.skills_bodies import DefaultBody
from apexbridge.server.skills_read import zip_response
from apexbridge.server.skills_shapes import (
    ChangeShape,
    DeletedVersionShape,
    NewVersionShape,
    VersionListShape,
    VersionShape,
)
from apexbridge.server.skills_showing import (
    SKILL_ID,
    UNVERSIONED,
    VERSION_ID,
    change_of,
    etag_of,
    findings_of,
    language_of,
    problems_of,
    reply,
    seen_by,
    short,
    show,
    skill_at,
)
from apexbridge.server.uploads import Upload, received
from apexbridge.skills.model import Skill

_YES, _NO = frozenset({"true", "1", "yes"}), frozenset({"false", "0", "no"})


class VersionsQuery(BaseModel):
    """Which versions, and how many at a time."""

    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True)

    limit: int = Field(default=50, ge=1, le=MAX_PAGE)
    after: str = Field(default="", max_length=200)
    """The id of the last version of the page before."""
    page: str = Field(default="", max_length=200)
    """The `next_page` of the page before."""
    order: Literal["asc", "desc"] = "desc"
    """By the time when they came; the latest first."""


async def known(runtime: Runtime, skill: Skill) -> list[Version]:
    """The versions of a skill, the latest first; one that is not kept here has one."""
    if skill.provenance.writable:
        found = list(await runtime.manager.versions(skill.name))
        return sorted(found, key=lambda v: (v.created, v.is_current, v.at), reverse=True)
    mark = skill.fingerprint
    return [
        Version(
            sha256=mark.sha256 if mark else "",
            declared=skill.manifest.version or "",
            size=mark.size if mark else 0,
            at=0,
            is_current=True,
            description=skill.description,
            created=written_at(skill.root) if skill.root else 0.0,
        )
    ]


async def find(runtime: Runtime, skill: Skill, wanted: str) -> Version:
    """The version that is meant: by its id, hash or declared name, `latest` or `current`.

    Raises:
        SkillVersionError: `version_unknown`.
    """
    versions = await known(runtime, skill)
    if wanted == "latest":
        return versions[0]
    written = wanted.removeprefix(VERSION_ID)
    if written in {UNVERSIONED, "default"}:
        return next(version for version in versions if version.is_current)
    for version in versions:
        if written in (version.sha256, short(version.sha256)):
            return version
    if skill.provenance.writable:
        return await runtime.manager.version(skill.name, written)
    known_as = ", ".join(short(version.sha256) for version in versions)
    raise SkillVersionError(name=skill.name, version=wanted[:64], known=known_as)


def version_shape(skill: Skill, version: Version) -> VersionShape:
    """A version as clients see it."""
    return VersionShape(
        id=f"{VERSION_ID}{short(version.sha256)}",
        skill_id=f"{SKILL_ID}{skill.name}",
        name=skill.name,
        description=version.description,
        created_at=int(version.created),
        version=short(version.sha256),
        sha256=version.sha256,
        declared=version.declared,
        size=version.size,
        current=version.is_current,
        pinned=version.is_pinned,
    )


async def list_versions(call: Call) -> Response:
    """A page of versions."""
    asked, skill = call.query(VersionsQuery), skill_at(call)
    versions = await known(call.runtime, skill)
    if asked.order == "asc":
        versions.reverse()
    shapes = [version_shape(skill, version) for version in versions]
    after = asked.page or asked.after
    if after:
        begin = next((at for at, s in enumerate(shapes, 1) if after in (s.id, s.version)), None)
        if begin is None:
            raise RequestError("there is no such version to start after", param="after")
        shapes = shapes[begin:]
    shown = shapes[: asked.limit]
    return reply(
        VersionListShape(
            data=shown,
            has_more=len(shapes) > len(shown),
            first_id=shown[0].id if shown else None,
            last_id=shown[-1].id if shown else None,
            next_page=shown[-1].id if len(shapes) > len(shown) else None,
        )
    )


async def retrieve_version(call: Call) -> Response:
    """One version."""
    skill = skill_at(call)
    version = await find(call.runtime, skill, call.at("version"))
    return reply(version_shape(skill, version), ETag=etag_of(version.sha256))


async def version_content(call: Call) -> Response:
    """A version as a zip."""
    skill = skill_at(call)
    version = await find(call.runtime, skill, call.at("version"))
    if version.is_current:
        data = await call.runtime.manager.export(skill.name)
    else:
        data = await call.runtime.manager.export_version(skill.name, version.sha256)
    return zip_response(data, skill.name, version.sha256)


async def create_version(call: Call) -> Response:
    """Take in a version, and use it from now on, unless the form says `default: false`."""
    skill, language = skill_at(call), language_of(call)
    async with received(call) as upload:
        if _is_default(upload):
            done = await call.runtime.manager.update(
                upload.path, only=skill.name, seen=seen_by(call, skill), allows_older=True
            )
            sha256, change = _sha256(done), change_of(done, language)
        else:
            kept = await call.runtime.manager.keep(skill.name, upload.path)
            sha256, change = kept.sha256, _kept_change(kept, call)
    skill = call.runtime.catalog.find(skill.name)
    version = await find(call.runtime, skill, sha256)
    shape = version_shape(skill, version)
    whole = NewVersionShape.model_validate({**shape.model_dump(), "change": change})
    return reply(whole, 201, ETag=etag_of(sha256))


def _is_default(upload: Upload) -> bool:
    written = upload.fields.get("default", "true").strip().lower()
    if written not in _YES | _NO:
        raise RequestError("default: it is true or false", param="default")
    return written in _YES


def _sha256(done: Done) -> str:
    return done.skill.fingerprint.sha256 if done.skill.fingerprint else ""


def _kept_change(kept: KeptVersion, call: Call) -> ChangeShape:
    language = language_of(call)
    return ChangeShape(
        changed=kept.is_new,
        indexed=True,
        problems=problems_of(kept.problems, language),
        findings=findings_of(kept.findings, language),
    )


async def set_default(call: Call) -> Response:
    """Let another version be used."""
    skill, body = skill_at(call), await call.body(DefaultBody)
    version = await find(call.runtime, skill, body.default_version)
    if not version.is_current:
        await call.runtime.manager.rollback(skill.name, version.sha256)
    now = await show(call.runtime, call.runtime.catalog.find(skill.name))
    return reply(now, ETag=etag_of(now.sha256))


async def delete_version(call: Call) -> Response:
    """Keep a version no longer."""
    skill = skill_at(call)
    version = await find(call.runtime, skill, call.at("version"))
    gone = await call.runtime.manager.forget(skill.name, version.sha256)
    called = short(gone.sha256)
    return reply(DeletedVersionShape(id=f"{VERSION_ID}{called}", version=called))
