"""Turns and sessions: what was said, and why each turn went as it did."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import anyio.to_thread
from starlette.responses import Response

from apexbridge.agent.session_store import StoredSession, StoredTurn
from apexbridge.messages import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage
from apexbridge.server.admin.responses import (
    json_response,
    qualified_session_id,
    record_not_found,
    visible_prefix,
)
from apexbridge.server.admin.schemas import (
    DeletedSession,
    MessageSchema,
    MessageToolCall,
    SessionDetail,
    SessionList,
    SessionsQuery,
    SessionSummary,
    TurnDetail,
    TurnList,
    TurnsQuery,
    TurnSummary,
)
from apexbridge.server.routing import RequestContext, Route

LATEST = "last"


async def list_turns(call: RequestContext) -> Response:
    """The latest turns; of a caller without `admin`, those of its own sessions."""
    asked, store = call.query(TurnsQuery), call.runtime.chat_service.store
    prefix = visible_prefix(call)
    session = qualified_session_id(call, asked.session) if asked.session else ""
    before = (await _find_turn(call, asked.before)).id if asked.before else ""
    look = partial(store.turns, asked.limit + 1, before=before, session=session, prefix=prefix)
    found = await anyio.to_thread.run_sync(look)
    lines = [TurnSummary.model_validate(_turn_summary(turn)) for turn in found[: asked.limit]]
    return json_response(TurnList(data=lines, has_more=len(found) > asked.limit))


async def show_turn(call: RequestContext) -> Response:
    """A turn, whole; `last` is the last one that the caller may see."""
    return json_response(
        TurnDetail.model_validate(_turn_detail(await _find_turn(call, call.at("id"))))
    )


async def _find_turn(call: RequestContext, written: str) -> StoredTurn:
    wanted = "" if written == LATEST else written
    find = partial(call.runtime.chat_service.store.find_turn, wanted, prefix=visible_prefix(call))
    found = await anyio.to_thread.run_sync(find)
    if found is None:
        raise record_not_found("turn", written)
    return found


def _turn_summary(turn: StoredTurn) -> dict[str, Any]:
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


def _turn_detail(turn: StoredTurn) -> dict[str, Any]:
    """All of a record; those of earlier versions have no spans."""
    return {"spans": [], **_turn_summary(turn)}


async def list_sessions(call: RequestContext) -> Response:
    """The sessions that were used last; of a caller without `admin`, its own."""
    asked, store = call.query(SessionsQuery), call.runtime.chat_service.store
    look = partial(store.latest, asked.limit, prefix=visible_prefix(call))
    found = await anyio.to_thread.run_sync(look)
    return json_response(SessionList(data=[SessionSummary.model_validate(one) for one in found]))


async def show_session(call: RequestContext) -> Response:
    """A session with all that was said in it."""
    session_id, store = qualified_session_id(call, call.at("id")), call.runtime.chat_service.store
    found = await anyio.to_thread.run_sync(store.get, session_id)
    if found is None:
        raise record_not_found("session", call.at("id"))
    return json_response(_to_session_schema(found))


async def delete_session(call: RequestContext) -> Response:
    """Forget a session and its turns; one that has a turn now, when that has ended."""
    session_id = qualified_session_id(call, call.at("id"))
    if not await call.runtime.chat_service.delete(session_id):
        raise record_not_found("session", call.at("id"))
    return json_response(DeletedSession(id=session_id))


def _to_session_schema(found: StoredSession) -> SessionDetail:
    return SessionDetail(
        id=found.id,
        changed=found.changed,
        title=found.title,
        turns=found.turns,
        skills=list(found.skills),
        input_tokens=found.usage.input_tokens,
        output_tokens=found.usage.output_tokens,
        messages=to_message_schemas(found.messages),
    )


def to_message_schemas(messages: Sequence[Message]) -> list[MessageSchema]:
    """Messages in plain shapes."""
    return [_to_message_schema(message) for message in messages]


def _to_message_schema(message: Message) -> MessageSchema:
    match message:
        case SystemMessage():
            return MessageSchema(role="system", text=message.text)
        case UserMessage():
            return MessageSchema(
                role="user", text=message.text, kind=message.kind, skill=message.skill
            )
        case AssistantMessage():
            calls = [MessageToolCall.model_validate(call) for call in message.tool_calls]
            return MessageSchema(role="assistant", text=message.text, tool_calls=calls)
        case ToolMessage():
            return MessageSchema(
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
        asks=TurnsQuery,
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
        gives=TurnDetail,
        errors=(404,),
    ),
    Route(
        method="GET",
        path="/v1/explain/{id}",
        endpoint=show_turn,
        summary="Show why a turn went as it did; 'last' is the last one",
        scope="chat",
        also="admin",
        gives=TurnDetail,
        errors=(404,),
    ),
    Route(
        method="GET",
        path="/v1/sessions",
        endpoint=list_sessions,
        summary="List sessions, the one used last first",
        scope="chat",
        also="admin",
        asks=SessionsQuery,
        gives=SessionList,
    ),
    Route(
        method="GET",
        path="/v1/sessions/{id:path}",
        endpoint=show_session,
        summary="Show a session with its messages",
        scope="chat",
        also="admin",
        gives=SessionDetail,
        errors=(404,),
    ),
    Route(
        method="DELETE",
        path="/v1/sessions/{id:path}",
        endpoint=delete_session,
        summary="Forget a session and its turns",
        scope="chat",
        also="admin",
        gives=DeletedSession,
        errors=(404,),
    ),
)
