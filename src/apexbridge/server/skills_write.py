"""Skills, changed: looked at before, installed, edited, switched, brought back and removed."""

from functools import partial

import anyio.to_thread
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from apexbridge.errors import RequestError
from apexbridge.evals.preview import Preview
from apexbridge.lifecycle.changes import refuse_changed, skill_md
from apexbridge.lifecycle.inspecting import Inspection
from apexbridge.runtime.previewing import preview_description
from apexbridge.server.base import Call, checked
from apexbridge.server.bodies import parse_json, read_json
from apexbridge.server.skills_bodies import EditBody, VersionBody
from apexbridge.server.skills_shapes import (
    ChangedShape,
    DeletedShape,
    FileShape,
    InspectionShape,
    MovedShape,
    NewSkillShape,
    PreviewShape,
    ReportShape,
    ScriptShape,
    ShiftShape,
)
from apexbridge.server.skills_showing import (
    SKILL_ID,
    change_of,
    etag_of,
    findings_of,
    language_of,
    name_at,
    problems_of,
    reply,
    seen_by,
    show,
    skill_at,
)
from apexbridge.server.skills_versions import find
from apexbridge.server.uploads import received
from apexbridge.skills.edit import edit_description
from apexbridge.skills.model import Skill
from apexbridge.vetting import words
from apexbridge.vetting.rulebook import LEVELS


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


async def create(call: Call) -> Response:
    """Install a skill; one that is refused leaves nothing behind."""
    asked = call.query(CreateQuery)
    async with received(call) as upload:
        done = await call.runtime.manager.install(upload.path, renames=asked.rename)
    shown = await show(call.runtime, done.skill)
    change = change_of(done, language_of(call))
    whole = NewSkillShape.model_validate({**shown.model_dump(), "change": change})
    return reply(whole, 201, ETag=etag_of(shown.sha256))


async def inspect(call: Call) -> Response:
    """What a skill holds and could do; nothing is installed."""
    asked = call.query(CreateQuery)
    async with received(call) as upload:
        found = await call.runtime.manager.inspect(upload.path, renames=asked.rename)
    return reply(_inspection(call, found))


def _inspection(call: Call, found: Inspection) -> InspectionShape:
    language, skill, report = language_of(call), found.skill, found.report
    worst, limit = report.worst(), call.runtime.manager.policy.blocks_at
    there = call.runtime.catalog.snapshot.winner(skill.name)
    return InspectionShape(
        name=skill.name,
        description=skill.description,
        version=skill.manifest.version or "",
        sha256=found.sha256,
        size=found.size,
        files=[
            FileShape(path=str(file.path), size=file.size, executable=file.executable)
            for file in found.files
        ],
        tools=list(found.tools),
        hooks=list(found.hooks),
        commands=list(found.commands),
        scripts=[
            ScriptShape(path=script.path, runner=script.runner, executable=script.executable)
            for script in found.scripts
        ],
        problems=problems_of(found.problems, language),
        report=ReportShape(
            worst=worst,
            partial=report.partial,
            files=report.files,
            bytes=report.bytes,
            notice=words.notice(language),
            findings=findings_of(report.findings, language),
        ),
        exists=there is not None and there.provenance.writable,
        refused=worst is not None and LEVELS.index(worst) >= LEVELS.index(limit),
    )


async def edit(call: Call) -> Response:
    """Change the description, and nothing else can be."""
    asked, skill = call.query(EditQuery), skill_at(call)
    body = await read_json(call.request)
    for name in checked(_Sent, body).model_extra or {}:
        if name not in EditBody.model_fields:
            raise RequestError(code="field_not_editable", fields=name, param=name)
    text = checked(EditBody, body).description
    seen = seen_by(call, skill)
    if asked.dry_run:
        return await _dry_run(call, skill, text, seen)
    done = await call.runtime.manager.edit_description(skill.name, text, seen=seen)
    shown = await show(call.runtime, done.skill)
    changed = ChangedShape(changed=done.has_changed, skill=shown, indexed=done.not_indexed is None)
    return reply(changed, ETag=etag_of(shown.sha256))


async def _dry_run(call: Call, skill: Skill, text: str, seen: str) -> Response:
    refuse_changed(skill, seen)
    if skill.root is not None:
        old = await anyio.to_thread.run_sync(skill_md, skill.root)
        await anyio.to_thread.run_sync(edit_description, old, text)  # it may break a rule
    found = await preview_description(call.runtime, skill.name, text)
    shown = await show(call.runtime, skill)
    changed = ChangedShape(changed=text != skill.description, skill=shown, preview=_preview(found))
    return reply(changed, ETag=etag_of(shown.sha256))


def _preview(found: Preview) -> PreviewShape:
    return PreviewShape(
        queries=[
            ShiftShape(
                query=shift.query,
                kind=shift.kind,
                before=shift.before,
                after=shift.after,
                gains=list(shift.gains),
                loses=list(shift.loses),
            )
            for shift in found.shifts
        ],
        others=[MovedShape(name=o.name, lost=o.lost, gained=o.gained) for o in found.others],
    )


async def _changed(call: Call, name: str, *, changed: bool) -> Response:
    shown = await show(call.runtime, call.runtime.catalog.find(name))
    return reply(ChangedShape(changed=changed, skill=shown), ETag=etag_of(shown.sha256))


async def _switch(call: Call, *, is_on: bool) -> Response:
    name = skill_at(call).name
    changed = await call.runtime.manager.switch(name, is_on=is_on)
    return await _changed(call, name, changed=changed)


enable = partial(_switch, is_on=True)
disable = partial(_switch, is_on=False)


async def undo(call: Call) -> Response:
    """Bring back what was removed last under this name."""
    done = await call.runtime.manager.undo(name_at(call))
    return await _changed(call, done.skill.name, changed=True)


async def rollback(call: Call) -> Response:
    """Let a kept version be used again; without one, the last that was put aside."""
    skill, version = await _version(call)
    await call.runtime.manager.rollback(skill.name, version)
    return await _changed(call, skill.name, changed=True)


async def pin(call: Call) -> Response:
    """Hold a skill to a version; without one, to what is there."""
    skill, version = await _version(call)
    was = call.runtime.states.pinned().get(skill.name)
    held = await call.runtime.manager.pin(skill.name, version)
    return await _changed(call, skill.name, changed=was != held.sha256)


async def unpin(call: Call) -> Response:
    """Let a skill change again."""
    name = skill_at(call).name
    return await _changed(call, name, changed=await call.runtime.manager.unpin(name))


async def _version(call: Call) -> tuple[Skill, str]:
    """The skill, and the version of it that is asked for; no body asks for none."""
    skill, sent = skill_at(call), await call.request.body()
    body = checked(VersionBody, parse_json(sent)) if sent else VersionBody()
    if not body.version:
        return skill, ""
    return skill, (await find(call.runtime, skill, body.version)).sha256


async def delete(call: Call) -> Response:
    """Take a skill away; it can be brought back for a while."""
    gone = await call.runtime.manager.uninstall(skill_at(call).name)
    days = call.runtime.loaded.settings.skills.undo_days
    return reply(DeletedShape(id=f"{SKILL_ID}{gone.name}", name=gone.name, undo_days=days))
