"""Runs of scripts: what each one did, and the end of what it wrote."""

from functools import partial

import anyio.to_thread
from starlette.responses import Response

from apexbridge.runtime.runs import Run
from apexbridge.server.base import Call, Route
from apexbridge.server.records_replies import reply, unknown
from apexbridge.server.records_shapes import PageAsked, RunLine, RunList, RunShape


async def list_runs(call: Call) -> Response:
    """The latest runs, whichever way they came in."""
    asked, runs = call.query(PageAsked), call.runtime.executing.runs
    if asked.before:
        await _run_of(call, asked.before)
    look = partial(runs.latest, asked.limit + 1, before=asked.before)
    found = await anyio.to_thread.run_sync(look)
    lines = [RunLine.model_validate(run) for run in found[: asked.limit]]
    return reply(RunList(data=lines, has_more=len(found) > asked.limit))


async def show_run(call: Call) -> Response:
    """A run, whole."""
    return reply(RunShape.model_validate(await _run_of(call, call.at("id"))))


async def _run_of(call: Call, written: str) -> Run:
    found = await anyio.to_thread.run_sync(call.runtime.executing.runs.find, written)
    if found is None:
        raise unknown("run", written)
    return found


ROUTES: tuple[Route, ...] = (
    Route(
        method="GET",
        path="/v1/runs",
        endpoint=list_runs,
        summary="List runs of scripts, the latest first",
        scope="admin",
        asks=PageAsked,
        gives=RunList,
        errors=(404,),
    ),
    Route(
        method="GET",
        path="/v1/runs/{id}",
        endpoint=show_run,
        summary="Show a run and the end of what it wrote",
        scope="admin",
        gives=RunShape,
        errors=(404,),
    ),
)
