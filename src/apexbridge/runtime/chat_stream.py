"""A turn as the events that happen in it."""

from collections.abc import AsyncGenerator

import anyio

from apexbridge.agent.turn import TurnRequest
from apexbridge.events import Event
from apexbridge.runtime.chat_service import ChatService


async def stream_turn(
    chatting: ChatService, session_id: str, request: TurnRequest
) -> AsyncGenerator[Event]:
    """A turn as the events that happen in it, the last of them `TurnFinished`.

    Whoever stops reading ends the turn.
    """
    sender, receiver = anyio.create_memory_object_stream[Event](float("inf"))
    scope, ended, failed = anyio.CancelScope(), anyio.Event(), list[Exception]()

    async def work() -> None:
        try:
            with sender, scope:
                await chatting.turn(session_id, request, sender.send_nowait)
        except Exception as error:  # noqa: BLE001  # any: it is raised where the events are read
            failed.append(error)
        finally:
            ended.set()

    chatting.start(work)
    with receiver:
        try:
            async for event in receiver:
                yield event
        finally:
            scope.cancel()
            with anyio.CancelScope(shield=True):
                await ended.wait()
    if failed:
        raise failed[0]
