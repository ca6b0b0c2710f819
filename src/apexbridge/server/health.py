"""Whether the server lives, whether it is ready, and what it counted; open to everybody."""

from typing import Literal

import orjson
from pydantic import BaseModel
from starlette.responses import Response

from apexbridge.errors import StorageError
from apexbridge.server.metrics import MEDIA_TYPE
from apexbridge.server.routing import AppState, RequestContext, Route

_OK, _UNAVAILABLE = 200, 503


class Health(BaseModel):
    """That it lives."""

    status: Literal["ok"] = "ok"


class Readiness(BaseModel):
    """Whether it takes requests, and if not, why."""

    status: Literal["ready", "starting", "stopping", "broken"]


async def healthz(call: RequestContext) -> Response:
    """It answers, so it lives."""
    return _json(Health())


async def readyz(call: RequestContext) -> Response:
    """It takes requests from its first breath on, but sends nobody here before it is warm."""
    status = _readiness(call.house)
    return _json(Readiness(status=status), _OK if status == "ready" else _UNAVAILABLE)


def _readiness(house: AppState) -> Literal["ready", "starting", "stopping", "broken"]:
    if house.traffic.is_stopping:
        return "stopping"
    if house.traffic.is_starting:
        return "starting"
    try:
        house.keys.check()
    except StorageError:
        return "broken"
    return "ready"


async def metrics(call: RequestContext) -> Response:
    """Everything that is counted."""
    house, runtime = call.house, call.runtime
    house.metrics.stands(
        going=len(house.traffic),
        skills=len(runtime.catalog.skills),
        index=runtime.index_service.size,
        sandbox=runtime.script_runner.sandbox_kind,
    )
    return Response(house.metrics.text(), media_type=MEDIA_TYPE)


def _json(model: BaseModel, status: int = _OK) -> Response:
    return Response(orjson.dumps(model.model_dump()), status, media_type="application/json")


ROUTES = (
    Route(
        method="GET",
        path="/healthz",
        endpoint=healthz,
        summary="Whether the server lives.",
        scope=None,
        gives=Health,
    ),
    Route(
        method="GET",
        path="/readyz",
        endpoint=readyz,
        summary="Whether the server takes requests.",
        scope=None,
        gives=Readiness,
        errors=(_UNAVAILABLE,),
    ),
    Route(
        method="GET",
        path="/metrics",
        endpoint=metrics,
        summary="What the server counted, for Prometheus.",
        scope=None,
        media="text/plain",
    ),
)
