"""The models that clients can name."""

from typing import Literal

import orjson
from pydantic import BaseModel
from starlette.responses import Response

from apexbridge.errors import RequestError
from apexbridge.runtime import Runtime
from apexbridge.runtime.model_factory import EMBEDDED_MODEL
from apexbridge.server.routing import RequestContext, Route

DEFAULT_MODEL = "apexbridge"
"""Whatever model settings name."""
_CREATED = 1_700_000_000


class ModelCard(BaseModel):
    """A model, as OpenAI describes one."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(BaseModel):
    """All of them."""

    object: Literal["list"]
    data: list[ModelCard]


def model_names(runtime: Runtime) -> tuple[str, ...]:
    """The names that mean the configured model."""
    return tuple(dict.fromkeys((runtime.chat_service.model.name, DEFAULT_MODEL)))


def upstream_name(runtime: Runtime, wanted: str) -> str:
    """What a model is called behind this server; empty for the one that settings name.

    Raises:
        RequestError: `model_unknown` if there is nobody behind it to know another.
    """
    name = runtime.chat_service.model.name
    if wanted in {"", DEFAULT_MODEL, name}:
        return ""
    if name == EMBEDDED_MODEL:
        raise RequestError(code="model_unknown", name=wanted, param="model")
    return wanted


async def _list_models(call: RequestContext) -> Response:
    cards = [_card(name) for name in model_names(call.runtime)]
    return _json({"object": "list", "data": cards})


async def _show_model(call: RequestContext) -> Response:
    name = call.at("id")
    if name not in model_names(call.runtime):
        raise RequestError(code="model_unknown", name=name, param="model")
    return _json(_card(name))


def _card(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": _CREATED, "owned_by": DEFAULT_MODEL}


def _json(value: object) -> Response:
    return Response(orjson.dumps(value), media_type="application/json")


ROUTES = (
    Route(
        method="GET",
        path="/v1/models",
        endpoint=_list_models,
        summary="The models that can be asked for",
        scope="chat",
        gives=ModelList,
    ),
    Route(
        method="GET",
        path="/v1/models/{id:path}",
        endpoint=_show_model,
        summary="One model",
        scope="chat",
        gives=ModelCard,
        errors=(404,),
    ),
)
