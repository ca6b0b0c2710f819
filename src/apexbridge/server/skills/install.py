"""Install from an address: list the skills that it has, or install some of them."""

from typing import Literal

from pydantic import Field
from starlette.responses import Response

from apexbridge.runtime.hidden_paths import hide_paths
from apexbridge.runtime.install_service import InstallOutcome, InstallService, Offers
from apexbridge.server.routing import (
    RequestContext,
    RequestModel,
    Router,
    json_response,
    parse_model,
    read_json,
)
from apexbridge.server.skills.presenters import present_problems, request_language
from apexbridge.server.skills.schemas import ProblemSchema, ResponseModel

router = Router("/v1/skills", scope="skills:write")


class InstallRequest(RequestModel):
    """Address to install from, and the skills of it."""

    source: str = Field(min_length=1, max_length=2_000)
    """`owner/repo[@ref][/path]`, or an https URL of a git repository, zip or tar."""
    skills: list[str] = Field(default_factory=list[str], max_length=500)
    """Names or paths; empty for the only skill."""
    all: bool = False
    """Every skill of the address."""
    dry_run: bool = False
    """List its skills, and install none."""


class InstallErrorSchema(ResponseModel):
    """Why a skill was not installed."""

    code: str
    message: str
    hint: str


class SourceSkillSchema(ResponseModel):
    """Skill of an address, and what became of it."""

    name: str
    description: str
    path: str
    """Folder of the skill at the address."""
    plugin: str
    installed: bool
    sha256: str
    """Content hash as installed; empty if it was not."""
    problems: list[ProblemSchema]
    error: InstallErrorSchema | None


class SourceInstallSchema(ResponseModel):
    """Result of an installation from an address."""

    object: Literal["skill.install"] = "skill.install"
    source: str
    ref: str
    revision: str
    """Commit, or `sha256:` of the archive."""
    skills: list[SourceSkillSchema]


@router.post(
    "/install",
    body=InstallRequest,
    response=SourceInstallSchema,
    errors=(403, 404, 409, 413, 415, 422, 502, 503, 507),
)
async def install(ctx: RequestContext) -> Response:
    """Install skills from GitHub, GitLab, Codeberg, or an https address."""
    body = parse_model(InstallRequest, await read_json(ctx.request))
    service = ctx.runtime.installer()
    # Never a path, file:// or ssh: those read this machine, or use its keys.
    address = await service.parse(body.source, is_web_only=True)
    with ctx.cancel_on_disconnect():
        async with service.open(address) as offers:
            outcomes = await _install(service, offers, body)
            return json_response(_present(ctx, offers, outcomes))


async def _install(
    service: InstallService, offers: Offers, body: InstallRequest
) -> dict[str, InstallOutcome]:
    """Install the chosen skills; the error of a single one is that of the request."""
    if body.dry_run:
        return {}
    chosen = offers.choose(body.skills, every=body.all)
    outcomes = {skill.where: await service.install_offer(offers, skill) for skill in chosen}
    first = next(iter(outcomes.values()), None)
    if first is not None and first.error is not None and len(outcomes) == 1:
        raise first.error
    return outcomes


def _present(
    ctx: RequestContext, offers: Offers, outcomes: dict[str, InstallOutcome]
) -> SourceInstallSchema:
    """Show the skills that were chosen; without an installation all there are."""
    language, address = request_language(ctx), offers.address
    shown = [skill for skill in offers.skills if not outcomes or skill.where in outcomes]
    return SourceInstallSchema(
        source=address.source,
        ref=address.ref,
        revision=address.revision,
        skills=[
            SourceSkillSchema(
                name=skill.name,
                description=skill.description,
                path=skill.where,
                plugin=skill.plugin,
                installed=(done := outcomes.get(skill.where)) is not None and done.error is None,
                sha256=_sha256(done),
                problems=present_problems(skill.problems, language),
                error=_error(ctx, done),
            )
            for skill in shown
        ],
    )


def _sha256(done: InstallOutcome | None) -> str:
    result = done.result if done else None
    return result.skill.fingerprint.sha256 if result and result.skill.fingerprint else ""


def _error(ctx: RequestContext, done: InstallOutcome | None) -> InstallErrorSchema | None:
    if done is None or done.error is None:
        return None
    text = done.error.localized(request_language(ctx))
    return InstallErrorSchema(
        code=done.error.code, message=hide_paths(text.message), hint=hide_paths(text.hint)
    )
