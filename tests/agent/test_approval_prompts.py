"""Human-in-the-loop approval: one prompt at a time, across sessions."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from apexbridge.messages import ToolCall, ToolMessage
from apexbridge.models.base import ModelDelta, ModelRequest, Usage
from apexbridge.permissions.engine import Answer
from apexbridge.permissions.rules import Decision, PermissionRequest
from apexbridge.testing import StaticTool
from tests.agent.agent_fixture import TIMEOUT_SECONDS, open_agent

pytestmark = pytest.mark.anyio


class _CallsOnce:
    """A model that calls the tool first and then answers, in any number of conversations."""

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[ModelDelta]]:
        is_done = isinstance(request.messages[-1], ToolMessage)
        call = ToolCall(id="1", name="Static", arguments="{}")

        async def pieces() -> AsyncIterator[ModelDelta]:
            yield ModelDelta(text="done") if is_done else ModelDelta(tool_calls=(call,))
            yield ModelDelta(usage=Usage())

        yield pieces()


async def test_two_conversations_wait_for_each_others_answers(home: Path) -> None:
    asked, most, now = 0, 0, 0
    both_wait = anyio.Event()

    async def approver(request: PermissionRequest, decision: Decision) -> Answer:
        nonlocal asked, most, now
        asked, now = asked + 1, now + 1
        most = max(most, now)
        if asked == 1:  # the second conversation has every chance to ask meanwhile
            with anyio.move_on_after(0.5):
                await both_wait.wait()
        else:
            both_wait.set()
        now -= 1
        return "once"

    async with open_agent(home, tools=[StaticTool("Static")], approver=approver) as at:
        at.use(_CallsOnce())

        async def ask(session: str) -> None:
            async for _ in at.runtime.chat("go", session=session):
                pass

        with anyio.fail_after(TIMEOUT_SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask, "one")
                tasks.start_soon(ask, "two")
    assert (asked, most) == (2, 1)
