"""Presenters: resolve the skill of a path, and convert skills and findings to schemas."""

import re
from collections.abc import Iterable, Sequence
from functools import partial

import anyio.to_thread

from apexbridge import locales
from apexbridge.activation.scripts import has_script
from apexbridge.errors import SkillNotFoundError
from apexbridge.lifecycle.skill_list import ListedSkill
from apexbridge.lifecycle.transactions import InstallResult, sha256_of
from apexbridge.lifecycle.version_store import modified_at
from apexbridge.runtime import Runtime
from apexbridge.runtime.hidden_paths import hide_paths
from apexbridge.scanner.report import Finding, worst_level
from apexbridge.server.routing import RequestContext
from apexbridge.server.skills.schemas import (
    FindingCountSchema,
    FindingSchema,
    InstallResultSchema,
    ProblemSchema,
    SignatureSchema,
    SkillSchema,
    SkillSourceSchema,
)
from apexbridge.skills.model import Origin, Problem, Skill

SKILL_ID, VERSION_ID = "skill_", "skillver_"
UNVERSIONED = "current"
"""Version name of a skill that has no files to hash."""
_SHORT_HASH = 12
_NO_MATCH = "?"
"""ETag that matches no skill."""
_MAX_NAME = 200
_SEPARATOR = re.compile(rb"%2f|%5c|%00", re.IGNORECASE)


def request_language(ctx: RequestContext) -> locales.Language:
    """Return the language of `Accept-Language`."""
    return locales.parse_language(ctx.request.headers.get("accept-language"))


def skill_name_from_path(ctx: RequestContext) -> str:
    """Return the skill name in the path, given as id or name.

    Raises:
        SkillNotFoundError: If it cannot be a skill name.
    """
    written = ctx.path_param("id")
    is_odd = not written.isprintable() or written != written.strip() or len(written) > _MAX_NAME
    if is_odd or _SEPARATOR.search(ctx.request.scope.get("raw_path", b"")):
        raise SkillNotFoundError(escape_unprintable(written[:_MAX_NAME]))
    return strip_id_prefix(ctx.runtime, written)


def escape_unprintable(text: str) -> str:
    """Escape control and invisible characters of client input."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


def strip_id_prefix(runtime: Runtime, written: str) -> str:
    """Strip the prefix of an id, unless a skill has that prefix in its name."""
    if written.startswith(SKILL_ID) and runtime.catalog.snapshot.winner(written) is None:
        return written.removeprefix(SKILL_ID)
    return written


def skill_from_path(ctx: RequestContext) -> Skill:
    """Return the skill of the path, enabled or disabled."""
    return ctx.runtime.catalog.find(skill_name_from_path(ctx))


def make_etag(sha256: str) -> str:
    """Format a content hash as an ETag."""
    return f'"{sha256}"'


def if_match_sha256(ctx: RequestContext, skill: Skill) -> str:
    """Return the content hash of `If-Match`, for optimistic locking; empty if there is none."""
    written = ctx.request.headers.get("if-match")
    if written is None or written.strip() == "*":
        return ""
    tags = [tag.strip() for tag in written.split(",")]
    now = sha256_of(skill)
    if make_etag(now) in tags:
        return now
    return tags[0].strip('"') or _NO_MATCH


def short_version(sha256: str) -> str:
    """Return the short name of a version."""
    return sha256[:_SHORT_HASH] or UNVERSIONED


async def present_skill(runtime: Runtime, skill: Skill) -> SkillSchema:
    """Convert a skill to its response schema."""

    def look() -> SkillSchema:
        mark = skill.fingerprint
        is_off = any(skill is other for other in runtime.catalog.snapshot.disabled)
        kept = ListedSkill(
            skill=skill,
            state="disabled" if is_off else "enabled",
            is_pinned=skill.name in runtime.states.pinned(),
            scan=runtime.manager.scan_results.get(mark.sha256) if mark else None,
        )
        return _present(runtime, kept)

    return await anyio.to_thread.run_sync(look)


async def present_skills(runtime: Runtime, kept: Sequence[ListedSkill]) -> list[SkillSchema]:
    """Convert a list of skills to response schemas."""
    look = partial(_present, runtime)
    return await anyio.to_thread.run_sync(lambda: list(map(look, kept)))


def _present(runtime: Runtime, kept: ListedSkill) -> SkillSchema:
    skill, mark = kept.skill, kept.skill.fingerprint
    sha256 = mark.sha256 if mark else ""
    now = modified_at(skill.root) if skill.root else 0.0
    is_own = skill.provenance.writable and kept.state != "shadowed"
    times = {**(runtime.store.versions.created(skill.name) if is_own else {}), sha256: now}
    counts = kept.scan.counts if kept.scan else {}
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
        findings=FindingCountSchema(
            worst=worst_level(counts), count=sum(counts.values()), scanned=kept.scan is not None
        ),
        has_script=has_script(skill),
        user_invocable=skill.manifest.user_invocable,
        model_invocable=not skill.manifest.disable_model_invocation,
    )


def present_problems(
    problems: Iterable[Problem], language: locales.Language
) -> list[ProblemSchema]:
    """Convert validation problems, with translated messages."""
    return [
        ProblemSchema(
            code=problem.code,
            where=problem.where,
            severity=problem.severity,
            message=hide_paths(said.message),
            hint=hide_paths(said.hint),
        )
        for problem in problems
        for said in (problem.localized(language),)
    ]


def present_findings(
    findings: Iterable[Finding], language: locales.Language
) -> list[FindingSchema]:
    """Convert scanner findings, with translated messages."""
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
    """Convert the result of an install or update."""
    return InstallResultSchema(
        changed=done.has_changed,
        indexed=done.index_error is None,
        problems=present_problems(done.problems, language),
        findings=present_findings(done.findings, language),
        signature=SignatureSchema.model_validate(done.signature),
    )
