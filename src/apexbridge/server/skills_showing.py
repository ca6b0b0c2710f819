"""Which skill a request means, and how skills, versions and findings are put into replies."""

import re
from collections.abc import Iterable, Sequence
from functools import partial

import anyio.to_thread
from starlette.responses import Response

from apexbridge import wording
from apexbridge.activation.scripts import has_script
from apexbridge.errors import SkillNotFoundError
from apexbridge.lifecycle.changes import Done
from apexbridge.lifecycle.kept import written_at
from apexbridge.lifecycle.listing import Kept
from apexbridge.lifecycle.verdicts import Verdict
from apexbridge.runtime import Runtime
from apexbridge.server.base import Call
from apexbridge.server.skills_shapes import (
    ChangeShape,
    FindingShape,
    FoundShape,
    ProblemShape,
    Shape,
    SkillShape,
    SourceShape,
)
from apexbridge.skills.model import Origin, Problem, Skill
from apexbridge.vetting.report import Finding, worst_of
from apexbridge.vetting.rulebook import RULES

SKILL_ID, VERSION_ID = "skill_", "skillver_"
UNVERSIONED = "current"
"""What the only version of a skill is called that has no files to hash."""
_SHORT = 12
_UNKNOWN = "?"
"""A state that no skill is ever in."""
_LONGEST = 200
_SEPARATOR = re.compile(rb"%2f|%5c|%00", re.IGNORECASE)


def reply(shape: Shape, status: int = 200, **headers: str) -> Response:
    """A shape as JSON."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(shape.model_dump_json(), status, named, media_type="application/json")


def language_of(call: Call) -> wording.Language:
    """The language that a client asks for."""
    return wording.language_of(call.request.headers.get("accept-language"))


def name_at(call: Call) -> str:
    """The name of the skill that an address means, by its id or its name.

    Raises:
        SkillNotFoundError: If no skill can be called that.
    """
    written = call.at("id")
    is_odd = not written.isprintable() or written != written.strip() or len(written) > _LONGEST
    if is_odd or _SEPARATOR.search(call.request.scope.get("raw_path", b"")):
        raise SkillNotFoundError(visible(written[:_LONGEST]))
    return plain_name(call.runtime, written)


def visible(text: str) -> str:
    """A stranger's text on one line, with everything in it that cannot be seen written out."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


def plain_name(runtime: Runtime, written: str) -> str:
    """A name without the beginning that makes it an id; a skill may be called so, though."""
    if written.startswith(SKILL_ID) and runtime.catalog.snapshot.winner(written) is None:
        return written.removeprefix(SKILL_ID)
    return written


def skill_at(call: Call) -> Skill:
    """The skill that an address means, also one that is switched off.

    Raises:
        SkillNotFoundError: If there is none.
    """
    return call.runtime.catalog.find(name_at(call))


def etag_of(sha256: str) -> str:
    """The mark of a state."""
    return f'"{sha256}"'


def seen_by(call: Call, skill: Skill) -> str:
    """The state that a client says it saw, from `If-Match`; empty if it does not care."""
    written = call.request.headers.get("if-match")
    if written is None or written.strip() == "*":
        return ""
    tags = [tag.strip() for tag in written.split(",")]
    now = skill.fingerprint.sha256 if skill.fingerprint else ""
    if etag_of(now) in tags:
        return now
    return tags[0].strip('"') or _UNKNOWN


def short(sha256: str) -> str:
    """What a version is called."""
    return sha256[:_SHORT] or UNVERSIONED


async def show(runtime: Runtime, skill: Skill) -> SkillShape:
    """One skill as it is now."""

    def look() -> SkillShape:
        mark = skill.fingerprint
        is_off = any(skill is other for other in runtime.catalog.snapshot.disabled)
        kept = Kept(
            skill=skill,
            state="disabled" if is_off else "enabled",
            is_pinned=skill.name in runtime.states.pinned(),
            verdict=runtime.manager.verdicts.get(mark.sha256) if mark else None,
        )
        return _shape(runtime, kept)

    return await anyio.to_thread.run_sync(look)


async def show_all(runtime: Runtime, kept: Sequence[Kept]) -> list[SkillShape]:
    """Skills as they are now."""
    look = partial(_shape, runtime)
    return await anyio.to_thread.run_sync(lambda: list(map(look, kept)))


def _shape(runtime: Runtime, kept: Kept) -> SkillShape:
    skill, mark = kept.skill, kept.skill.fingerprint
    sha256 = mark.sha256 if mark else ""
    now = written_at(skill.root) if skill.root else 0.0
    is_own = skill.provenance.writable and kept.state != "shadowed"
    times = {**(runtime.store.versions.created(skill.name) if is_own else {}), sha256: now}
    latest = max(times, key=lambda version: (times[version], version == sha256))
    return SkillShape(
        id=f"{SKILL_ID}{skill.name}",
        name=skill.name,
        display_name=skill.name,
        display_title=skill.name,
        description=skill.description,
        created_at=int(min(times.values())),
        updated_at=int(now),
        default_version=short(sha256),
        latest_version=short(latest),
        latest_version_id=f"{VERSION_ID}{short(latest)}",
        source=SourceShape(
            type="plugin" if skill.provenance.origin == Origin.PLUGIN else "custom",
            id=skill.provenance.source_id,
        ),
        state=kept.state,
        origin=skill.provenance.origin,
        writable=skill.provenance.writable,
        trusted=skill.is_trusted,
        pinned=kept.is_pinned,
        size=mark.size if mark else 0,
        files=mark.files if mark else 0,
        sha256=sha256,
        version=skill.manifest.version or "",
        findings=_found(kept.verdict),
        has_script=has_script(skill),
        user_invocable=skill.manifest.user_invocable,
        model_invocable=not skill.manifest.disable_model_invocation,
    )


def _found(verdict: Verdict | None) -> FoundShape:
    counts = verdict.counts if verdict else {}
    return FoundShape(
        worst=worst_of(counts), count=sum(counts.values()), looked=verdict is not None
    )


def problems_of(problems: Iterable[Problem], language: wording.Language) -> list[ProblemShape]:
    """Broken rules, in words."""
    return [
        ProblemShape(
            code=problem.code,
            where=problem.where,
            severity=problem.severity,
            message=said.message,
            hint=said.hint,
        )
        for problem in problems
        for said in (problem.said(language),)
    ]


def findings_of(findings: Iterable[Finding], language: wording.Language) -> list[FindingShape]:
    """Findings, in words."""
    return [
        FindingShape(
            rule=finding.rule,
            level=finding.level,
            title=said.title,
            advice=said.advice,
            path=finding.path,
            line=finding.line,
            excerpt=finding.excerpt,
            details=dict(finding.details),
            owasp=list(RULES[finding.rule].owasp),
        )
        for finding in findings
        for said in (finding.said(language),)
    ]


def change_of(done: Done, language: wording.Language) -> ChangeShape:
    """What came of a change."""
    return ChangeShape(
        changed=done.has_changed,
        indexed=done.not_indexed is None,
        problems=problems_of(done.problems, language),
        findings=findings_of(done.findings, language),
    )
