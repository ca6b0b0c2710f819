"""Questions for the person at the client: asked through it, and answered no where it cannot ask."""

import hashlib
from collections.abc import Mapping
from typing import Any

import anyio
from mcp import types
from mcp.server.context import ServerRequestContext

from apexbridge import wording
from apexbridge.policy.engine import Answer
from apexbridge.policy.rules import Decision, PermissionRequest

Context = ServerRequestContext[Any, Any]
_SHOWN = 2_000
_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {"allow": {"type": "boolean", "title": "Allow this once"}},
    "required": ["allow"],
}


class Asking:
    """Asks through the client of one call; a yes holds for this call only.

    A client of the newer kind is never asked meanwhile: the call ends with the questions in place
    of a result, and is made again with their answers.
    """

    def __init__(
        self, ctx: Context, given: Mapping[str, Any] | None, language: wording.Language
    ) -> None:
        self._ctx, self._given = ctx, given or {}
        self._language: wording.Language = language
        self.turn = anyio.Lock()
        self.open: dict[str, types.ElicitRequest] = {}
        """What the client has to ask before the call can be made."""

    async def __call__(self, request: PermissionRequest, decision: Decision) -> Answer:
        """Answer for a person."""
        about = {"tool": request.tool, "argument": request.argument[:_SHOWN]}
        message = wording.say("client_asks", about, self._language).message
        if self._ctx.session.can_send_request:
            answer = await self._ctx.session.elicit_form(message, _FORM, self._ctx.request_id)
            return _answer(answer)
        written = f"{request.tool}\0{request.argument}".encode("utf-8", "surrogatepass")
        key = f"allow-{hashlib.sha256(written).hexdigest()[:16]}"
        given = self._given.get(key)
        if isinstance(given, types.ElicitResult):
            return _answer(given)
        params = types.ElicitRequestFormParams(message=message, requested_schema=_FORM)
        self.open[key] = types.ElicitRequest(params=params)
        return "no"


def can_ask(ctx: Context) -> bool:
    """Whether the client says that it can put a form before a person."""
    able = ctx.session.client_capabilities
    return able is not None and able.elicitation is not None


def _answer(result: types.ElicitResult) -> Answer:
    is_yes = result.action == "accept" and (result.content or {}).get("allow") is True
    return "once" if is_yes else "no"
