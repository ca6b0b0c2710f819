"""The application: every route behind the same checks, and every fault in the same words."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Router
from starlette.routing import Route as Served
from starlette.types import ASGIApp, Receive, Scope, Send

from apexbridge.errors import ApexBridgeError, RequestError
from apexbridge.server.base import Call, Caller, House, Route
from apexbridge.server.examining import is_upload, unsupported
from apexbridge.server.refusals import alone, refusal
from apexbridge.server.replies import Reply
from apexbridge.server.security import Checked

log = logging.getLogger(__name__)

Answer = Callable[[Request], Awaitable[Response]]


def build(
    house: House, routes: Iterable[Route], mounts: Mapping[str, ASGIApp] | None = None
) -> ASGIApp:
    """Everything a server answers; `mounts` are whole applications, such as MCP's, by path.

    A mounted application gets nobody who has no key; what each caller may do there it finds out
    by itself.
    """
    served = [
        Served(route.path, _endpoint(house, route), methods=[route.method]) for route in routes
    ]
    whole = list[BaseRoute]()
    for path, mounted in (mounts or {}).items():
        guarded = _KeyNeeded(mounted, path)
        # A mount has what lies below its path; the path itself is another route.
        whole += [Served(path, guarded), Mount(path, app=guarded)]
    router = Router([*served, *whole], redirect_slashes=False)
    return Checked(_Faults(_Known(served, router)), house)


def _endpoint(house: House, route: Route) -> Answer:
    async def answer(request: Request) -> Response:
        scope = request.scope
        scope["state"]["route"] = route.path
        caller: Caller = scope["state"]["caller"]
        if not route.opens_to(caller):
            raise _not_allowed(scope, route.scope or "")
        if not route.uploads and is_upload(scope["state"]["seen"]):
            raise unsupported("multipart/form-data")
        return await route.endpoint(Call(request, house, caller))

    return answer


def _not_allowed(scope: Scope, wanted: str = "") -> RequestError:
    if scope["state"]["caller"].id:
        return RequestError(code="scope_missing", scope=wanted)
    return RequestError(code="key_invalid" if scope["state"].get("has_key") else "key_missing")


class _Known:
    """Looks up the addresses that have no part which varies; the router looks for all others."""

    def __init__(self, served: Sequence[Served], router: ASGIApp) -> None:
        self._router = router
        self._by_address: dict[tuple[str, str], Answer] = {}
        for route in served:
            for method in route.methods or ():
                # Of several that fit an address, the router takes the first.
                fitting = (
                    one
                    for one in served
                    if method in (one.methods or ()) and one.path_regex.match(route.path)
                )
                if not route.param_convertors and next(fitting) is route:
                    self._by_address[method, route.path] = route.endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        answer = self._by_address.get((scope["method"], scope["path"]))
        if answer is None:
            await self._router(scope, receive, send)
            return
        response = await answer(Request(scope, receive, send))
        await response(scope, receive, send)


class _KeyNeeded:
    """Stands before a whole application."""

    def __init__(self, app: ASGIApp, path: str) -> None:
        self._app, self._path = app, path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, if somebody known sent it."""
        scope["state"]["route"] = self._path
        if not scope["state"]["caller"].id:
            raise _not_allowed(scope)
        await self._app(scope, receive, send)


class _Faults:
    """Answers what could not be answered; what nobody expected is told to the log alone."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        scope["app"] = self  # so that starlette raises what it finds, instead of saying it
        try:
            await self._app(scope, receive, send)
        except Exception as raised:  # whatever it is, the server goes on
            error = alone(raised)
            if not isinstance(error, ApexBridgeError | HTTPException):
                log.exception("A request failed")
            if isinstance(send, Reply) and send.is_started:
                return  # the connection is closed, so that nobody takes a part for the whole
            await refusal(error, scope)(scope, receive, send)
