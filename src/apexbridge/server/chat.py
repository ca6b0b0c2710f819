"""Chat completions in OpenAI's shape, with our tools and skills behind them."""

import re
from dataclasses import replace
from functools import partial

from starlette.responses import Response

from apexbridge import wording
from apexbridge.agent.turn import TurnEnd, TurnRecord, TurnRequest
from apexbridge.errors import RequestError
from apexbridge.events import Event, EventSink
from apexbridge.server import chat_models
from apexbridge.server.base import Call, Route
from apexbridge.server.chat_reading import Bounds, turn_of
from apexbridge.server.chat_stream import Manner, TurnStream
from apexbridge.server.chat_telling import Telling
from apexbridge.server.chat_wire import ChatReply, ChatRequest

_SESSION = "x-apexbridge-session"
_HEADER = _SESSION.encode()
_NAME = re.compile(r"[^\s.]{1,128}")


async def complete(call: Call) -> Response:
    """Answer a conversation, whole or as it comes."""
    asked = await call.body(ChatRequest)
    chatting = call.runtime.chatting
    session = _session(call, asked)
    bounds = Bounds(
        limits=chatting.parts.limits,
        withheld=frozenset() if call.caller.may("exec") else chatting.acting,
        model=chat_models.upstream_name(call.runtime, asked.model),
    )
    request = turn_of(asked, bounds, is_kept=bool(session))
    # A caller's conversations have names of its own: nobody can go on with another's.
    record = TurnRecord.new("")
    record.session_id = f"{call.caller.id}:{session or f'once-{record.id}'}"
    telling = Telling(
        record=record,
        model=asked.model or chatting.model.name,
        session=session or None,
        explains=asked.ours.explain,
    )
    carry_out = partial(_carry_out, call, telling.record, is_kept=bool(session))
    receive, flight = call.request.receive, call.flight
    watched = partial(call.house.leaving.watched, receive, flight, chatting.start)
    waits = asked.ours.approvals == "wait"
    if asked.stream:
        stream = TurnStream(telling, _manner(call, asked))
        if asked.ours.progress and call.caller.may("exec"):
            request = replace(request, watch=stream.watch)
        request = _approved(call, request, telling, stream.hear) if waits else request
        return stream.carry_out(partial(carry_out, request, stream.hear), watched)
    request = _approved(call, request, telling, telling.hear) if waits else request
    with watched():
        end = await carry_out(request, telling.hear)
    return Response(telling.whole(end), media_type="application/json")


def _session(call: Call, asked: ChatRequest) -> str:
    """The conversation that the header or the body names; nothing is kept without a name."""
    sent = next((value for name, value in call.request.scope["headers"] if name == _HEADER), None)
    if sent is None:
        return asked.session
    named = sent.decode("latin-1")
    if not _NAME.fullmatch(named) or not named.isprintable():
        detail = f"{_SESSION}: up to 128 characters without blanks and full stops"
        raise RequestError(detail, param=_SESSION)
    return named


def _manner(call: Call, asked: ChatRequest) -> Manner:
    options = asked.stream_options
    return Manner(
        with_usage=bool(options and options.include_usage),
        with_progress=asked.ours.progress,
        with_summary=asked.apexbridge is not None,
        is_open=asked.ours.progress and call.caller.may("exec"),
        language=wording.language_of(call.request.headers.get("accept-language")),
    )


def _approved(call: Call, request: TurnRequest, telling: Telling, hear: EventSink) -> TurnRequest:
    """The same, with somebody who can be asked: whoever looks at the list of questions."""
    session_id = telling.record.session_id
    approver = call.house.approvals.approver_for(session_id, hear)
    return replace(request, approver=approver)


async def _carry_out(
    call: Call, record: TurnRecord, request: TurnRequest, hear: EventSink, *, is_kept: bool
) -> TurnEnd:
    """One turn; everybody who listens hears of it, and the client of what is its own."""
    runtime = call.runtime

    def emit(event: Event) -> None:
        runtime.emit(event)
        hear(event)

    if is_kept:
        return await runtime.chatting.turn(record.session_id, request, emit, record=record)
    return await runtime.chatting.turn_once(request, emit, record)


ROUTES = (
    Route(
        method="POST",
        path="/v1/chat/completions",
        endpoint=complete,
        summary="Answer a conversation",
        scope="chat",
        takes=ChatRequest,
        gives=ChatReply,
        headers=(_SESSION,),
        errors=(404, 413, 502, 503, 504),
    ),
    *chat_models.ROUTES,
)
