"""History endpoints: traces of turns, stored sessions, and runs of scripts."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import anyio.to_thread
from starlette.responses import Response

from apexbridge.agent.session_store import StoredTurn
from apexbridge.errors import RequestError
from apexbridge.messages import AssistantMessage, Message, SystemMessage, ToolMessage, UserMessage
from apexbridge.runtime.run_store import ScriptRun
from apexbridge.server.admin.schemas import (
    DeletedSession,
    MessageSchema,
    MessageToolCall,
    PageQuery,
    RunDetail,
    RunList,
    RunSummary,
    SessionDetail,
    SessionList,
    SessionsQuery,
    SessionSummary,
    TurnDetail,
    TurnList,
    TurnsQuery,
    TurnSummary,
)
from apexbridge.server.routing import RequestContext, Router, json_response

LATEST = "last"

router = Router("/v1", scope="chat", alternative_scope="admin")


def visible_prefix(ctx: RequestContext) -> str:
    """Return the prefix of the session ids that the caller may see; empty (all) for `admin`."""
    return "" if ctx.caller.has_scope("admin") else f"{ctx.caller.id}:"


def qualified_session_id(ctx: RequestContext, session: str) -> str:
    """Return a full session id: callers may omit the prefix of their own sessions."""
    own = f"{ctx.caller.id}:"
    if session.startswith(own) or ctx.caller.has_scope("admin"):
        return session
    return own + session


def record_not_found(kind: str, record_id: str) -> RequestError:
    """Return the error for a record that does not exist, or that the caller may not see."""
    return RequestError(code="record_unknown", kind=kind, id=record_id[:200])


@router.get("/turns", query=TurnsQuery, response=TurnList, errors=(404,))
async def list_turns(ctx: RequestContext) -> Response:
    """List the latest turns; without `admin`, those of the caller's own sessions."""
    query, store = ctx.query(TurnsQuery), ctx.runtime.chat_service.store
    prefix = visible_prefix(ctx)
    session = qualified_session_id(ctx, query.session) if query.session else ""
    before = (await _find_turn(ctx, query.before)).id if query.before else ""
    load = partial(store.turns, query.limit + 1, before=before, session=session, prefix=prefix)
    found = await anyio.to_thread.run_sync(load)
    turns = [TurnSummary.model_validate(_turn_summary(turn)) for turn in found[: query.limit]]
    return json_response(TurnList(data=turns, has_more=len(found) > query.limit))


@router.get("/turns/{id}", response=TurnDetail, errors=(404,))
@router.get("/explain/{id}", response=TurnDetail, errors=(404,))
async def show_turn(ctx: RequestContext) -> Response:
    """Show the trace of a turn; `last` is the latest that the caller may see."""
    turn = await _find_turn(ctx, ctx.path_param("id"))
    # Records of earlier versions have no spans.
    return json_response(TurnDetail.model_validate({"spans": [], **_turn_summary(turn)}))


async def _find_turn(ctx: RequestContext, turn_id: str) -> StoredTurn:
    wanted = "" if turn_id == LATEST else turn_id
    find = partial(ctx.runtime.chat_service.store.find_turn, wanted, prefix=visible_prefix(ctx))
    found = await anyio.to_thread.run_sync(find)
    if found is None:
        raise record_not_found("turn", turn_id)
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


@router.get("/sessions", query=SessionsQuery, response=SessionList)
async def list_sessions(ctx: RequestContext) -> Response:
    """List the latest sessions; without `admin`, the caller's own."""
    query, store = ctx.query(SessionsQuery), ctx.runtime.chat_service.store
    load = partial(store.latest, query.limit, prefix=visible_prefix(ctx))
    found = await anyio.to_thread.run_sync(load)
    return json_response(SessionList(data=[SessionSummary.model_validate(one) for one in found]))


@router.get("/sessions/{id:path}", response=SessionDetail, errors=(404,))
async def show_session(ctx: RequestContext) -> Response:
    """Show a session with its messages."""
    session_id = qualified_session_id(ctx, ctx.path_param("id"))
    found = await anyio.to_thread.run_sync(ctx.runtime.chat_service.store.get, session_id)
    if found is None:
        raise record_not_found("session", ctx.path_param("id"))
    detail = SessionDetail(
        id=found.id,
        changed=found.changed,
        title=found.title,
        turns=found.turns,
        skills=list(found.skills),
        input_tokens=found.usage.input_tokens,
        output_tokens=found.usage.output_tokens,
        messages=to_message_schemas(found.messages),
    )
    return json_response(detail)


@router.delete("/sessions/{id:path}", response=DeletedSession, errors=(404,))
async def delete_session(ctx: RequestContext) -> Response:
    """Delete a session and its turns, after a turn that is running has ended."""
    session_id = qualified_session_id(ctx, ctx.path_param("id"))
    if not await ctx.runtime.chat_service.delete(session_id):
        raise record_not_found("session", ctx.path_param("id"))
    return json_response(DeletedSession(id=session_id))


def to_message_schemas(messages: Sequence[Message]) -> list[MessageSchema]:
    """Convert messages to their response schema."""
    return [_to_message_schema(message) for message in messages]


def _to_message_schema(message: Message) -> MessageSchema:
    match message:
        case SystemMessage():
            return MessageSchema(role="system", text=message.text)
        case UserMessage():
            return MessageSchema(
                role="user",
                text=message.text,
                kind=message.kind,
                skill=message.skill,
                call_id=message.call_id or None,
            )
        case AssistantMessage():
            calls = [MessageToolCall.model_validate(call) for call in message.tool_calls]
            return MessageSchema(role="assistant", text=message.text, tool_calls=calls)
        case ToolMessage():
            return MessageSchema(
                role="tool", text=message.text, call_id=message.call_id, is_error=message.is_error
            )


@router.get(
    "/runs", scope="admin", query=PageQuery, response=RunList, errors=(404,), alternative_scope=None
)
async def list_runs(ctx: RequestContext) -> Response:
    """List the latest script runs of all clients and transports."""
    query, runs = ctx.query(PageQuery), ctx.runtime.script_runner.runs
    if query.before:
        await _find_run(ctx, query.before)
    load = partial(runs.latest, query.limit + 1, before=query.before)
    found = await anyio.to_thread.run_sync(load)
    summaries = [RunSummary.model_validate(run) for run in found[: query.limit]]
    return json_response(RunList(data=summaries, has_more=len(found) > query.limit))


@router.get("/runs/{id}", scope="admin", response=RunDetail, errors=(404,), alternative_scope=None)
async def show_run(ctx: RequestContext) -> Response:
    """Show a script run with the tail of its output."""
    return json_response(RunDetail.model_validate(await _find_run(ctx, ctx.path_param("id"))))


async def _find_run(ctx: RequestContext, run_id: str) -> ScriptRun:
    found = await anyio.to_thread.run_sync(ctx.runtime.script_runner.runs.find, run_id)
    if found is None:
        raise record_not_found("run", run_id)
    return found
