"""Which skill a request means, and how skills, versions and findings are put into replies."""

import re
from collections.abc import Iterable, Sequence
from functools import partial

import anyio.to_thread
from starlette.responses import Response

from apexbridge import locales
from apexbridge.activation.scripts import has_script
from apexbridge.errors import SkillNotFoundError
from apexbridge.lifecycle.scan_results import ScanSummary
from apexbridge.lifecycle.skill_list import ListedSkill
from apexbridge.lifecycle.transactions import InstallResult
from apexbridge.lifecycle.version_store import modified_at
from apexbridge.runtime import Runtime
from apexbridge.scanner.report import Finding, worst_level
from apexbridge.server.routing import RequestContext
from apexbridge.server.skills.schemas import (
    FindingCountSchema,
    FindingSchema,
    InstallResultSchema,
    ProblemSchema,
    ResponseModel,
    SkillSchema,
    SkillSourceSchema,
)
from apexbridge.skills.model import Origin, Problem, Skill

SKILL_ID, VERSION_ID = "skill_", "skillver_"
UNVERSIONED = "current"
"""What the only version of a skill is called that has no files to hash."""
_SHORT_HASH = 12
_NO_MATCH = "?"
"""A state that no skill is ever in."""
_MAX_NAME = 200
_SEPARATOR = re.compile(rb"%2f|%5c|%00", re.IGNORECASE)


def json_response(shape: ResponseModel, status: int = 200, **headers: str) -> Response:
    """A shape as JSON."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(shape.model_dump_json(), status, named, media_type="application/json")


def request_language(call: RequestContext) -> locales.Language:
    """The language that a client asks for."""
    return locales.parse_language(call.request.headers.get("accept-language"))


def skill_name_from_path(call: RequestContext) -> str:
    """The name of the skill that an address means, by its id or its name.

    Raises:
        SkillNotFoundError: If no skill can be called that.
    """
    written = call.at("id")
    is_odd = not written.isprintable() or written != written.strip() or len(written) > _MAX_NAME
    if is_odd or _SEPARATOR.search(call.request.scope.get("raw_path", b"")):
        raise SkillNotFoundError(escape_unprintable(written[:_MAX_NAME]))
    return strip_id_prefix(call.runtime, written)


def escape_unprintable(text: str) -> str:
    """A stranger's text on one line, with everything in it that cannot be seen written out."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


def strip_id_prefix(runtime: Runtime, written: str) -> str:
    """A name without the beginning that makes it an id; a skill may be called so, though."""
    if written.startswith(SKILL_ID) and runtime.catalog.snapshot.winner(written) is None:
        return written.removeprefix(SKILL_ID)
    return written


def skill_from_path(call: RequestContext) -> Skill:
    """The skill that an address means, also one that is switched off.

    Raises:
        SkillNotFoundError: If there is none.
    """
    return call.runtime.catalog.find(skill_name_from_path(call))


def make_etag(sha256: str) -> str:
    """The mark of a state."""
    return f'"{sha256}"'


def if_match_sha256(call: RequestContext, skill: Skill) -> str:
    """The state that a client says it saw, from `If-Match`; empty if it does not care."""
    written = call.request.headers.get("if-match")
    if written is None or written.strip() == "*":
        return ""
    tags = [tag.strip() for tag in written.split(",")]
    now = skill.fingerprint.sha256 if skill.fingerprint else ""
    if make_etag(now) in tags:
        return now
    return tags[0].strip('"') or _NO_MATCH


def short_version(sha256: str) -> str:
    """What a version is called."""
    return sha256[:_SHORT_HASH] or UNVERSIONED


async def present_skill(runtime: Runtime, skill: Skill) -> SkillSchema:
    """One skill as it is now."""

    def look() -> SkillSchema:
        mark = skill.fingerprint
        is_off = any(skill is other for other in runtime.catalog.snapshot.disabled)
        kept = ListedSkill(
            skill=skill,
            state="disabled" if is_off else "enabled",
            is_pinned=skill.name in runtime.states.pinned(),
            verdict=runtime.manager.scan_results.get(mark.sha256) if mark else None,
        )
        return _present(runtime, kept)

    return await anyio.to_thread.run_sync(look)


async def present_skills(runtime: Runtime, kept: Sequence[ListedSkill]) -> list[SkillSchema]:
    """Skills as they are now."""
    look = partial(_present, runtime)
    return await anyio.to_thread.run_sync(lambda: list(map(look, kept)))


def _present(runtime: Runtime, kept: ListedSkill) -> SkillSchema:
    skill, mark = kept.skill, kept.skill.fingerprint
    sha256 = mark.sha256 if mark else ""
    now = modified_at(skill.root) if skill.root else 0.0
    is_own = skill.provenance.writable and kept.state != "shadowed"
    times = {**(runtime.store.versions.created(skill.name) if is_own else {}), sha256: now}
    latest = max(times, key=lambda version: (times[version], version == sha256))
    return SkillSchema(
        id=f"{SKILL_ID}{skill.name}",
        name=skill.name,
        display_name=skill.name,
        display_title=skill.name,
        description=skill.description,
        created_at=int(min(times.values())),
        updated_at=int(now),
        default_version=short_version(sha256),
        latest_version=short_version(latest),
        latest_version_id=f"{VERSION_ID}{short_version(latest)}",
        source=SkillSourceSchema(
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
        findings=_finding_counts(kept.verdict),
        has_script=has_script(skill),
        user_invocable=skill.manifest.user_invocable,
        model_invocable=not skill.manifest.disable_model_invocation,
    )


def _finding_counts(verdict: ScanSummary | None) -> FindingCountSchema:
    counts = verdict.counts if verdict else {}
    return FindingCountSchema(
        worst=worst_level(counts), count=sum(counts.values()), looked=verdict is not None
    )


def present_problems(
    problems: Iterable[Problem], language: locales.Language
) -> list[ProblemSchema]:
    """Broken rules, in words."""
    return [
        ProblemSchema(
            code=problem.code,
            where=problem.where,
            severity=problem.severity,
            message=said.message,
            hint=said.hint,
        )
        for problem in problems
        for said in (problem.localized(language),)
    ]


def present_findings(
    findings: Iterable[Finding], language: locales.Language
) -> list[FindingSchema]:
    """Findings, in words."""
    return [
        FindingSchema(
            rule=finding.rule,
            level=finding.level,
            title=said.title,
            advice=said.advice,
            path=finding.path,
            line=finding.line,
            excerpt=finding.excerpt,
            details=dict(finding.details),
            owasp=list(finding.owasp),
        )
        for finding in findings
        for said in (finding.localized(language),)
    ]


def present_result(done: InstallResult, language: locales.Language) -> InstallResultSchema:
    """What came of a change."""
    return InstallResultSchema(
        changed=done.has_changed,
        indexed=done.index_error is None,
        problems=present_problems(done.problems, language),
        findings=present_findings(done.findings, language),
    )
