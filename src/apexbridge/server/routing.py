"""Routes and the request context: path, scope, JSON schemas and handler of each endpoint."""

import json
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn, TypedDict, TypeVar, Unpack

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError, computed_field
from pydantic_core import PydanticSerializationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive

from apexbridge.api_keys import ApiKeyStore, Scope
from apexbridge.errors import RequestError
from apexbridge.runtime import Runtime
from apexbridge.server.approvals import ApprovalQueue
from apexbridge.server.auth import Caller, ConsoleSessions
from apexbridge.server.disconnect import DisconnectMonitor
from apexbridge.server.limits import ConcurrencyLimiter, InFlightRequest
from apexbridge.server.metrics import Metrics
from apexbridge.settings import ServerSettings

Model = TypeVar("Model", bound=BaseModel)


class QueryModel(BaseModel):
    """Base of the query schemas of vendors' APIs: unknown parameters are ignored."""

    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True)


class RequestModel(BaseModel):
    """Base of the request body schemas: strict types, and declared fields only."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)


def former_name(field_name: str, kind: object) -> Any:
    """Create a computed field: the former name of a field, deprecated but still serialized."""

    def value(self: BaseModel) -> object:
        return getattr(self, field_name)

    decorate = computed_field(
        return_type=kind, description=f"Use `{field_name}`.", json_schema_extra={"deprecated": True}
    )
    return decorate(property(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class AppState:
    """Application state: the services that all routes of one server share."""

    runtime: Runtime
    keys: ApiKeyStore
    approvals: ApprovalQueue
    settings: ServerSettings
    disconnects: DisconnectMonitor = field(default_factory=DisconnectMonitor)
    sessions: ConsoleSessions = field(default_factory=ConsoleSessions)
    concurrency: ConcurrencyLimiter = field(default_factory=ConcurrencyLimiter)
    metrics: Metrics = field(default_factory=Metrics)


class RequestContext:
    """Request context of an endpoint: the HTTP request, its caller and the application state."""

    def __init__(self, request: Request, state: AppState, caller: Caller) -> None:
        self.request, self.state, self.caller = request, state, caller

    @property
    def runtime(self) -> Runtime:
        """The runtime that the server exposes."""
        return self.state.runtime

    @property
    def in_flight(self) -> InFlightRequest:
        """This request's entry in the concurrency limiter."""
        return self.request.scope["state"]["in_flight"]

    def path_param(self, name: str) -> str:
        """Return a path parameter, such as `id` of `/v1/skills/{id}`."""
        return self.request.path_params[name]

    def cancel_on_disconnect(self) -> AbstractContextManager[None]:
        """Return a context manager whose block is cancelled when the client disconnects.

        The request body must have been read.
        """
        start = self.runtime.chat_service.start
        return self.state.disconnects.watch(self.request.receive, self.in_flight, start)

    async def body(self, model: type[Model]) -> Model:
        """Parse the JSON request body and validate it against a schema."""
        return parse_model(model, await read_json(self.request))

    def query(self, model: type[Model]) -> Model:
        """Validate the query string against a schema; of a repeated parameter the last counts."""
        return parse_model(model, dict(self.request.query_params))


