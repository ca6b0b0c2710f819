"""What every request is held to before any route sees it."""

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from apexbridge.server.base import Caller, House

_NOBODY = Caller(id="", name="", scopes=frozenset())


class Checked:
    """Finds out who asks."""

    def __init__(self, app: ASGIApp, house: House) -> None:
        self._app, self._house = app, house

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, with its caller."""
        if scope["type"] == "http":
            given = Request(scope).headers.get("authorization", "").removeprefix("Bearer ")
            key = self._house.keys.find(given) if given else None
            caller = (
                Caller(id=key.id, name=key.name, scopes=frozenset(key.scopes)) if key else _NOBODY
            )
            scope["state"] = {**scope.get("state", {}), "caller": caller}
        await self._app(scope, receive, send)
