"""Runs of scripts: what each one did, and the end of what it wrote."""

from functools import partial

import anyio.to_thread
from starlette.responses import Response

from apexbridge.runtime.run_store import ScriptRun
from apexbridge.server.admin.responses import json_response, record_not_found
from apexbridge.server.admin.schemas import PageQuery, RunDetail, RunList, RunSummary
from apexbridge.server.routing import RequestContext, Route


async def list_runs(call: RequestContext) -> Response:
    """The latest runs, whichever way they came in."""
    asked, runs = call.query(PageQuery), call.runtime.script_runner.runs
    if asked.before:
        await _find_run(call, asked.before)
    look = partial(runs.latest, asked.limit + 1, before=asked.before)
    found = await anyio.to_thread.run_sync(look)
    lines = [RunSummary.model_validate(run) for run in found[: asked.limit]]
    return json_response(RunList(data=lines, has_more=len(found) > asked.limit))


async def show_run(call: RequestContext) -> Response:
    """A run, whole."""
    return json_response(RunDetail.model_validate(await _find_run(call, call.at("id"))))


async def _find_run(call: RequestContext, written: str) -> ScriptRun:
    found = await anyio.to_thread.run_sync(call.runtime.script_runner.runs.find, written)
    if found is None:
        raise record_not_found("run", written)
    return found


ROUTES: tuple[Route, ...] = (
    Route(
        method="GET",
        path="/v1/runs",
        endpoint=list_runs,
        summary="List runs of scripts, the latest first",
        scope="admin",
        asks=PageQuery,
        gives=RunList,
        errors=(404,),
    ),
    Route(
        method="GET",
        path="/v1/runs/{id}",
        endpoint=show_run,
        summary="Show a run and the end of what it wrote",
        scope="admin",
        gives=RunDetail,
        errors=(404,),
    ),
)
