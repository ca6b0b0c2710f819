"""Skills, changed: looked at before, installed, edited, switched, brought back and removed."""

from functools import partial

import anyio.to_thread
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from apexbridge.errors import RequestError
from apexbridge.evals.interference import DescriptionPreview
from apexbridge.lifecycle.index_updates import read_skill_md
from apexbridge.lifecycle.transactions import check_unchanged
from apexbridge.lifecycle.unpack_and_validate import Inspection
from apexbridge.scanner.report import DISCLAIMERS
from apexbridge.scanner.rules import RISK_LEVELS
from apexbridge.server.routing import RequestContext, parse_json, parse_model, read_json
from apexbridge.server.skills.presenters import (
    SKILL_ID,
    if_match_sha256,
    json_response,
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
    SkillChangeSchema,
)
from apexbridge.server.skills.uploads import EditRequest, VersionRequest, receive_upload
from apexbridge.server.skills.versions import find_version
from apexbridge.skills.editor import edit_description
from apexbridge.skills.model import Skill


class CreateQuery(BaseModel):
    """How a skill is taken."""

    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True)

    rename: bool = False
    """Whether a folder of another name than the skill's gets the skill's name."""


class EditQuery(BaseModel):
    """How an edit is made."""

    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True)

    dry_run: bool = False
    """Whether nothing is saved, and the ranks that would come of it are told instead."""


class _Sent(BaseModel):
    model_config = ConfigDict(extra="allow")


async def create(call: RequestContext) -> Response:
    """Install a skill; one that is refused leaves nothing behind."""
    asked = call.query(CreateQuery)
    async with receive_upload(call) as upload:
        done = await call.runtime.manager.install(upload.path, renames=asked.rename)
    shown = await present_skill(call.runtime, done.skill)
    change = present_result(done, request_language(call))
    whole = NewSkillSchema.model_validate({**shown.model_dump(), "change": change})
    return json_response(whole, 201, ETag=make_etag(shown.sha256))


async def inspect(call: RequestContext) -> Response:
    """What a skill holds and could do; nothing is installed."""
    asked = call.query(CreateQuery)
    async with receive_upload(call) as upload:
        found = await call.runtime.manager.inspect(upload.path, renames=asked.rename)
    return json_response(_inspection(call, found))


def _inspection(call: RequestContext, found: Inspection) -> InspectionSchema:
    language, skill, report = request_language(call), found.skill, found.report
    worst, limit = report.worst(), call.runtime.manager.policy.blocks_at
    there = call.runtime.catalog.snapshot.winner(skill.name)
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
        scripts=[
            ScriptSchema(path=script.path, runner=script.runner, executable=script.executable)
            for script in found.scripts
        ],
        problems=present_problems(found.problems, language),
        report=ScanReportSchema(
            worst=worst,
            partial=report.partial,
            files=report.files,
            bytes=report.bytes,
            notice=DISCLAIMERS[language],
            findings=present_findings(report.findings, language),
        ),
        exists=there is not None and there.provenance.writable,
        refused=worst is not None and RISK_LEVELS.index(worst) >= RISK_LEVELS.index(limit),
    )


async def edit(call: RequestContext) -> Response:
    """Change the description, and nothing else can be."""
    asked, skill = call.query(EditQuery), skill_from_path(call)
    body = await read_json(call.request)
    for name in parse_model(_Sent, body).model_extra or {}:
        if name not in EditRequest.model_fields:
            raise RequestError(code="field_not_editable", fields=name, param=name)
    text = parse_model(EditRequest, body).description
    seen = if_match_sha256(call, skill)
    if asked.dry_run:
        return await _dry_run(call, skill, text, seen)
    done = await call.runtime.manager.edit_description(skill.name, text, expected_sha256=seen)
    shown = await present_skill(call.runtime, done.skill)
    changed = SkillChangeSchema(
        changed=done.has_changed, skill=shown, indexed=done.index_error is None
    )
    return json_response(changed, ETag=make_etag(shown.sha256))


async def _dry_run(call: RequestContext, skill: Skill, text: str, seen: str) -> Response:
    check_unchanged(skill, seen)
    if skill.root is not None:
        old = await anyio.to_thread.run_sync(read_skill_md, skill.root)
        await anyio.to_thread.run_sync(edit_description, old, text)  # it may break a rule
    found = await call.runtime.index_service.preview_description(skill.name, text)
    shown = await present_skill(call.runtime, skill)
    changed = SkillChangeSchema(
        changed=text != skill.description, skill=shown, preview=_preview(found)
    )
    return json_response(changed, ETag=make_etag(shown.sha256))


def _preview(found: DescriptionPreview) -> PreviewSchema:
    return PreviewSchema(
        queries=[
            QueryRankSchema(
                query=shift.query,
                kind=shift.kind,
                before=shift.before,
                after=shift.after,
                gains=list(shift.gains),
                loses=list(shift.loses),
            )
            for shift in found.shifts
        ],
        others=[
            AffectedSkillSchema(name=o.name, lost=o.lost, gained=o.gained) for o in found.others
        ],
    )


async def _changed(call: RequestContext, name: str, *, changed: bool) -> Response:
    shown = await present_skill(call.runtime, call.runtime.catalog.find(name))
    return json_response(
        SkillChangeSchema(changed=changed, skill=shown), ETag=make_etag(shown.sha256)
    )


async def _switch(call: RequestContext, *, is_on: bool) -> Response:
    name = skill_from_path(call).name
    changed = await call.runtime.manager.set_enabled(name, enabled=is_on)
    return await _changed(call, name, changed=changed)


enable = partial(_switch, is_on=True)
disable = partial(_switch, is_on=False)


async def undo(call: RequestContext) -> Response:
    """Bring back what was removed last under this name."""
    done = await call.runtime.manager.restore(skill_name_from_path(call))
    return await _changed(call, done.skill.name, changed=True)


async def rollback(call: RequestContext) -> Response:
    """Let a kept version be used again; without one, the last that was put aside."""
    skill, version = await _version(call)
    await call.runtime.manager.versions.rollback(skill.name, version)
    return await _changed(call, skill.name, changed=True)


async def pin(call: RequestContext) -> Response:
    """Hold a skill to a version; without one, to what is there."""
    skill, version = await _version(call)
    was = call.runtime.states.pinned().get(skill.name)
    held = await call.runtime.manager.versions.pin(skill.name, version)
    return await _changed(call, skill.name, changed=was != held.sha256)


async def unpin(call: RequestContext) -> Response:
    """Let a skill change again."""
    name = skill_from_path(call).name
    return await _changed(call, name, changed=await call.runtime.manager.versions.unpin(name))


async def _version(call: RequestContext) -> tuple[Skill, str]:
    """The skill, and the version of it that is asked for; no body asks for none."""
    skill, sent = skill_from_path(call), await call.request.body()
    body = parse_model(VersionRequest, parse_json(sent)) if sent else VersionRequest()
    if not body.version:
        return skill, ""
    return skill, (await find_version(call.runtime, skill, body.version)).sha256


async def delete(call: RequestContext) -> Response:
    """Take a skill away; it can be brought back for a while."""
    gone = await call.runtime.manager.uninstall(skill_from_path(call).name)
    days = call.runtime.config.settings.skills.undo_days
    return json_response(
        DeletedSkillSchema(id=f"{SKILL_ID}{gone.name}", name=gone.name, undo_days=days)
    )
