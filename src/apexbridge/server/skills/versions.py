"""Versions of skills: listed, taken in, downloaded, put to use and forgotten."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from apexbridge.errors import RequestError, SkillVersionError
from apexbridge.lifecycle.skill_list import MAX_PAGE
from apexbridge.lifecycle.transactions import InstallResult
from apexbridge.lifecycle.version_store import Version, modified_at
from apexbridge.lifecycle.versions import StoredVersion
from apexbridge.runtime import Runtime
from apexbridge.server.routing import RequestContext
from apexbridge.server.skills.presenters import (
    SKILL_ID,
    UNVERSIONED,
    VERSION_ID,
    if_match_sha256,
    json_response,
    make_etag,
    present_findings,
    present_problems,
    present_result,
    present_skill,
    request_language,
    short_version,
    skill_from_path,
)
from apexbridge.server.skills.read import zip_response
from apexbridge.server.skills.schemas import (
    DeletedVersionSchema,
    InstallResultSchema,
    NewVersionSchema,
    VersionListSchema,
    VersionSchema,
)
from apexbridge.server.skills.uploads import DefaultVersionRequest, Upload, receive_upload
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


async def all_versions(runtime: Runtime, skill: Skill) -> list[Version]:
    """The versions of a skill, the latest first; one that is not kept here has one."""
    if skill.provenance.writable:
        found = list(await runtime.manager.versions.list(skill.name))
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
            created=modified_at(skill.root) if skill.root else 0.0,
        )
    ]


async def find_version(runtime: Runtime, skill: Skill, wanted: str) -> Version:
    """The version that is meant: by its id, hash or declared name, `latest` or `current`.

    Raises:
        SkillVersionError: `version_unknown`.
    """
    versions = await all_versions(runtime, skill)
    if wanted == "latest":
        return versions[0]
    written = wanted.removeprefix(VERSION_ID)
    if written in {UNVERSIONED, "default"}:
        return next(version for version in versions if version.is_current)
    for version in versions:
        if written in (version.sha256, short_version(version.sha256)):
            return version
    if skill.provenance.writable:
        return await runtime.manager.versions.get(skill.name, written)
    known_as = ", ".join(short_version(version.sha256) for version in versions)
    raise SkillVersionError(name=skill.name, version=wanted[:64], known=known_as)


def present_version(skill: Skill, version: Version) -> VersionSchema:
    """A version as clients see it."""
    return VersionSchema(
        id=f"{VERSION_ID}{short_version(version.sha256)}",
        skill_id=f"{SKILL_ID}{skill.name}",
        name=skill.name,
        description=version.description,
        created_at=int(version.created),
        version=short_version(version.sha256),
        sha256=version.sha256,
        declared=version.declared,
        size=version.size,
        current=version.is_current,
        pinned=version.is_pinned,
    )


async def list_versions(call: RequestContext) -> Response:
    """A page of versions."""
    asked, skill = call.query(VersionsQuery), skill_from_path(call)
    versions = await all_versions(call.runtime, skill)
    if asked.order == "asc":
        versions.reverse()
    shapes = [present_version(skill, version) for version in versions]
    after = asked.page or asked.after
    if after:
        begin = next((at for at, s in enumerate(shapes, 1) if after in (s.id, s.version)), None)
        if begin is None:
            raise RequestError("there is no such version to start after", param="after")
        shapes = shapes[begin:]
    shown = shapes[: asked.limit]
    return json_response(
        VersionListSchema(
            data=shown,
            has_more=len(shapes) > len(shown),
            first_id=shown[0].id if shown else None,
            last_id=shown[-1].id if shown else None,
            next_page=shown[-1].id if len(shapes) > len(shown) else None,
        )
    )


async def retrieve_version(call: RequestContext) -> Response:
    """One version."""
    skill = skill_from_path(call)
    version = await find_version(call.runtime, skill, call.at("version"))
    return json_response(present_version(skill, version), ETag=make_etag(version.sha256))


async def version_content(call: RequestContext) -> Response:
    """A version as a zip."""
    skill = skill_from_path(call)
    version = await find_version(call.runtime, skill, call.at("version"))
    if version.is_current:
        data = await call.runtime.manager.export(skill.name)
    else:
        data = await call.runtime.manager.versions.export(skill.name, version.sha256)
    return zip_response(data, skill.name, version.sha256)


async def create_version(call: RequestContext) -> Response:
    """Take in a version, and use it from now on, unless the form says `default: false`."""
    skill, language = skill_from_path(call), request_language(call)
    async with receive_upload(call) as upload:
        if _is_default(upload):
            done = await call.runtime.manager.update(
                upload.path,
                only=skill.name,
                expected_sha256=if_match_sha256(call, skill),
                allows_older=True,
            )
            sha256, change = _sha256(done), present_result(done, language)
        else:
            kept = await call.runtime.manager.versions.add(skill.name, upload.path)
            sha256, change = kept.sha256, _present_kept(kept, call)
    skill = call.runtime.catalog.find(skill.name)
    version = await find_version(call.runtime, skill, sha256)
    shape = present_version(skill, version)
    whole = NewVersionSchema.model_validate({**shape.model_dump(), "change": change})
    return json_response(whole, 201, ETag=make_etag(sha256))


def _is_default(upload: Upload) -> bool:
    written = upload.fields.get("default", "true").strip().lower()
    if written not in _YES | _NO:
        raise RequestError("default: it is true or false", param="default")
    return written in _YES


def _sha256(done: InstallResult) -> str:
    return done.skill.fingerprint.sha256 if done.skill.fingerprint else ""


def _present_kept(kept: StoredVersion, call: RequestContext) -> InstallResultSchema:
    language = request_language(call)
    return InstallResultSchema(
        changed=kept.is_new,
        indexed=True,
        problems=present_problems(kept.problems, language),
        findings=present_findings(kept.findings, language),
    )


async def set_default(call: RequestContext) -> Response:
    """Let another version be used."""
    skill, body = skill_from_path(call), await call.body(DefaultVersionRequest)
    version = await find_version(call.runtime, skill, body.default_version)
    if not version.is_current:
        await call.runtime.manager.versions.rollback(skill.name, version.sha256)
    now = await present_skill(call.runtime, call.runtime.catalog.find(skill.name))
    return json_response(now, ETag=make_etag(now.sha256))


async def delete_version(call: RequestContext) -> Response:
    """Keep a version no longer."""
    skill = skill_from_path(call)
    version = await find_version(call.runtime, skill, call.at("version"))
    gone = await call.runtime.manager.versions.remove(skill.name, version.sha256)
    called = short_version(gone.sha256)
    return json_response(DeletedVersionSchema(id=f"{VERSION_ID}{called}", version=called))
