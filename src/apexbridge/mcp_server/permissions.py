"""What may be done through this door: the same rules, approvals and hooks as in a conversation."""

import uuid
from contextlib import suppress
from dataclasses import replace

import anyio

from apexbridge.agent.dispatch import Handled, dispatch
from apexbridge.agent.turn import TurnRecord
from apexbridge.errors import StorageError, ToolFailedError
from apexbridge.messages import ToolCall
from apexbridge.policy.engine import Approver
from apexbridge.runtime import Runtime
from apexbridge.tools.base import (
    Reach,
    SubagentRequest,
    Tool,
    ToolContext,
    ToolRegistry,
    ToolResult,
)


class Permissions:
    """Carries out calls of tools for clients, which have no conversation with us."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._session_id = f"mcp:{uuid.uuid4().hex}"

    def is_denied(self, name: str) -> bool:
        """Whether a rule forbids a skill: then it is not there for any client."""
        return self._runtime.chatting.parts.offering.is_denied(name)

    async def carry_out(
        self, tool: Tool, call_id: str, written: str, approver: Approver | None
    ) -> Handled:
        """Call a tool with arguments as JSON; what went wrong stands in the result."""
        chatting, emit = self._runtime.chatting, self._runtime.emit
        # It is never stored: it is there for the hooks of settings, and for tools that look it up.
        session = await chatting.session(self._session_id)
        guard = replace(chatting.parts.guard, approver=approver)
        record = TurnRecord.new(session.id)  # of no turn: nobody keeps it
        context = ToolContext(
            session_id=session.id,
            call_id=call_id,
            cwd=session.cwd,
            emit=emit,
            spawn=_no_child,
            reach=Reach(write=(session.cwd,)),
            allow=guard.allow_for(session, record),
            fire=guard.fire_for(session, emit, record),
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
                await self._runtime.chatting.forget(session_id)


async def _no_child(request: SubagentRequest) -> str:
    raise ToolFailedError("a client's call has no session to work in", name=request.skill)
