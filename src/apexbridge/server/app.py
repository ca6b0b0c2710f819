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
from apexbridge.server.error_responses import negotiated_error, unwrap_group
from apexbridge.server.middleware import GatewayMiddleware, TrackedSend
from apexbridge.server.request_guard import is_multipart, unsupported_media_type
from apexbridge.server.routing import AppState, Caller, RequestContext, Route

log = logging.getLogger(__name__)

Handler = Callable[[Request], Awaitable[Response]]


def build_app(
    house: AppState, routes: Iterable[Route], mounts: Mapping[str, ASGIApp] | None = None
) -> ASGIApp:
    """Everything a server answers; `mounts` are whole applications, such as MCP's, by path.

    A mounted application gets nobody who has no key; what each caller may do there it finds out
    by itself.
    """
    served = [
        Served(route.path, _handler(house, route), methods=[route.method]) for route in routes
    ]
    whole = list[BaseRoute]()
    for path, mounted in (mounts or {}).items():
        guarded = _RequireKey(mounted, path)
        # A mount has what lies below its path; the path itself is another route.
        whole += [Served(path, guarded), Mount(path, app=guarded)]
    router = Router([*served, *whole], redirect_slashes=False)
    return GatewayMiddleware(_ExceptionMiddleware(_StaticPathRouter(served, router)), house)


def _handler(house: AppState, route: Route) -> Handler:
    async def answer(request: Request) -> Response:
        scope = request.scope
        scope["state"]["route"] = route.path
        caller: Caller = scope["state"]["caller"]
        if not route.opens_to(caller):
            raise _auth_error(scope, route.scope or "")
        if not route.uploads and is_multipart(scope["state"]["seen"]):
            raise unsupported_media_type("multipart/form-data")
        return await route.endpoint(RequestContext(request, house, caller))

    return answer


def _auth_error(scope: Scope, wanted: str = "") -> RequestError:
    if scope["state"]["caller"].id:
        return RequestError(code="scope_missing", scope=wanted)
    return RequestError(code="key_invalid" if scope["state"].get("has_key") else "key_missing")


class _StaticPathRouter:
    """Looks up the addresses that have no part which varies; the router looks for all others."""

    def __init__(self, served: Sequence[Served], router: ASGIApp) -> None:
        self._router = router
        self._by_address: dict[tuple[str, str], Handler] = {}
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


class _RequireKey:
    """Stands before a whole application."""

    def __init__(self, app: ASGIApp, path: str) -> None:
        self._app, self._path = app, path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, if somebody known sent it."""
        scope["state"]["route"] = self._path
        if not scope["state"]["caller"].id:
            raise _auth_error(scope)
        await self._app(scope, receive, send)


class _ExceptionMiddleware:
    """Answers what could not be answered; what nobody expected is told to the log alone."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        scope["app"] = self  # so that starlette raises what it finds, instead of saying it
        try:
            await self._app(scope, receive, send)
        except Exception as raised:  # whatever it is, the server goes on
            error = unwrap_group(raised)
            if not isinstance(error, ApexBridgeError | HTTPException):
                log.exception("A request failed")
            if isinstance(send, TrackedSend) and send.is_started:
                return  # the connection is closed, so that nobody takes a part for the whole
            await negotiated_error(error, scope)(scope, receive, send)
