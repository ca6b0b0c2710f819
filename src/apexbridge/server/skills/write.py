"""Write endpoints of the skills API: inspect, install, edit, enable, pin, restore and remove."""

import anyio.to_thread
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from apexbridge.errors import RequestError
from apexbridge.lifecycle.index_updates import read_skill_md
from apexbridge.lifecycle.inspection import Inspection
from apexbridge.lifecycle.source_records import InstallOrigin
from apexbridge.lifecycle.transactions import check_unchanged
from apexbridge.runtime.description_preview import preview_description
from apexbridge.scanner.report import DISCLAIMERS
from apexbridge.scanner.rules import RISK_LEVELS
from apexbridge.server.routing import (
    QueryModel,
    RequestContext,
    RequestModel,
    Router,
    json_response,
    parse_json,
    parse_model,
    read_json,
)
from apexbridge.server.skills.dependencies import present_packages
from apexbridge.server.skills.presenters import (
    SKILL_ID,
    if_match_sha256,
    make_etag,
    present_findings,
    present_problems,
    present_result,
    present_skill,
    request_language,
    skill_from_path,
    skill_name_from_path,
)
from apexbridge.server.skills.schemas import (
    AffectedSkillSchema,
    DeletedSkillSchema,
    FileSchema,
    InspectionSchema,
    NewSkillSchema,
    PreviewSchema,
    QueryRankSchema,
    ScanReportSchema,
    ScriptSchema,
    SignatureSchema,
    SkillChangeSchema,
)
from apexbridge.server.skills.uploads import UPLOAD_ERRORS, receive_upload
from apexbridge.server.skills.versions import find_version
from apexbridge.skills.editor import edit_description
from apexbridge.skills.model import Skill

router = Router("/v1/skills", scope="skills:write")


class CreateQuery(QueryModel):
    """Options of an install."""

    rename: bool = False
    """Whether a folder whose name differs from the skill's is renamed."""


class EditQuery(QueryModel):
    """Options of an edit."""

    dry_run: bool = False
    """Preview the effect on search ranks instead of saving."""


class EditRequest(RequestModel):
    """Editable fields of a skill."""

    description: str


class VersionRequest(RequestModel):
    """Version to use."""

    version: str = Field(default="", max_length=200)
    """Empty for the default of the endpoint."""


class _AnyFields(BaseModel):
    model_config = ConfigDict(extra="allow")


@router.post(
    "", query=CreateQuery, response=NewSkillSchema, multipart=True, status=201, errors=UPLOAD_ERRORS
)
async def create(ctx: RequestContext) -> Response:
    """Install a skill; a refused one leaves nothing behind."""
    query = ctx.query(CreateQuery)
    async with receive_upload(ctx) as upload:
        origin = InstallOrigin(signature=upload.fields.get("signature", ""))
        done = await ctx.runtime.manager.install(upload.path, renames=query.rename, origin=origin)
    shown = await present_skill(ctx.runtime, done.skill)
    change = present_result(done, request_language(ctx))
    created = NewSkillSchema(**dict(shown), change=change)
    return json_response(created, 201, ETag=make_etag(shown.sha256))


@router.post(
    "/inspect",
    scope="skills:read",
    query=CreateQuery,
    response=InspectionSchema,
    multipart=True,
    errors=UPLOAD_ERRORS,
)
async def inspect(ctx: RequestContext) -> Response:
    """Inspect an upload: contents, permissions and scan report, without installing it."""
    query = ctx.query(CreateQuery)
    async with receive_upload(ctx) as upload:
        found = await ctx.runtime.manager.inspect(
            upload.path, renames=query.rename, signature=upload.fields.get("signature", "")
        )
    return json_response(_inspection(ctx, found))


def _inspection(ctx: RequestContext, found: Inspection) -> InspectionSchema:
    language, skill, report = request_language(ctx), found.skill, found.report
    worst, limit = report.worst(), ctx.runtime.manager.policy.blocks_at
    there = ctx.runtime.catalog.snapshot.winner(skill.name)
    return InspectionSchema(
        name=skill.name,
        description=skill.description,
        version=skill.manifest.version or "",
        sha256=found.sha256,
        size=found.size,
        files=[
            FileSchema(path=str(file.path), size=file.size, executable=file.executable)
            for file in found.files
        ],
        tools=list(found.tools),
        hooks=list(found.hooks),
        commands=list(found.commands),
        scripts=[ScriptSchema.model_validate(script) for script in found.scripts],
        packages=present_packages(found.needs),
        problems=present_problems(found.problems, language),
        report=ScanReportSchema(
            worst=worst,
            partial=report.partial,
            files=report.files,
            bytes=report.bytes,
            notice=DISCLAIMERS[language],
            findings=present_findings(report.findings, language),
        ),
        signature=SignatureSchema.model_validate(found.signature),
        exists=there is not None and there.provenance.writable,
        refused=worst is not None and RISK_LEVELS.index(worst) >= RISK_LEVELS.index(limit),
    )


