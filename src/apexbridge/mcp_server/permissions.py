"""MCP authorization: API key scopes, permission rules, and approval by elicitation."""

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
from apexbridge.permissions.engine import Approver, ApproverReply
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
"""ASGI connection scope."""
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ScopeCheck = Callable[[AsgiScope, Scope], bool]
"""Returns whether the caller of a request has an API key scope."""

READ: Scope = "skills:read"
EXEC: Scope = "exec"


class Caller(Protocol):
    """Authenticated caller that the HTTP server stores in the ASGI scope."""

    @property
    def id(self) -> str:
        """Id of the API key; empty if anonymous."""
        ...

    def has_scope(self, scope: Scope) -> bool:
        """Return whether the caller has a scope."""
        ...


def caller_has_scope(request: AsgiScope, scope: Scope) -> bool:
    """Check the scope of the authenticated caller; without one nothing is allowed."""
    caller: Caller | None = request.get("state", {}).get("caller")
    return caller is not None and caller.has_scope(scope)


def file_owner(ctx: "Context") -> str:
    """Return the prefix of what belongs to the caller; empty for the user of a stdio server."""
    if ctx.request is None:
        return ""
    caller: Caller | None = ctx.request.scope.get("state", {}).get("caller")
    return f"{caller.id}:" if caller is not None else ":"


def scope_error(request: AsgiScope | None, scope: Scope) -> RequestError:
    """Return the error for a missing scope, or a missing API key."""
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
    """Approver (human in the loop) that elicits the answer from the MCP client.

    A client of the stateless protocol cannot be asked during a call: the call returns the
    elicitation requests in place of a result, and the client repeats it with the responses.
    """

    def __init__(
        self, ctx: Context, responses: Mapping[str, Any] | None, language: locales.Language
    ) -> None:
        self._ctx, self._responses = ctx, responses or {}
        self._language: locales.Language = language
        self.turn = anyio.Lock()
        self.requests: dict[str, types.ElicitRequest] = {}
        """Elicitation requests to return to a client of the stateless protocol."""

    async def __call__(self, request: PermissionRequest, decision: Decision) -> ApproverReply:
        """Ask for approval of a permission request."""
        about = {"tool": request.tool, "argument": request.argument[:_MAX_ARGUMENT_CHARS]}
        message = locales.localize("client_asks", about, self._language).message
        if self._ctx.session.can_send_request:
            answer = await self._ctx.session.elicit_form(
                message, _ALLOW_SCHEMA, self._ctx.request_id
            )
            return _to_answer(answer)
        identity = f"{request.tool}\0{request.argument}".encode("utf-8", "surrogatepass")
        key = f"allow-{hashlib.sha256(identity).hexdigest()[:16]}"
        response = self._responses.get(key)
        if isinstance(response, types.ElicitResult):
            return _to_answer(response)
        params = types.ElicitRequestFormParams(message=message, requested_schema=_ALLOW_SCHEMA)
        self.requests[key] = types.ElicitRequest(params=params)
        return "unasked"


def can_elicit(ctx: Context) -> bool:
    """Return whether the client declares the elicitation capability."""
    capabilities = ctx.session.client_capabilities
    return capabilities is not None and capabilities.elicitation is not None


def _to_answer(result: types.ElicitResult) -> ApproverReply:
    # A client that dismisses the question by itself cancels it: no person has said no.
    if result.action == "cancel":
        return "unasked"
    is_yes = result.action == "accept" and (result.content or {}).get("allow") is True
    return "once" if is_yes else "no"


class ToolCaller:
    """Calls tools for MCP clients, under the same permission rules and hooks as a chat session."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._session_id = f"mcp:{uuid.uuid4().hex}"

    def is_denied(self, name: str) -> bool:
        """Return whether a permission rule denies a skill, which then no client can see."""
        return self._runtime.chat_service.agent.deps.permissions.is_skill_denied(name)

    async def call(
        self, tool: Tool, call_id: str, arguments: str, approver: Approver | None
    ) -> ToolCallOutcome:
        """Call a tool with JSON arguments; errors are part of the outcome."""
        chatting, emit = self._runtime.chat_service, self._runtime.events.emit
        # Never stored: hooks and tools need a session to refer to.
        session = await chatting.session(self._session_id)
        checker = replace(chatting.agent.deps.permissions, approver=approver)
        record = TurnRecord.new(session.id)  # required by the checks, and discarded
        permissions = TurnPermissions(checker, session, record, emit)
        context = ToolContext(
            session_id=session.id,
            call_id=call_id,
            cwd=session.cwd,
            emit=emit,
            spawn=_no_subagent,
            scope=PathScope(write=(session.cwd,)),
            allow=permissions.allow,
            fire=permissions.fire,
        )
        registry = ToolRegistry()
        registry.add(tool)
        call = ToolCall(id=call_id, name=tool.spec.name, arguments=arguments)
        return await dispatch(call, registry, context)

    async def invoke(self, name: str, arguments: str) -> ToolResult:
        """Invoke a skill in a temporary session.

        Raises:
            ApexBridgeError: If the skill cannot be invoked.
        """
        session_id = f"mcp:{uuid.uuid4().hex}"
        try:
            return await self._runtime.invoke_skill(name, arguments, session=session_id)
        finally:
            with anyio.CancelScope(shield=True), suppress(StorageError):
                await self._runtime.chat_service.delete(session_id)


async def _no_subagent(request: SubagentRequest) -> str:
    raise ToolFailedError("MCP tool calls cannot start subagents", name=request.skill)
