"""Chat completions and models endpoints, compatible with OpenAI's API."""

import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

from pydantic import BaseModel
from starlette.responses import Response

from apexbridge import locales
from apexbridge.activation.input_files import InputFile, InputFiles
from apexbridge.agent.turn import TurnRecord, TurnRequest, TurnResult
from apexbridge.errors import RequestError
from apexbridge.events import Event, EventSink
from apexbridge.runtime import Runtime
from apexbridge.runtime.model_factory import EMBEDDED_MODEL
from apexbridge.server.chat.request import CallerLimits, to_turn_request
from apexbridge.server.chat.response import CompletionBuilder
from apexbridge.server.chat.schemas import ChatCompletion, ChatRequest
from apexbridge.server.chat.stream import StreamFormat, TurnStreamResponse
from apexbridge.server.routing import RequestContext, Router, json_response

DEFAULT_MODEL = "apexbridge"
"""Alias of the model that the settings name."""
_CREATED = 1_700_000_000
_SESSION_HEADER = "x-apexbridge-session"
_RAW_SESSION_HEADER = _SESSION_HEADER.encode()
_SESSION_NAME = re.compile(r"[^\s.]{1,128}")

router = Router("/v1", scope="chat")


class ModelCard(BaseModel):
    """Model, in OpenAI's schema."""

    id: str
    object: Literal["model"] = "model"
    created: int = _CREATED
    owned_by: str = DEFAULT_MODEL


class ModelList(BaseModel):
    """Models that a request can name."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


@router.post(
    "/chat/completions",
    body=ChatRequest,
    response=ChatCompletion,
    headers=(_SESSION_HEADER,),
    errors=(404, 413, 502, 503, 504),
)
async def create_completion(ctx: RequestContext) -> Response:
    """Run a turn, and return its result as one response or as a stream."""
    body = await ctx.body(ChatRequest)
    chatting = ctx.runtime.chat_service
    session = _session_name(ctx, body)
    limits = CallerLimits(
        limits=chatting.agent.deps.limits,
        withheld=frozenset() if ctx.caller.has_scope("exec") else chatting.acting_tools,
        model=upstream_name(ctx.runtime, body.model),
    )
    request = to_turn_request(body, limits, has_session=bool(session))
    # Session ids begin with the caller's id, so that no caller can continue another's session.
    record = TurnRecord.new("")
    record.session_id = f"{ctx.caller.id}:{session or f'once-{record.id}'}"
    if body.options.files:
        request = replace(request, files=await _attach(ctx, body.options.files, record.session_id))
    completion = CompletionBuilder(
        record=record,
        model=body.model or chatting.model.name,
        session=session or None,
        explain=body.options.explain,
    )
    run = partial(_run_turn, ctx, record, has_session=bool(session))
    watch = ctx.cancel_on_disconnect
    if body.stream:
        return _stream(ctx, body, completion, request, run, watch)
    request = _with_approver(ctx, body, request, record, completion.on_event)
    with watch():
        result = await run(request, completion.on_event)
    return Response(completion.to_json(result), media_type="application/json")


async def _attach(ctx: RequestContext, files: Sequence[InputFile], session_id: str) -> Path:
    """Store the files of a request.

    Raises:
        RequestError: `scope_missing` for a key whose tools could not read them.
        ToolInputError: If a file is invalid, or all together are too large.
    """
    if not ctx.caller.has_scope("exec"):
        raise RequestError(code="scope_missing", scope="exec")
    return await ctx.runtime.chat_service.attach(session_id, InputFiles.from_client(files).files)


def _stream(
    ctx: RequestContext,
    body: ChatRequest,
    completion: CompletionBuilder,
    request: TurnRequest,
    run: Callable[[TurnRequest, EventSink], Awaitable[TurnResult]],
    watch: Callable[[], AbstractContextManager[object]],
) -> Response:
    shows_tool_data = body.options.progress and ctx.caller.has_scope("exec")
    options = body.stream_options
    stream = TurnStreamResponse(
        completion,
        StreamFormat(
            with_usage=bool(options and options.include_usage),
            with_progress=body.options.progress,
            with_summary=body.apexbridge is not None,
            with_tool_data=shows_tool_data,
            language=locales.parse_language(ctx.request.headers.get("accept-language")),
        ),
    )
    if shows_tool_data:
        request = replace(request, observer=stream)
    request = _with_approver(ctx, body, request, completion.record, stream.on_event)
    return stream.start(partial(run, request, stream.on_event), watch)


def _session_name(ctx: RequestContext, body: ChatRequest) -> str:
    """Return the session named by the header or the body; without one nothing is stored."""
    headers = ctx.request.scope["headers"]
    sent = next((value for name, value in headers if name == _RAW_SESSION_HEADER), None)
    if sent is None:
        return body.session
    name = sent.decode("latin-1")
    if not _SESSION_NAME.fullmatch(name) or not name.isprintable():
        detail = f"{_SESSION_HEADER}: at most 128 characters, without spaces and full stops"
        raise RequestError(detail, param=_SESSION_HEADER)
    return name


def _with_approver(
    ctx: RequestContext,
    body: ChatRequest,
    request: TurnRequest,
    record: TurnRecord,
    emit: EventSink,
) -> TurnRequest:
    """Attach the approval queue (human in the loop) if the client is willing to wait for it."""
    if body.options.approvals != "wait":
        return request
    approver = ctx.state.approvals.approver_for(record.session_id, emit)
    return replace(request, approver=approver)


async def _run_turn(
    ctx: RequestContext,
    record: TurnRecord,
    request: TurnRequest,
    on_event: EventSink,
    *,
    has_session: bool,
) -> TurnResult:
    """Run a turn, with its events published on the server and to the client."""
    runtime = ctx.runtime

    def emit(event: Event) -> None:
        runtime.events.emit(event)
        on_event(event)

    if has_session:
        return await runtime.chat_service.turn(record.session_id, request, emit, record=record)
    return await runtime.chat_service.turn_once(request, emit, record)


def model_names(runtime: Runtime) -> tuple[str, ...]:
    """Return the names of the configured model."""
    return tuple(dict.fromkeys((runtime.chat_service.model.name, DEFAULT_MODEL)))


def upstream_name(runtime: Runtime, wanted: str) -> str:
    """Return the model name to send upstream; empty for the configured model.

    Raises:
        RequestError: `model_unknown` if the built-in model runs and another is asked for.
    """
    name = runtime.chat_service.model.name
    if wanted in {"", DEFAULT_MODEL, name}:
        return ""
    if name == EMBEDDED_MODEL:
        raise RequestError(code="model_unknown", name=wanted, param="model")
    return wanted


@router.get("/models", response=ModelList)
async def list_models(ctx: RequestContext) -> Response:
    """List the models that a request can name."""
    return json_response(ModelList(data=[ModelCard(id=name) for name in model_names(ctx.runtime)]))


@router.get("/models/{id:path}", response=ModelCard, errors=(404,))
async def show_model(ctx: RequestContext) -> Response:
    """Show a model."""
    name = ctx.path_param("id")
    if name not in model_names(ctx.runtime):
        raise RequestError(code="model_unknown", name=name, param="model")
    return json_response(ModelCard(id=name))
