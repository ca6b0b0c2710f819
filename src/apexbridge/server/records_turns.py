"""Turns and sessions: what was said, and why each turn went as it did."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import anyio.to_thread
from starlette.responses import Response

from apexbridge.agent.history import KeptSession, KeptTurn
from apexbridge.messages import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage
from apexbridge.server.base import Call, Route
from apexbridge.server.records_replies import prefix_of, reply, session_of, unknown
from apexbridge.server.records_shapes import (
    CallText,
    Gone,
    MessageShape,
    SessionLine,
    SessionList,
    SessionsAsked,
    SessionShape,
    TurnLine,
    TurnList,
    TurnsAsked,
    TurnShape,
)

LAST = "last"


async def list_turns(call: Call) -> Response:
    """The latest turns; of a caller without `admin`, those of its own sessions."""
    asked, store = call.query(TurnsAsked), call.runtime.chatting.store
    prefix = prefix_of(call)
    session = session_of(call, asked.session) if asked.session else ""
    before = (await _turn_of(call, asked.before)).id if asked.before else ""
    look = partial(store.turns, asked.limit + 1, before=before, session=session, prefix=prefix)
    found = await anyio.to_thread.run_sync(look)
    lines = [TurnLine.model_validate(_short(turn)) for turn in found[: asked.limit]]
    return reply(TurnList(data=lines, has_more=len(found) > asked.limit))


async def show_turn(call: Call) -> Response:
    """A turn, whole; `last` is the last one that the caller may see."""
    return reply(TurnShape.model_validate(_whole(await _turn_of(call, call.at("id")))))


async def _turn_of(call: Call, written: str) -> KeptTurn:
    wanted = "" if written == LAST else written
    find = partial(call.runtime.chatting.store.find_turn, wanted, prefix=prefix_of(call))
    found = await anyio.to_thread.run_sync(find)
    if found is None:
        raise unknown("turn", written)
    return found


def _short(turn: KeptTurn) -> dict[str, Any]:
    record: Mapping[str, Any] = turn.record
    tools = dict.fromkeys(call["tool"] for call in record["calls"])
    return {
        **record,
        **record["usage"],
        "id": turn.id,
        "session": turn.session,
        "at": turn.at,
        "tools": list(tools),
        "skills": record.get("skills", []),
    }


def _whole(turn: KeptTurn) -> dict[str, Any]:
    """All of a record; those of earlier versions have no spans."""
    return {"spans": [], **_short(turn)}


async def list_sessions(call: Call) -> Response:
    """The sessions that were used last; of a caller without `admin`, its own."""
    asked, store = call.query(SessionsAsked), call.runtime.chatting.store
    look = partial(store.latest, asked.limit, prefix=prefix_of(call))
    found = await anyio.to_thread.run_sync(look)
    return reply(SessionList(data=[SessionLine.model_validate(one) for one in found]))


async def show_session(call: Call) -> Response:
    """A session with all that was said in it."""
    session_id, store = session_of(call, call.at("id")), call.runtime.chatting.store
    found = await anyio.to_thread.run_sync(store.look, session_id)
    if found is None:
        raise unknown("session", call.at("id"))
    return reply(_session(found))


async def delete_session(call: Call) -> Response:
    """Forget a session and its turns; one that has a turn now, when that has ended."""
    session_id = session_of(call, call.at("id"))
    if not await call.runtime.chatting.forget(session_id):
        raise unknown("session", call.at("id"))
    return reply(Gone(id=session_id))


def _session(found: KeptSession) -> SessionShape:
    return SessionShape(
        id=found.id,
        changed=found.changed,
        title=found.title,
        turns=found.turns,
        skills=list(found.skills),
        input_tokens=found.spent.input_tokens,
        output_tokens=found.spent.output_tokens,
        messages=messages_of(found.messages),
    )


def messages_of(messages: Sequence[Message]) -> list[MessageShape]:
    """Messages in plain shapes."""
    return [_message(message) for message in messages]


def _message(message: Message) -> MessageShape:
    match message:
        case SystemMessage():
            return MessageShape(role="system", text=message.text)
        case UserMessage():
            return MessageShape(
                role="user", text=message.text, kind=message.kind, skill=message.skill
            )
        case AssistantMessage():
            calls = [CallText.model_validate(call) for call in message.tool_calls]
            return MessageShape(role="assistant", text=message.text, tool_calls=calls)
        case ToolMessage():
            return MessageShape(
                role="tool",
                text=message.text,
                call_id=message.call_id,
                is_error=message.is_error,
            )


ROUTES: tuple[Route, ...] = (
    Route(
        method="GET",
        path="/v1/turns",
        endpoint=list_turns,
        summary="List turns, the latest first",
        scope="chat",
        also="admin",
        asks=TurnsAsked,
        gives=TurnList,
        errors=(404,),
    ),
    Route(
        method="GET",
        path="/v1/turns/{id}",
        endpoint=show_turn,
        summary="Show why a turn went as it did",
        scope="chat",
        also="admin",
        gives=TurnShape,
        errors=(404,),
    ),
    Route(
        method="GET",
        path="/v1/explain/{id}",
        endpoint=show_turn,
        summary="Show why a turn went as it did; 'last' is the last one",
        scope="chat",
        also="admin",
        gives=TurnShape,
        errors=(404,),
    ),
    Route(
        method="GET",
        path="/v1/sessions",
        endpoint=list_sessions,
        summary="List sessions, the one used last first",
        scope="chat",
        also="admin",
        asks=SessionsAsked,
        gives=SessionList,
    ),
    Route(
        method="GET",
        path="/v1/sessions/{id:path}",
        endpoint=show_session,
        summary="Show a session with its messages",
        scope="chat",
        also="admin",
        gives=SessionShape,
        errors=(404,),
    ),
    Route(
        method="DELETE",
        path="/v1/sessions/{id:path}",
        endpoint=delete_session,
        summary="Forget a session and its turns",
        scope="chat",
        also="admin",
        gives=Gone,
        errors=(404,),
    ),
)
