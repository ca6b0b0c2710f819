"""Script endpoint of the skills API: run a skill's script in the sandbox."""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace

from pydantic import Field
from starlette.responses import Response

from apexbridge.activation.scripts import ScriptCall
from apexbridge.errors import PermissionDeniedError, RequestError, ToolInputError
from apexbridge.sandbox.base import ExecutionResult
from apexbridge.server.disconnect import run_until_disconnect
from apexbridge.server.routing import RequestContext, RequestModel, Router, json_response
from apexbridge.server.skills.presenters import request_language, skill_name_from_path
from apexbridge.server.skills.run_schemas import OutputFileSchema, ScriptRunSchema

_MAX_INLINE_BYTES = 8_000_000
_ARGUMENTS_TOO_LONG = "E2BIG"

router = Router("/v1/skills", scope="exec")


class RunRequest(RequestModel):
    """Script to run."""

    script: str = Field(default="", max_length=1_000)
    """Path in the skill; empty for the only or the main script."""
    arguments: list[str] = Field(default_factory=list[str], max_length=10_000)
    stdin: str = ""
    timeout: float | None = Field(default=None, gt=0)
    """Seconds; settings are the upper bound."""


@router.post(
    "/{id}/run", body=RunRequest, response=ScriptRunSchema, errors=(404, 413, 415, 422, 503)
)
async def run(ctx: RequestContext) -> Response:
    """Run a script in the sandbox; a failing script is a successful response."""
    skill = ctx.runtime.catalog.get(skill_name_from_path(ctx))
    body = await ctx.body(RunRequest)
    limits = ctx.runtime.script_runner.limits()
    if body.timeout is not None:
        limits = replace(limits, wall_seconds=min(body.timeout, limits.wall_seconds))
    script_call = ScriptCall(
        skill=skill,
        script=body.script,
        arguments=tuple(body.arguments),
        stdin=_as_bytes(body.stdin),
        limits=limits,
    )

    async def execute() -> ExecutionResult:
        try:
            return await ctx.runtime.script_runner.execute(script_call)
        except PermissionError as error:
            raise PermissionDeniedError(error.strerror or "") from None

    result = await run_until_disconnect(ctx.request, execute)
    if result.error == _ARGUMENTS_TOO_LONG:
        detail = "the arguments exceed the operating system's limit (E2BIG)"
        raise ToolInputError(detail, code="script_unusable", name=skill.name)
    return json_response(_present_run(ctx, body.script, result, skill.name))


def _as_bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise RequestError("stdin: not valid Unicode (lone surrogate)", param="stdin") from None


def _present_run(
    ctx: RequestContext, script: str, result: ExecutionResult, skill: str
) -> ScriptRunSchema:
    return ScriptRunSchema(
        skill=skill,
        script=script,
        outcome=result.outcome,
        exit_code=result.exit_code,
        stdout=result.stdout.decode("utf-8", "replace"),
        stderr=result.stderr.decode("utf-8", "replace"),
        seconds=round(result.duration, 3),
        error=result.error,
        reason=result.explain(request_language(ctx)),
        timed_out=result.timed_out,
        truncated=result.truncated,
        isolation=result.isolation,
        files=_output_files(result.produced),
        skipped_files={_escape(name): why for name, why in result.not_taken.items()},
    )


def _output_files(produced: Mapping[str, bytes]) -> list[OutputFileSchema]:
    is_small = sum(map(len, produced.values())) <= _MAX_INLINE_BYTES
    return [
        OutputFileSchema(
            path=_escape(path),
            size=len(data),
            base64=b64encode(data).decode() if is_small else None,
        )
        for path, data in produced.items()
    ]


def _escape(name: str) -> str:
    """Escape a file name that is not valid UTF-8."""
    return name.encode("utf-8", "backslashreplace").decode()
