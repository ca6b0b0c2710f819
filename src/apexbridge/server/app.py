"""ASGI application: routes behind one middleware, with every exception as a JSON error."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from starlette import routing as starlette_routing
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from apexbridge.errors import ApexBridgeError, RequestError
from apexbridge.server.auth import Caller
from apexbridge.server.error_responses import error_response, unwrap_group
from apexbridge.server.middleware import GatewayMiddleware, TrackedSend
from apexbridge.server.request_guard import is_multipart, unsupported_media_type
from apexbridge.server.routing import AppState, RequestContext, Route

log = logging.getLogger(__name__)

Handler = Callable[[Request], Awaitable[Response]]


def build_app(
    state: AppState, routes: Iterable[Route], mounts: Mapping[str, ASGIApp] | None = None
) -> ASGIApp:
    """Build the ASGI application; `mounts` are sub-applications by path, such as MCP's.

    A mounted application gets authenticated requests only; it checks scopes itself.
    """
    # Paths without parameters first: `/v1/skills/{id}` would match `/v1/skills/search`.
    ordered = sorted(routes, key=lambda route: "{" in route.path)
    served = [
        starlette_routing.Route(route.path, _handler(state, route), methods=[route.method])
        for route in ordered
    ]
    mounted = list[BaseRoute]()
    for path, app in (mounts or {}).items():
        guarded = _RequireKey(app, path)
        # A starlette mount covers only what is below its path; the path itself needs a route.
        mounted += [starlette_routing.Route(path, guarded), Mount(path, app=guarded)]
    router = Router([*served, *mounted], redirect_slashes=False)
    return GatewayMiddleware(_ExceptionMiddleware(_StaticPathRouter(served, router)), state)


def _handler(state: AppState, route: Route) -> Handler:
    async def handle(request: Request) -> Response:
        shared = request.scope["state"]
        shared["route"] = route.path
        caller: Caller = shared["caller"]
        if not route.allows(caller):
            raise _auth_error(request.scope, route.scope or "")
        if not route.multipart and is_multipart(shared["headers"]):
            raise unsupported_media_type("multipart/form-data")
        return await route.endpoint(RequestContext(request, state, caller))

    return handle


def _auth_error(scope: Scope, wanted: str = "") -> RequestError:
    if scope["state"]["caller"].id:
        return RequestError(code="scope_missing", scope=wanted)
    return RequestError(code="key_invalid" if scope["state"].get("has_key") else "key_missing")


class _StaticPathRouter:
    """Dictionary lookup for paths without parameters; starlette's router handles the others.

    Starlette tries the regular expression of each route in turn, which the chat route need not pay.
    """

    def __init__(self, served: Sequence[starlette_routing.Route], router: ASGIApp) -> None:
        self._router = router
        self._handlers: dict[tuple[str, str], Handler] = {
            (method, route.path): route.endpoint
            for route in served
            if not route.param_convertors
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Route one request."""
        handler = self._handlers.get((scope["method"], scope["path"]))
        if handler is None:
            await self._router(scope, receive, send)
            return
        response = await handler(Request(scope, receive, send))
        await response(scope, receive, send)


class _RequireKey:
    """Authentication in front of a mounted application."""

    def __init__(self, app: ASGIApp, path: str) -> None:
        self._app, self._path = app, path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on an authenticated request."""
        scope["state"]["route"] = self._path
        if not scope["state"]["caller"].id:
            raise _auth_error(scope)
        await self._app(scope, receive, send)


class _ExceptionMiddleware:
    """Turns exceptions into error responses; details of unexpected ones go to the log only."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        # With an "app" in scope starlette's router raises its 404 and 405 instead of sending text.
        scope["app"] = self
        try:
            await self._app(scope, receive, send)
        except Exception as raised:
            error = unwrap_group(raised)
            if not isinstance(error, ApexBridgeError | HTTPException):
                log.exception("Unhandled exception in a request")
            if isinstance(send, TrackedSend) and send.is_started:
                # Too late for a status: the connection is closed, so that the client does not take
                # a truncated response for a complete one.
                return
            await error_response(error, scope)(scope, receive, send)
