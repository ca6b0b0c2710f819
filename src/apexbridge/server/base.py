"""What every route is given, and what a route says of itself."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from apexbridge.errors import RequestError
from apexbridge.keys import KeyStore, Scope
from apexbridge.runtime import Runtime
from apexbridge.server.approving import PendingApprovals
from apexbridge.server.bodies import read_json
from apexbridge.server.leaving import Leaving
from apexbridge.server.limits import Flight, Traffic
from apexbridge.server.metrics import Metrics
from apexbridge.server.sessions import ConsoleSessions
from apexbridge.settings import ServerSettings

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
class House:
    """What the routes of one server share."""

    runtime: Runtime
    keys: KeyStore
    approvals: PendingApprovals
    settings: ServerSettings
    leaving: Leaving = field(default_factory=Leaving)
    sessions: ConsoleSessions = field(default_factory=ConsoleSessions)
    traffic: Traffic = field(default_factory=Traffic)
    metrics: Metrics = field(default_factory=Metrics)


class Call:
    """One request on its way through a route."""

    def __init__(self, request: Request, house: House, caller: Caller) -> None:
        self.request, self.house, self.caller = request, house, caller

    @property
    def runtime(self) -> Runtime:
        """Everything there is."""
        return self.house.runtime

    @property
    def flight(self) -> Flight:
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
        return checked(model, await read_json(self.request))

    def query(self, model: type[Model]) -> Model:
        """What stands behind the question mark; a repeated name is taken once.

        Raises:
            RequestError: If it is not what the route takes.
        """
        return checked(model, dict(self.request.query_params))


Endpoint = Callable[[Call], Awaitable[Response]]


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


def checked(model: type[Model], value: object) -> Model:
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
