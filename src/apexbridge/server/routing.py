"""Bodies of requests, read within limits and taken only where they make sense."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn, TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive

from apexbridge.api_keys import ApiKeyStore, Scope
from apexbridge.errors import RequestError
from apexbridge.runtime import Runtime
from apexbridge.server.approvals import ApprovalQueue
from apexbridge.server.disconnect import DisconnectMonitor
from apexbridge.server.limits import ConcurrencyLimiter, InFlightRequest
from apexbridge.server.metrics import Metrics
from apexbridge.server.sessions import ConsoleSessions
from apexbridge.settings import ServerSettings


async def read_json(request: Request) -> object:
    """The body as JSON, as strictly as the format is written: no NaN, no name twice.

    Raises:
        RequestError: If it is none.
    """
    return parse_json(await _read_body(request.receive))


async def _read_body(receive: Receive) -> bytes:
    """All of a body: most come in one piece."""
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body", False):
        return message.get("body", b"")
    pieces = list[bytes]()
    while message["type"] == "http.request":
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(pieces)
        message = await receive()
    raise ClientDisconnect


def parse_json(data: bytes) -> object:
    """Bytes as JSON.

    Raises:
        RequestError: If they are none.
    """
    try:
        value = _STRICT_DECODER.decode(data.decode("utf-8"))
        if b"\\u" in data:
            orjson.loads(data)  # half a character, written as an escape, is refused by this one
    except (ValueError, RecursionError) as error:
        raise RequestError(str(error) or "it is nested too deep") from None
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return found


def _reject_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError("a number is too large")
    return value


_STRICT_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique_keys, parse_constant=_reject_constant, parse_float=_finite
)


Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks: a key, or the console of the person who started the server."""

    id: str
    name: str
    scopes: frozenset[Scope]

    def may(self, scope: Scope) -> bool:
        """Whether a scope was given to it; `admin` is given none of the others."""
        return scope in self.scopes


@dataclass(frozen=True, slots=True, kw_only=True)
class AppState:
    """What the routes of one server share."""

    runtime: Runtime
    keys: ApiKeyStore
    approvals: ApprovalQueue
    settings: ServerSettings
    leaving: DisconnectMonitor = field(default_factory=DisconnectMonitor)
    sessions: ConsoleSessions = field(default_factory=ConsoleSessions)
    traffic: ConcurrencyLimiter = field(default_factory=ConcurrencyLimiter)
    metrics: Metrics = field(default_factory=Metrics)


class RequestContext:
    """One request on its way through a route."""

    def __init__(self, request: Request, house: AppState, caller: Caller) -> None:
        self.request, self.house, self.caller = request, house, caller

    @property
    def runtime(self) -> Runtime:
        """Everything there is."""
        return self.house.runtime

    @property
    def flight(self) -> InFlightRequest:
        """The request as one of those that are worked on."""
        return self.request.scope["state"]["flight"]

    def at(self, name: str) -> str:
        """A part of the address by its name in the route's path."""
        return self.request.path_params[name]

    async def body(self, model: type[Model]) -> Model:
        """What the client sent, read strictly.

        Raises:
            RequestError: If it is no JSON, or not what the route takes.
        """
        return parse_model(model, await read_json(self.request))

    def query(self, model: type[Model]) -> Model:
        """What stands behind the question mark; a repeated name is taken once.

        Raises:
            RequestError: If it is not what the route takes.
        """
        return parse_model(model, dict(self.request.query_params))


Endpoint = Callable[[RequestContext], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """An address, what it takes and gives, and who may use it; OpenAPI is made of it."""

    method: Literal["GET", "POST", "PATCH", "DELETE"]
    path: str
    """As starlette writes it: `/v1/skills/{id}`."""
    endpoint: Endpoint
    summary: str
    scope: Scope | None
    """None for what is open to everybody, keyless."""
    also: Scope | None = None
    """Another scope that opens it as well."""
    takes: type[BaseModel] | None = None
    """The JSON body."""
    asks: type[BaseModel] | None = None
    """The query parameters."""
    gives: type[BaseModel] | None = None
    """The JSON reply."""
    headers: tuple[str, ...] = ()
    """The headers of a request that it heeds."""
    uploads: bool = False
    """Whether it takes files, as a form."""
    media: str = "application/json"
    """What the reply is, where it is no JSON."""
    status: int = 200
    errors: tuple[int, ...] = ()
    """The refusals it has beyond 400, 401, 403, 429 and 500."""

    def opens_to(self, caller: Caller) -> bool:
        """Whether somebody may use it."""
        if self.scope is None or caller.may(self.scope):
            return True
        return self.also is not None and caller.may(self.also)


def parse_model(model: type[Model], value: object) -> Model:
    """A value as a model.

    Raises:
        RequestError: With the first field that is wrong.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RequestError(
            f"{where}: {first['msg']}" if where else first["msg"], param=where
        ) from None
