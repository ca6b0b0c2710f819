"""Scripts of skills, run for a client, and ended when it goes away."""

from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TypeVar

import anyio
from starlette.requests import Request
from starlette.responses import Response

from apexbridge.activation.scripts import ScriptCall
from apexbridge.errors import PermissionDeniedError, RequestError, ToolInputError
from apexbridge.sandbox.base import ExecutionResult
from apexbridge.server.routing import RequestContext
from apexbridge.server.skills.presenters import json_response, skill_name_from_path
from apexbridge.server.skills.schemas import OutputFileSchema, ScriptRunSchema
from apexbridge.server.skills.uploads import RunRequest

_MAX_INLINE_BYTES = 8_000_000
_ARGUMENTS_TOO_LONG = "E2BIG"

Value = TypeVar("Value")


async def run(call: RequestContext) -> Response:
    """Run a script in the sandbox. What it did is the reply, whatever that was."""
    skill = call.runtime.catalog.get(skill_name_from_path(call))
    body = await call.body(RunRequest)
    limits = call.runtime.script_runner.limits()
    if body.timeout is not None:
        limits = replace(limits, wall_seconds=min(body.timeout, limits.wall_seconds))
    wish = ScriptCall(
        skill=skill,
        script=body.script,
        arguments=tuple(body.arguments),
        stdin=_as_bytes(body.stdin),
        limits=limits,
    )

    async def execute() -> ExecutionResult:
        try:
            return await call.runtime.script_runner.execute(wish)
        except PermissionError as error:
            raise PermissionDeniedError(error.strerror or "") from None

    result = await run_until_disconnect(call.request, execute)
    if result.error == _ARGUMENTS_TOO_LONG:
        detail = "its arguments are longer than this system can pass"
        raise ToolInputError(detail, code="script_unusable", name=skill.name)
    return json_response(_present_run(skill.name, body.script, result))


def _as_bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise RequestError("stdin: it holds half a character", param="stdin") from None


async def run_until_disconnect(request: Request, work: Callable[[], Awaitable[Value]]) -> Value:
    """Do something as long as the client waits for it; the body must have been read.

    Raises:
        RequestError: If it went away; nobody will read that.
    """
    done = list[Value]()
    failures = list[Exception]()
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass
            tasks.cancel_scope.cancel()

        tasks.start_soon(watch)
        try:
            done.append(await work())
        except Exception as error:  # noqa: BLE001  # raised below, where no group wraps it
            failures.append(error)
        tasks.cancel_scope.cancel()
    if failures:
        raise failures[0]
    if not done:
        raise RequestError("the client went away")
    return done[0]


def _present_run(skill: str, script: str, result: ExecutionResult) -> ScriptRunSchema:
    return ScriptRunSchema(
        skill=skill,
        script=script,
        outcome=result.outcome,
        exit_code=result.exit_code,
        stdout=result.stdout.decode("utf-8", "replace"),
        stderr=result.stderr.decode("utf-8", "replace"),
        seconds=round(result.duration, 3),
        error=result.error,
        timed_out=result.timed_out,
        truncated=result.truncated,
        isolation=result.isolation,
        files=_output_files(result.produced),
        not_taken={_escape(name): why for name, why in result.not_taken.items()},
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
    """A name that is no text on this system can still be told."""
    return name.encode("utf-8", "backslashreplace").decode()
