"""Version endpoints of the skills API: list, add, download, set the default and delete."""

from typing import Literal

from pydantic import Field
from starlette.responses import Response

from apexbridge.errors import RequestError, SkillVersionError
from apexbridge.lifecycle.skill_list import MAX_PAGE
from apexbridge.lifecycle.source_records import InstallOrigin
from apexbridge.lifecycle.transactions import sha256_of
from apexbridge.lifecycle.version_store import Version, modified_at
from apexbridge.lifecycle.versions import StoredVersion
from apexbridge.locales import Language
from apexbridge.runtime import Runtime
from apexbridge.server.routing import (
    QueryModel,
    RequestContext,
    RequestModel,
    Router,
    json_response,
)
from apexbridge.server.skills.presenters import (
    SKILL_ID,
    UNVERSIONED,
    VERSION_ID,
    if_match_sha256,
    make_etag,
    present_findings,
    present_problems,
    present_result,
    present_skill,
    request_language,
    short_version,
    skill_from_path,
)
from apexbridge.server.skills.read import ZIP, zip_response
from apexbridge.server.skills.schemas import (
    DeletedVersionSchema,
    InstallResultSchema,
    NewVersionSchema,
    SignatureSchema,
    SkillSchema,
    VersionListSchema,
    VersionSchema,
)
from apexbridge.server.skills.uploads import UPLOAD_ERRORS, Upload, receive_upload
from apexbridge.skills.model import Skill

_YES, _NO = frozenset({"true", "1", "yes"}), frozenset({"false", "0", "no"})

router = Router("/v1/skills", scope="skills:read")


class VersionsQuery(QueryModel):
    """Pagination of versions."""

    limit: int = Field(default=50, ge=1, le=MAX_PAGE)
    after: str = Field(default="", max_length=200)
    """Cursor: id of the last version of the previous page."""
    page: str = Field(default="", max_length=200)
    """Cursor: `next_page` of the previous page."""
    order: Literal["asc", "desc"] = "desc"
    """Sort order by creation time."""


class DefaultVersionRequest(RequestModel):
    """Version to use by default."""

    default_version: str = Field(min_length=1, max_length=200)
    """Version, its id, a prefix of its hash, or `latest`."""


async def all_versions(runtime: Runtime, skill: Skill) -> list[Version]:
    """Return the versions of a skill, latest first; a read-only skill has one."""
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
    """Find a version by id, hash or declared name, or as `latest` or `current`.

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
    """Convert a version to its response schema."""
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


@router.get("/{id}/versions", query=VersionsQuery, response=VersionListSchema, errors=(404,))
async def list_versions(ctx: RequestContext) -> Response:
    """List a page of versions."""
    query, skill = ctx.query(VersionsQuery), skill_from_path(ctx)
    versions = await all_versions(ctx.runtime, skill)
    if query.order == "asc":
        versions.reverse()
    schemas = [present_version(skill, version) for version in versions]
    after = query.page or query.after
    if after:
        begin = next((at for at, s in enumerate(schemas, 1) if after in (s.id, s.version)), None)
        if begin is None:
            raise RequestError("unknown version", param="after")
        schemas = schemas[begin:]
    shown = schemas[: query.limit]
    return json_response(
        VersionListSchema(
            data=shown,
            has_more=len(schemas) > len(shown),
            first_id=shown[0].id if shown else None,
            last_id=shown[-1].id if shown else None,
            next_page=shown[-1].id if len(schemas) > len(shown) else None,
        )
    )


@router.get("/{id}/versions/{version}", response=VersionSchema, errors=(404,))
async def retrieve_version(ctx: RequestContext) -> Response:
    """Show a version."""
    skill = skill_from_path(ctx)
    version = await find_version(ctx.runtime, skill, ctx.path_param("version"))
    return json_response(present_version(skill, version), ETag=make_etag(version.sha256))


@router.get("/{id}/versions/{version}/content", media_type=ZIP, errors=(404, 413, 422))
async def version_content(ctx: RequestContext) -> Response:
    """Download a version as a zip archive."""
    skill = skill_from_path(ctx)
    version = await find_version(ctx.runtime, skill, ctx.path_param("version"))
    if version.is_current:
        data = await ctx.runtime.manager.export(skill.name)
    else:
        data = await ctx.runtime.manager.versions.export(skill.name, version.sha256)
    return zip_response(data, skill.name, version.sha256)


@router.post(
    "/{id}/versions",
    scope="skills:write",
    response=NewVersionSchema,
    headers=("If-Match",),
    multipart=True,
    status=201,
    errors=(404, 412, *UPLOAD_ERRORS),
)
async def create_version(ctx: RequestContext) -> Response:
    """Add a version, and make it the default unless the form says `default: false`."""
    skill, language = skill_from_path(ctx), request_language(ctx)
    async with receive_upload(ctx) as upload:
        if _is_default(upload):
            done = await ctx.runtime.manager.update(
                upload.path,
                only=skill.name,
                expected_sha256=if_match_sha256(ctx, skill),
                allows_older=True,
                origin=InstallOrigin(signature=upload.fields.get("signature", "")),
            )
            sha256, change = sha256_of(done.skill), present_result(done, language)
        else:
            kept = await ctx.runtime.manager.versions.add(
                skill.name, upload.path, signature=upload.fields.get("signature", "")
            )
            sha256, change = kept.sha256, _present_kept(kept, language)
    skill = ctx.runtime.catalog.find(skill.name)
    version = await find_version(ctx.runtime, skill, sha256)
    schema = present_version(skill, version)
    created = NewVersionSchema(**dict(schema), change=change)
    return json_response(created, 201, ETag=make_etag(sha256))


def _is_default(upload: Upload) -> bool:
    written = upload.fields.get("default", "true").strip().lower()
    if written not in _YES | _NO:
        raise RequestError("default: must be true or false", param="default")
    return written in _YES


def _present_kept(kept: StoredVersion, language: Language) -> InstallResultSchema:
    return InstallResultSchema(
        changed=kept.is_new,
        indexed=True,
        problems=present_problems(kept.problems, language),
        findings=present_findings(kept.findings, language),
        signature=SignatureSchema.model_validate(kept.signature),
    )


@router.post(
    "/{id}",
    scope="skills:write",
    body=DefaultVersionRequest,
    response=SkillSchema,
    errors=(404, 409, 415, 507),
)
async def set_default(ctx: RequestContext) -> Response:
    """Set the default version."""
    skill, body = skill_from_path(ctx), await ctx.body(DefaultVersionRequest)
    version = await find_version(ctx.runtime, skill, body.default_version)
    if not version.is_current:
        await ctx.runtime.manager.versions.rollback(skill.name, version.sha256)
    now = await present_skill(ctx.runtime, ctx.runtime.catalog.find(skill.name))
    return json_response(now, ETag=make_etag(now.sha256))


@router.delete(
    "/{id}/versions/{version}",
    scope="skills:write",
    response=DeletedVersionSchema,
    errors=(404, 409, 507),
)
async def delete_version(ctx: RequestContext) -> Response:
    """Delete a stored version."""
    skill = skill_from_path(ctx)
    version = await find_version(ctx.runtime, skill, ctx.path_param("version"))
    gone = await ctx.runtime.manager.versions.remove(skill.name, version.sha256)
    called = short_version(gone.sha256)
    return json_response(DeletedVersionSchema(id=f"{VERSION_ID}{called}", version=called))
