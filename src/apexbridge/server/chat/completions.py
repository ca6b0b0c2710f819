"""Chat completions in OpenAI's shape, with our tools and skills behind them."""

import re
from dataclasses import replace
from functools import partial

from starlette.responses import Response

from apexbridge import locales
from apexbridge.agent.turn import TurnRecord, TurnRequest, TurnResult
from apexbridge.errors import RequestError
from apexbridge.events import Event, EventSink
from apexbridge.server.chat import models
from apexbridge.server.chat.request import CallerLimits, to_turn_request
from apexbridge.server.chat.response import CompletionBuilder
from apexbridge.server.chat.schemas import ChatCompletion, ChatRequest
from apexbridge.server.chat.stream import StreamFormat, TurnStreamResponse
from apexbridge.server.routing import RequestContext, Route

_SESSION_HEADER = "x-apexbridge-session"
_RAW_SESSION_HEADER = _SESSION_HEADER.encode()
_SESSION_NAME = re.compile(r"[^\s.]{1,128}")


async def create_completion(call: RequestContext) -> Response:
    """Answer a conversation, whole or as it comes."""
    asked = await call.body(ChatRequest)
    chatting = call.runtime.chat_service
    session = _session_name(call, asked)
    bounds = CallerLimits(
        limits=chatting.agent.deps.limits,
        withheld=frozenset() if call.caller.may("exec") else chatting.acting_tools,
        model=models.upstream_name(call.runtime, asked.model),
    )
    request = to_turn_request(asked, bounds, is_kept=bool(session))
    # A caller's conversations have names of its own: nobody can go on with another's.
    record = TurnRecord.new("")
    record.session_id = f"{call.caller.id}:{session or f'once-{record.id}'}"
    telling = CompletionBuilder(
        record=record,
        model=asked.model or chatting.model.name,
        session=session or None,
        explains=asked.ours.explain,
    )
    carry_out = partial(_run_turn, call, telling.record, is_kept=bool(session))
    receive, flight = call.request.receive, call.flight
    watched = partial(call.house.leaving.watched, receive, flight, chatting.start)
    waits = asked.ours.approvals == "wait"
    if asked.stream:
        stream = TurnStreamResponse(telling, _stream_format(call, asked))
        if asked.ours.progress and call.caller.may("exec"):
            request = replace(request, observer=stream)
        request = _with_approver(call, request, telling, stream.hear) if waits else request
        return stream.carry_out(partial(carry_out, request, stream.hear), watched)
    request = _with_approver(call, request, telling, telling.hear) if waits else request
    with watched():
        end = await carry_out(request, telling.hear)
    return Response(telling.whole(end), media_type="application/json")


def _session_name(call: RequestContext, asked: ChatRequest) -> str:
    """The conversation that the header or the body names; nothing is kept without a name."""
    sent = next(
        (value for name, value in call.request.scope["headers"] if name == _RAW_SESSION_HEADER),
        None,
    )
    if sent is None:
        return asked.session
    named = sent.decode("latin-1")
    if not _SESSION_NAME.fullmatch(named) or not named.isprintable():
        detail = f"{_SESSION_HEADER}: up to 128 characters without blanks and full stops"
        raise RequestError(detail, param=_SESSION_HEADER)
    return named


def _stream_format(call: RequestContext, asked: ChatRequest) -> StreamFormat:
    options = asked.stream_options
    return StreamFormat(
        with_usage=bool(options and options.include_usage),
        with_progress=asked.ours.progress,
        with_summary=asked.apexbridge is not None,
        is_open=asked.ours.progress and call.caller.may("exec"),
        language=locales.parse_language(call.request.headers.get("accept-language")),
    )


def _with_approver(
    call: RequestContext, request: TurnRequest, telling: CompletionBuilder, hear: EventSink
) -> TurnRequest:
    """The same, with somebody who can be asked: whoever looks at the list of questions."""
    session_id = telling.record.session_id
    approver = call.house.approvals.approver_for(session_id, hear)
    return replace(request, approver=approver)


async def _run_turn(
    call: RequestContext,
    record: TurnRecord,
    request: TurnRequest,
    hear: EventSink,
    *,
    is_kept: bool,
) -> TurnResult:
    """One turn; everybody who listens hears of it, and the client of what is its own."""
    runtime = call.runtime

    def emit(event: Event) -> None:
        runtime.events.emit(event)
        hear(event)

    if is_kept:
        return await runtime.chat_service.turn(record.session_id, request, emit, record=record)
    return await runtime.chat_service.turn_once(request, emit, record)


ROUTES = (
    Route(
        method="POST",
        path="/v1/chat/completions",
        endpoint=create_completion,
        summary="Answer a conversation",
        scope="chat",
        takes=ChatRequest,
        gives=ChatCompletion,
        headers=(_SESSION_HEADER,),
        errors=(404, 413, 502, 503, 504),
    ),
    *models.ROUTES,
)