Endpoint = Callable[[RequestContext], Awaitable[Response]]
Method = Literal["GET", "POST", "PATCH", "DELETE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """An endpoint with its method, path, scope and schemas; the OpenAPI document is built of it."""

    method: Method
    path: str
    """In starlette's syntax: `/v1/skills/{id}`."""
    endpoint: Endpoint
    summary: str
    scope: Scope | None
    """The API key scope that is required; None for a public route."""
    alternative_scope: Scope | None = None
    """A second scope that is accepted as well."""
    body: type[BaseModel] | None = None
    """Schema of the JSON request body."""
    query: type[BaseModel] | None = None
    """Schema of the query parameters."""
    response: type[BaseModel] | None = None
    """Schema of the JSON response."""
    headers: tuple[str, ...] = ()
    """Names of the request headers that the endpoint reads."""
    multipart: bool = False
    """Whether the request body is a `multipart/form-data` upload."""
    media_type: str = "application/json"
    """Media type of a response that has no JSON schema."""
    status: int = 200
    errors: tuple[int, ...] = ()
    """HTTP error statuses beyond those that every route can return."""

    def allows(self, caller: Caller) -> bool:
        """Return whether a caller has a scope that this route accepts."""
        if self.scope is None or caller.has_scope(self.scope):
            return True
        return self.alternative_scope is not None and caller.has_scope(self.alternative_scope)


class _RouteOptions(TypedDict, total=False):
    scope: Scope | None
    alternative_scope: Scope | None
    body: type[BaseModel]
    query: type[BaseModel]
    response: type[BaseModel]
    headers: tuple[str, ...]
    multipart: bool
    media_type: str
    status: int
    errors: tuple[int, ...]


_Decorator = Callable[[Endpoint], Endpoint]


class Router:
    """Collects the routes of a module from its decorated endpoints.

    A route has the router's scopes unless it names its own. The first line of an endpoint's
    docstring is its OpenAPI summary.
    """

    def __init__(
        self, prefix: str = "", *, scope: Scope | None, alternative_scope: Scope | None = None
    ) -> None:
        self._prefix = prefix
        self._scopes: _RouteOptions = {"scope": scope, "alternative_scope": alternative_scope}
        self.routes: list[Route] = []

    def get(self, path: str, **options: Unpack[_RouteOptions]) -> _Decorator:
        """Decorate the endpoint of a GET route."""
        return self._decorator("GET", path, options)

    def post(self, path: str, **options: Unpack[_RouteOptions]) -> _Decorator:
        """Decorate the endpoint of a POST route."""
        return self._decorator("POST", path, options)

    def patch(self, path: str, **options: Unpack[_RouteOptions]) -> _Decorator:
        """Decorate the endpoint of a PATCH route."""
        return self._decorator("PATCH", path, options)

    def delete(self, path: str, **options: Unpack[_RouteOptions]) -> _Decorator:
        """Decorate the endpoint of a DELETE route."""
        return self._decorator("DELETE", path, options)

    def _decorator(self, method: Method, path: str, options: _RouteOptions) -> _Decorator:
        def add(endpoint: Endpoint) -> Endpoint:
            summary = (endpoint.__doc__ or "").partition("\n")[0].rstrip(".")
            described: _RouteOptions = {**self._scopes, **options}
            full = self._prefix + path
            self.routes.append(
                Route(method=method, path=full, endpoint=endpoint, summary=summary, **described)
            )
            return endpoint

        return add


def json_response(model: BaseModel, status: int = 200, **headers: str) -> Response:
    """Serialize a schema as a JSON response; `_` in a header's keyword stands for `-`."""
    try:
        text = model.model_dump_json()
    except PydanticSerializationError:
        # A lone surrogate, as of a file name that is not UTF-8, has no UTF-8 form: escape it.
        text = json.dumps(model.model_dump(mode="python"))
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(text, status, named, media_type="application/json")


def parse_model(model: type[Model], value: object) -> Model:
    """Validate a value against a schema.

    Raises:
        RequestError: With the path of the first invalid field.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RequestError(
            f"{where}: {first['msg']}" if where else first["msg"], param=where
        ) from None


async def read_json(request: Request) -> object:
    """Read the request body and parse it as strict JSON: no NaN, no duplicate keys."""
    return parse_json(await _read_body(request.receive))


async def _read_body(receive: Receive) -> bytes:
    # Nearly every body is one ASGI message, so the join of several is avoided.
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body", False):
        return message.get("body", b"")
    chunks = list[bytes]()
    while message["type"] == "http.request":
        chunks.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(chunks)
        message = await receive()
    raise ClientDisconnect


def parse_json(data: bytes) -> object:
    """Parse bytes as strict JSON.

    Raises:
        RequestError: If they are not valid JSON.
    """
    try:
        # The standard library's decoder and not orjson: only it reports duplicate keys, by which
        # two parsers can be made to read one body differently.
        value = _STRICT_DECODER.decode(data.decode("utf-8"))
        if b"\\u" in data:
            orjson.loads(data)  # rejects an escaped lone surrogate, which the decoder accepts
    except (ValueError, RecursionError) as error:
        raise RequestError(str(error) or "the JSON is nested too deeply") from None
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate key in a JSON object")
    return found


def _reject_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not valid JSON")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError("number out of range")
    return value


_STRICT_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique_keys, parse_constant=_reject_constant, parse_float=_finite
)
