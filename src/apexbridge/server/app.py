"""The application: every route behind the same checks, and every fault in the same words."""

import logging
from collections.abc import Iterable, Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Router
from starlette.routing import Route as Served
from starlette.types import ASGIApp, Receive, Scope, Send

from apexbridge import wording
from apexbridge.errors import ApexBridgeError, RequestError
from apexbridge.server.base import Call, Caller, House, Route
from apexbridge.server.faults import error_response
from apexbridge.server.security import Checked

log = logging.getLogger(__name__)


def build(
    house: House, routes: Iterable[Route], mounts: Mapping[str, ASGIApp] | None = None
) -> ASGIApp:
    """Everything a server answers; `mounts` are whole applications, such as MCP's, by path."""
    served = [
        Served(route.path, _endpoint(house, route), methods=[route.method]) for route in routes
    ]
    whole = [Mount(path, app=mounted) for path, mounted in (mounts or {}).items()]
    router = Router([*served, *whole], redirect_slashes=False)
    return Checked(_Faults(router), house)


def _endpoint(house: House, route: Route):  # starlette's own kind of function
    async def answer(request: Request) -> Response:
        caller: Caller = request.scope["state"]["caller"]
        if route.scope is not None and not caller.may(route.scope):
            raise RequestError(
                code="scope_missing" if caller.id else "key_missing", scope=route.scope
            )
        return await route.endpoint(Call(request, house, caller))

    return answer


class _Faults:
    """Answers what could not be answered; what nobody expected is told to the log alone."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        try:
            await self._app(scope, receive, send)
        except Exception as error:  # whatever it is, the server goes on
            if not isinstance(error, ApexBridgeError | HTTPException):
                log.exception("A request failed")
            await _as_response(error, scope)(scope, receive, send)


def _as_response(error: Exception, scope: Scope) -> Response:
    language = wording.language_of(Request(scope).headers.get("accept-language"))
    match error:
        case ApexBridgeError():
            return error_response(error, language)
        case HTTPException(status_code=405):
            fault = RequestError(
                code="method_not_allowed", method=scope["method"], path=scope["path"]
            )
        case HTTPException(status_code=404):
            fault = RequestError(code="route_unknown", path=scope["path"])
        case HTTPException():
            fault = RequestError(str(error.detail))
        case _:
            fault = ApexBridgeError(code="server_failed")
    return error_response(fault, language)