@router.patch(
    "/{id}",
    body=EditRequest,
    query=EditQuery,
    response=SkillChangeSchema,
    headers=("If-Match",),
    errors=(404, 409, 412, 413, 415, 422, 503, 507),
)
async def edit(ctx: RequestContext) -> Response:
    """Change the description, the only editable field."""
    query, skill = ctx.query(EditQuery), skill_from_path(ctx)
    body = await read_json(ctx.request)
    for name in parse_model(_AnyFields, body).model_extra or {}:
        if name not in EditRequest.model_fields:
            raise RequestError(code="field_not_editable", fields=name, param=name)
    text = parse_model(EditRequest, body).description
    seen = if_match_sha256(ctx, skill)
    if query.dry_run:
        return await _dry_run(ctx, skill, text, seen)
    done = await ctx.runtime.manager.edit_description(skill.name, text, expected_sha256=seen)
    shown = await present_skill(ctx.runtime, done.skill)
    changed = SkillChangeSchema(
        changed=done.has_changed, skill=shown, indexed=done.index_error is None
    )
    return json_response(changed, ETag=make_etag(shown.sha256))


async def _dry_run(ctx: RequestContext, skill: Skill, text: str, seen: str) -> Response:
    check_unchanged(skill, seen)
    if skill.root is not None:
        old = await anyio.to_thread.run_sync(read_skill_md, skill.root)
        # Raises if the description breaks a rule.
        await anyio.to_thread.run_sync(edit_description, old, text)
    found = await preview_description(ctx.runtime, skill.name, text)
    shown = await present_skill(ctx.runtime, skill)
    preview = PreviewSchema(
        queries=[QueryRankSchema.model_validate(shift) for shift in found.shifts],
        others=[AffectedSkillSchema.model_validate(other) for other in found.others],
    )
    changed = SkillChangeSchema(changed=text != skill.description, skill=shown, preview=preview)
    return json_response(changed, ETag=make_etag(shown.sha256))


async def _changed(ctx: RequestContext, name: str, *, changed: bool) -> Response:
    shown = await present_skill(ctx.runtime, ctx.runtime.catalog.find(name))
    return json_response(
        SkillChangeSchema(changed=changed, skill=shown), ETag=make_etag(shown.sha256)
    )


async def _set_enabled(ctx: RequestContext, *, enabled: bool) -> Response:
    name = skill_from_path(ctx).name
    changed = await ctx.runtime.manager.set_enabled(name, enabled=enabled)
    return await _changed(ctx, name, changed=changed)


@router.post("/{id}/enable", response=SkillChangeSchema, errors=(404, 507))
async def enable(ctx: RequestContext) -> Response:
    """Enable a skill."""
    return await _set_enabled(ctx, enabled=True)


@router.post("/{id}/disable", response=SkillChangeSchema, errors=(404, 507))
async def disable(ctx: RequestContext) -> Response:
    """Disable a skill."""
    return await _set_enabled(ctx, enabled=False)


@router.post("/{id}/undo", response=SkillChangeSchema, errors=(404, 409, 507))
async def undo(ctx: RequestContext) -> Response:
    """Restore the latest removed skill of this name."""
    done = await ctx.runtime.manager.restore(skill_name_from_path(ctx))
    return await _changed(ctx, done.skill.name, changed=True)


@router.post(
    "/{id}/rollback", body=VersionRequest, response=SkillChangeSchema, errors=(404, 409, 415, 507)
)
async def rollback(ctx: RequestContext) -> Response:
    """Roll back to a stored version; by default to the previous one."""
    skill, version = await _version(ctx)
    await ctx.runtime.manager.versions.rollback(skill.name, version)
    return await _changed(ctx, skill.name, changed=True)


@router.post(
    "/{id}/pin", body=VersionRequest, response=SkillChangeSchema, errors=(404, 409, 415, 507)
)
async def pin(ctx: RequestContext) -> Response:
    """Pin a skill to a version; by default to the current one."""
    skill, version = await _version(ctx)
    was = ctx.runtime.states.pinned().get(skill.name)
    held = await ctx.runtime.manager.versions.pin(skill.name, version)
    return await _changed(ctx, skill.name, changed=was != held.sha256)


@router.post("/{id}/unpin", response=SkillChangeSchema, errors=(404, 507))
async def unpin(ctx: RequestContext) -> Response:
    """Unpin a skill."""
    name = skill_from_path(ctx).name
    return await _changed(ctx, name, changed=await ctx.runtime.manager.versions.unpin(name))


async def _version(ctx: RequestContext) -> tuple[Skill, str]:
    """Return the skill, and the hash of the requested version; the body is optional."""
    skill, sent = skill_from_path(ctx), await ctx.request.body()
    body = parse_model(VersionRequest, parse_json(sent)) if sent else VersionRequest()
    if not body.version:
        return skill, ""
    return skill, (await find_version(ctx.runtime, skill, body.version)).sha256


@router.delete("/{id}", response=DeletedSkillSchema, errors=(404, 507))
async def delete(ctx: RequestContext) -> Response:
    """Move a skill to the trash."""
    gone = await ctx.runtime.manager.uninstall(skill_from_path(ctx).name)
    days = ctx.runtime.config.settings.skills.undo_days
    return json_response(
        DeletedSkillSchema(id=f"{SKILL_ID}{gone.name}", name=gone.name, undo_days=days)
    )
