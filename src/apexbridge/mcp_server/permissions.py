"""What may be done through this door: the same rules, approvals and hooks as in a conversation."""

import hashlib
import uuid
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

import anyio
from mcp import types
from mcp.server.context import ServerRequestContext

from apexbridge import locales
from apexbridge.agent.permission_checker import TurnPermissions
from apexbridge.agent.tool_calls import ToolCallOutcome, dispatch
from apexbridge.agent.turn import TurnRecord
from apexbridge.api_keys import Scope
from apexbridge.errors import RequestError, StorageError, ToolFailedError
from apexbridge.messages import ToolCall
from apexbridge.permissions.engine import Answer, Approver
from apexbridge.permissions.rules import Decision, PermissionRequest
from apexbridge.runtime import Runtime
from apexbridge.tools.base import (
    PathScope,
    SubagentRequest,
    Tool,
    ToolContext,
    ToolRegistry,
    ToolResult,
)

AsgiScope = MutableMapping[str, Any]
"""What an ASGI server says of a request."""
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ScopeCheck = Callable[[AsgiScope, Scope], bool]
"""Whether whoever made a request may do what a scope stands for."""

READ: Scope = "skills:read"
EXEC: Scope = "exec"


class Caller(Protocol):
    """Who made a request, as the server before this door found out."""

    @property
    def id(self) -> str:
        """Empty for one without a key."""
        ...

    def may(self, scope: Scope) -> bool:
        """Whether a scope was given to it."""
        ...


def caller_has_scope(request: AsgiScope, scope: Scope) -> bool:
    """Ask the caller that the server noted; where it noted none, nothing is allowed."""
    caller: Caller | None = request.get("state", {}).get("caller")
    return caller is not None and caller.may(scope)


def scope_error(request: AsgiScope | None, scope: Scope) -> RequestError:
    """The error for a caller without a scope, or without a key."""
    caller: Caller | None = (request or {}).get("state", {}).get("caller")
    is_known = caller is not None and bool(caller.id)
    return RequestError(code="scope_missing" if is_known else "key_missing", scope=scope)


Context = ServerRequestContext[Any, Any]
_MAX_ARGUMENT_CHARS = 2_000
_ALLOW_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"allow": {"type": "boolean", "title": "Allow this once"}},
    "required": ["allow"],
}


class ElicitationApprover:
    """Asks through the client of one call; a yes holds for this call only.

    A client of the newer kind is never asked meanwhile: the call ends with the questions in place
    of a result, and is made again with their answers.
    """

    def __init__(
        self, ctx: Context, given: Mapping[str, Any] | None, language: locales.Language
    ) -> None:
        self._ctx, self._given = ctx, given or {}
        self._language: locales.Language = language
        self.turn = anyio.Lock()
        self.open: dict[str, types.ElicitRequest] = {}
        """What the client has to ask before the call can be made."""

    async def __call__(self, request: PermissionRequest, decision: Decision) -> Answer:
        """Answer for a person."""
        about = {"tool": request.tool, "argument": request.argument[:_MAX_ARGUMENT_CHARS]}
        message = locales.localize("client_asks", about, self._language).message
        if self._ctx.session.can_send_request:
            answer = await self._ctx.session.elicit_form(
                message, _ALLOW_SCHEMA, self._ctx.request_id
            )
            return _to_answer(answer)
        written = f"{request.tool}\0{request.argument}".encode("utf-8", "surrogatepass")
        key = f"allow-{hashlib.sha256(written).hexdigest()[:16]}"
        given = self._given.get(key)
        if isinstance(given, types.ElicitResult):
            return _to_answer(given)
        params = types.ElicitRequestFormParams(message=message, requested_schema=_ALLOW_SCHEMA)
        self.open[key] = types.ElicitRequest(params=params)
        return "no"


def can_elicit(ctx: Context) -> bool:
    """Whether the client says that it can put a form before a person."""
    able = ctx.session.client_capabilities
    return able is not None and able.elicitation is not None


def _to_answer(result: types.ElicitResult) -> Answer:
    is_yes = result.action == "accept" and (result.content or {}).get("allow") is True
    return "once" if is_yes else "no"


class ToolCaller:
    """Carries out calls of tools for clients, which have no conversation with us."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._session_id = f"mcp:{uuid.uuid4().hex}"

    def is_denied(self, name: str) -> bool:
        """Whether a rule forbids a skill: then it is not there for any client."""
        return self._runtime.chat_service.agent.deps.permissions.is_skill_denied(name)

    async def carry_out(
        self, tool: Tool, call_id: str, written: str, approver: Approver | None
    ) -> ToolCallOutcome:
        """Call a tool with arguments as JSON; what went wrong stands in the result."""
        chatting, emit = self._runtime.chat_service, self._runtime.events.emit
        # It is never stored: it is there for the hooks of settings, and for tools that look it up.
        session = await chatting.session(self._session_id)
        checker = replace(chatting.agent.deps.permissions, approver=approver)
        # The record is not stored: there is no turn.
        permissions = TurnPermissions(checker, session, TurnRecord.new(session.id), emit)
        context = ToolContext(
            session_id=session.id,
            call_id=call_id,
            cwd=session.cwd,
            emit=emit,
            spawn=_no_subagent,
            reach=PathScope(write=(session.cwd,)),
            allow=permissions.allow,
            fire=permissions.fire,
        )
        only = ToolRegistry()
        only.add(tool)
        call = ToolCall(id=call_id, name=tool.spec.name, arguments=written)
        return await dispatch(call, only, context)

    async def invoke(self, name: str, arguments: str) -> ToolResult:
        """Invoke a skill in a conversation of its own, which nobody goes on with.

        Raises:
            ApexBridgeError: If the skill cannot be used.
        """
        session_id = f"mcp:{uuid.uuid4().hex}"
        try:
            return await self._runtime.invoke_skill(name, arguments, session=session_id)
        finally:
            with anyio.CancelScope(shield=True), suppress(StorageError):
                await self._runtime.chat_service.delete(session_id)


async def _no_subagent(request: SubagentRequest) -> str:
    raise ToolFailedError("a client's call has no session to work in", name=request.skill)
