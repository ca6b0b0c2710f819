"""Health endpoints: liveness, readiness and Prometheus metrics; public."""

from typing import Literal

import anyio.to_thread
from pydantic import BaseModel
from starlette.responses import Response

from apexbridge.server.metrics import MEDIA_TYPE
from apexbridge.server.routing import AppState, RequestContext, Router, json_response

_OK, _UNAVAILABLE = 200, 503

router = Router(scope=None)


class Health(BaseModel):
    """Liveness."""

    status: Literal["ok"] = "ok"


class Readiness(BaseModel):
    """Readiness, and the reason if the server is not ready."""

    status: Literal["ready", "starting", "stopping", "broken"]


@router.get("/healthz", response=Health)
async def healthz(ctx: RequestContext) -> Response:
    """Liveness probe."""
    return json_response(Health())


@router.get("/readyz", response=Readiness, errors=(_UNAVAILABLE,))
async def readyz(ctx: RequestContext) -> Response:
    """Readiness probe: HTTP 503 until warm-up ends, although requests are served before that.

    It is also 503 while a file of the data folder is damaged: what needs it fails. The log says
    which, and `doctor`; this endpoint is public.
    """
    status = await _readiness(ctx.state)
    return json_response(Readiness(status=status), _OK if status == "ready" else _UNAVAILABLE)


async def _readiness(state: AppState) -> Literal["ready", "starting", "stopping", "broken"]:
    if state.concurrency.is_stopping:
        return "stopping"
    if state.concurrency.is_starting:
        return "starting"
    damaged = await anyio.to_thread.run_sync(state.runtime.state_check.damaged)
    return "broken" if damaged else "ready"


@router.get("/metrics", media_type="text/plain")
async def metrics(ctx: RequestContext) -> Response:
    """Metrics in the Prometheus text format."""
    state, runtime = ctx.state, ctx.runtime
    state.metrics.set_gauges(
        in_progress=len(state.concurrency),
        skills=len(runtime.catalog.skills),
        index=runtime.index_service.size,
        sandbox=runtime.script_runner.sandbox_kind,
    )
    return Response(state.metrics.render(), media_type=MEDIA_TYPE)
