"""What a turn says, in OpenAI's words: a whole reply, or the chunks of one."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from apexbridge import locales
from apexbridge.agent.session_store import record_to_json
from apexbridge.agent.turn import TurnRecord, TurnResult
from apexbridge.errors import ApexBridgeError
from apexbridge.events import (
    ApprovalAsked,
    ApprovalSettled,
    Event,
    HookWarned,
    ListingCut,
    ReasoningDelta,
    SkillActivated,
    SkillRefused,
    ToolFinished,
    ToolStarted,
    TurnFinished,
)
from apexbridge.messages import ToolCall
from apexbridge.models.base import Usage
from apexbridge.server.error_responses import error_body

MAX_PROGRESS_CHARS = 2_000
"""Of longer arguments and results the beginning is told."""
DONE = b"data: [DONE]\n\n"
_PROGRESS_EVENTS: Mapping[type, str] = {
    ToolStarted: "tool_started",
    ToolFinished: "tool_finished",
    SkillActivated: "skill_activated",
    SkillRefused: "skill_refused",
    ApprovalAsked: "approval_asked",
    ApprovalSettled: "approval_settled",
    ListingCut: "listing_cut",
    HookWarned: "hook_warned",
    TurnFinished: "turn_finished",
}
_ROUND_SEPARATOR = "\n\n"
"""Between what was said in two rounds."""


@dataclass(slots=True, kw_only=True)
class CompletionBuilder:
    """One turn as it is told to a client."""

    record: TurnRecord
    model: str
    """As the client calls it."""
    session: str | None
    """As the client calls it; None where nothing is kept."""
    explains: bool = False
    reasoning: list[str] = field(default_factory=list[str])
    skills: dict[str, None] = field(default_factory=dict[str, None])
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def id(self) -> str:
        """What the reply is called."""
        return f"chatcmpl-{self.record.id}"

    def hear(self, event: Event) -> None:
        """Note what a whole reply tells besides the text."""
        if isinstance(event, ReasoningDelta) and event.session_id == self.record.session_id:
            self.reasoning.append(event.text)
        elif isinstance(event, SkillActivated):
            self.skills[event.skill] = None

    def whole(self, end: TurnResult) -> bytes:
        """The reply in one piece."""
        message: dict[str, Any] = {
            "role": "assistant",
            "content": end.text or (None if end.client_calls else ""),
            "refusal": None,
        }
        if self.reasoning:
            message["reasoning_content"] = "".join(self.reasoning)
        if end.client_calls:
            message["tool_calls"] = [_tool_call_json(call) for call in end.client_calls]
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": finish_reason(end),
        }
        reply = {
            "id": self.id,
            "object": "chat.completion",
            "created": self.created,
            "model": self.model,
            "choices": [choice],
            "usage": _usage_json(self.record.usage),
            "apexbridge": self.summary(end),
        }
        return to_json(reply)

    def summary(self, end: TurnResult) -> dict[str, Any]:
        """What only this server tells."""
        told: dict[str, Any] = {
            "turn": self.record.id,
            "session": self.session,
            "finish": end.finish,
            "skills": list(self.skills),
            "confidence": self.record.confidence,
        }
        if self.explains:
            told["explanation"] = orjson.loads(record_to_json(self.record))
        return told


class ChunkEncoder:
    """Writes the chunks of one reply."""

    def __init__(self, telling: CompletionBuilder, *, is_open: bool = False) -> None:
        self._telling, self._is_open = telling, is_open
        head = {
            "id": telling.id,
            "object": "chat.completion.chunk",
            "created": telling.created,
            "model": telling.model,
        }
        self._head = b"data: " + to_json(head)[:-1]
        self._delta = self._head + b',"choices":[{"index":0,"delta":'
        self._round = 0
        self._arguments: dict[str, str] = {}
        self._ended: dict[str, ToolFinished] = {}

    def begin(self) -> bytes:
        """Who speaks, before anything is said."""
        return self._chunk(b'{"role":"assistant","content":""}')

    def say(self, text: str) -> bytes:
        """A piece of the answer; what is said in another round begins a paragraph."""
        now, before = self._telling.record.rounds, self._round
        self._round = now
        text = _ROUND_SEPARATOR + text if before and before != now else text
        return self._chunk(b'{"content":' + to_json(text) + b"}")

    def think(self, text: str) -> bytes:
        """A piece of what the model thinks on the way."""
        return self._chunk(b'{"reasoning_content":' + to_json(text) + b"}")

    def watch(self, call: ToolCall, result: str | None) -> bytes:
        """Keep what a call is made with; tell what it came to."""
        if result is None:
            self._arguments[call.id] = call.arguments[:MAX_PROGRESS_CHARS]
            return b""
        ended = self._ended.pop(call.id, None)
        told = {
            "arguments": call.arguments[:MAX_PROGRESS_CHARS],
            "result": result[:MAX_PROGRESS_CHARS],
        }
        return self._event(ended, told) if ended else b""

    def progress(self, event: Event) -> bytes:
        """What happened, on a chunk that says nothing; empty where it is not told."""
        if type(event) not in _PROGRESS_EVENTS:
            return b""
        if self._is_open and isinstance(event, ToolFinished) and event.call_id in self._arguments:
            self._ended[event.call_id] = event  # its result follows at once
            return b""
        more = dict[str, Any]()
        if self._is_open and isinstance(event, ToolStarted):
            more["arguments"] = self._arguments.get(event.call_id, "")
        return self._event(event, more)

    def _event(self, event: Event, more: Mapping[str, Any]) -> bytes:
        facts = asdict(event)
        facts.pop("text", None) if isinstance(event, TurnFinished) else None
        told = {"event": _PROGRESS_EVENTS[type(event)], **facts, **more}
        return self._chunk(b"{}", more=b',"apexbridge":' + to_json(told))

    def end(self, end: TurnResult, *, with_usage: bool, with_summary: bool) -> Iterator[bytes]:
        """The client's calls, why the reply ends, what it cost, and that there is no more."""
        if end.finish == "blocked" and end.text:
            yield self.say(end.text)
        for at, call in enumerate(end.client_calls):
            told = to_json({"tool_calls": [{"index": at, **_tool_call_json(call)}]})
            yield self._chunk(told)
        more = b',"apexbridge":' + to_json(self._telling.summary(end)) if with_summary else b""
        yield self._chunk(b"{}", finish=b'"' + finish_reason(end).encode() + b'"', more=more)
        if with_usage:
            usage = to_json(_usage_json(self._telling.record.usage))
            yield self._head + b',"choices":[],"usage":' + usage + b"}\n\n"
        yield DONE

    def _chunk(self, delta: bytes, *, finish: bytes = b"null", more: bytes = b"") -> bytes:
        return self._delta + delta + b',"finish_reason":' + finish + b"}]" + more + b"}\n\n"


def error_chunk(error: ApexBridgeError, language: locales.Language) -> bytes:
    """What is told where a reply cannot go on, and that there is no more."""
    return b"data: " + to_json(error_body(error, language)) + b"\n\n" + DONE


def finish_reason(end: TurnResult) -> str:
    """Why a reply ends, in OpenAI's words."""
    if end.client_calls:
        return "tool_calls"
    if end.finish == "time":
        return "length"
    return end.reason if end.reason in {"length", "content_filter"} else "stop"


def to_json(value: object) -> bytes:
    """JSON in UTF-8, which cannot carry half a character."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "replace")


def _tool_call_json(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _usage_json(usage: Usage) -> dict[str, int]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
