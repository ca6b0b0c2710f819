"""Script endpoint of the skills API: run a skill's script in the sandbox."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import anyio.to_thread
from pydantic import Field
from starlette.responses import Response

from apexbridge.activation.input_files import MAX_INPUT_FILES, InputFile, InputFiles
from apexbridge.activation.scripts import ScriptCall
from apexbridge.errors import PermissionDeniedError, RequestError, ToolInputError
from apexbridge.paths import printable_path
from apexbridge.sandbox.base import ExecutionResult
from apexbridge.server.admin.run_files import file_url
from apexbridge.server.disconnect import run_until_disconnect
from apexbridge.server.request_guard import is_multipart
from apexbridge.server.routing import (
    RequestContext,
    RequestModel,
    Router,
    json_response,
    parse_json,
    parse_model,
)
from apexbridge.server.skills.presenters import request_language, skill_name_from_path
from apexbridge.server.skills.run_schemas import OutputFileSchema, ScriptRunSchema
from apexbridge.server.skills.uploads import receive_form

_MAX_INLINE_BYTES = 8_000_000
_NOT_KEPT = "too large for the response, and files are not kept"
_ARGUMENTS_TOO_LONG = "E2BIG"
_REQUEST_FIELD = "request"

router = Router("/v1/skills", scope="exec")


class RunRequest(RequestModel):
    """Script to run."""

    script: str = Field(default="", max_length=1_000)
    """Path in the skill; empty for the only or the main script."""
    arguments: list[str] = Field(default_factory=list[str], max_length=10_000)
    stdin: str = ""
    timeout: float | None = Field(default=None, gt=0)
    """Seconds; settings are the upper bound."""
    files: list[InputFile] = Field(default_factory=list[InputFile], max_length=MAX_INPUT_FILES)
    """Files for the script's working directory."""


@router.post(
    "/{id}/run",
    body=RunRequest,
    multipart=True,
    response=ScriptRunSchema,
    errors=(404, 413, 415, 422, 503, 507),
)
async def run(ctx: RequestContext) -> Response:
    """Run a script in the sandbox; a failing script is a successful response.

    The body is JSON; or a form with the files, and that JSON as its field `request`.
    """
    skill = ctx.runtime.catalog.get(skill_name_from_path(ctx))
    body, inputs = await _read_request(ctx)
    limits = ctx.runtime.script_runner.limits()
    if body.timeout is not None:
        limits = replace(limits, wall_seconds=min(body.timeout, limits.wall_seconds))
    script_call = ScriptCall(
        skill=skill,
        script=body.script,
        arguments=tuple(body.arguments),
        stdin=_as_bytes(body.stdin),
        inputs=inputs,
        limits=limits,
        owner=f"{ctx.caller.id}:.run",  # no session has a name like this
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


async def _read_request(ctx: RequestContext) -> tuple[RunRequest, Mapping[str, bytes]]:
    """Read the request and its input files.

    Raises:
        RequestError: If it is neither JSON nor a form, or too large.
        ToolInputError: If a file is invalid, or all together are too large.
    """
    if not is_multipart(ctx.request.scope["state"]["headers"]):
        body = await ctx.body(RunRequest)
        return body, InputFiles.from_client(body.files).files
    async with receive_form(ctx) as form:
        unknown = form.fields.keys() - {_REQUEST_FIELD}
        if unknown:
            raise RequestError("unexpected field of the form", param=min(unknown))
        sent = form.fields.get(_REQUEST_FIELD)
        body = parse_model(RunRequest, parse_json(sent.encode()) if sent else {})
        inputs = InputFiles.from_client(body.files)
        await anyio.to_thread.run_sync(_add_uploads, inputs, form.files)
    return body, inputs.files


def _add_uploads(inputs: InputFiles, files: Sequence[tuple[str, Path]]) -> None:
    for name, path in files:
        with path.open("rb") as file:
            inputs.add(name, file.read(inputs.budget + 1))


def _as_bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise RequestError("stdin: not valid Unicode (lone surrogate)", param="stdin") from None


def _present_run(
    ctx: RequestContext, script: str, result: ExecutionResult, skill: str
) -> ScriptRunSchema:
    files, skipped = _output_files(result), {**result.not_taken}
    if any(file.base64 is None and file.url is None for file in files):
        skipped |= dict.fromkeys(result.produced, _NOT_KEPT)
    return ScriptRunSchema(
        id=result.run_id,
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
        files=files,
        skipped_files={printable_path(name): why for name, why in skipped.items()},
    )


def _output_files(result: ExecutionResult) -> list[OutputFileSchema]:
    is_small = sum(map(len, result.produced.values())) <= _MAX_INLINE_BYTES
    return [
        OutputFileSchema(
            path=path,
            size=len(data),
            base64=b64encode(data).decode() if is_small else None,
            url=file_url(result.run_id, path) if result.folder else None,
        )
        for path, data in ((printable_path(n), data) for n, data in result.produced.items())
    ]
