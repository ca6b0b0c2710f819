"""Encode the result of a turn as an OpenAI chat completion, or as chunks of one."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from apexbridge import locales
from apexbridge.agent.session_store import encode_json
from apexbridge.agent.turn import TurnRecord, TurnResult
from apexbridge.errors import ApexBridgeError
from apexbridge.events import (
    ApprovalAsked,
    ApprovalSettled,
    Event,
    FilesCreated,
    FilesSkipped,
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
from apexbridge.server.admin.run_files import file_url
from apexbridge.server.error_responses import error_body

MAX_PROGRESS_CHARS = 2_000
"""Longer arguments and results are truncated in progress events."""
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
    FilesCreated: "files_created",
    FilesSkipped: "files_skipped",
    TurnFinished: "turn_finished",
}
_ROUND_SEPARATOR = "\n\n"
"""Paragraph break between the texts of two rounds of the agent loop."""


@dataclass(slots=True, kw_only=True)
class CompletionBuilder:
    """Collects what a chat completion reports of a turn besides its text."""

    record: TurnRecord
    model: str
    """The model name that the client sent."""
    session: str | None
    """The session name that the client sent; None if the turn is not stored."""
    explain: bool = False
    reasoning: list[str] = field(default_factory=list[str])
    skills: dict[str, None] = field(default_factory=dict[str, None])
    files: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Files that scripts made in this turn, with the address for the download."""
    skipped_files: dict[str, str] = field(default_factory=dict[str, str])
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def id(self) -> str:
        """Id of the completion."""
        return f"chatcmpl-{self.record.id}"

    def on_event(self, event: Event) -> None:
        """Collect reasoning, activated skills and created files."""
        if isinstance(event, ReasoningDelta) and event.session_id == self.record.session_id:
            self.reasoning.append(event.text)
        elif isinstance(event, SkillActivated):
            self.skills[event.skill] = None
        elif isinstance(event, FilesCreated):
            self.files += _files_json(event)
        elif isinstance(event, FilesSkipped):
            self.skipped_files |= event.files

    def to_json(self, result: TurnResult) -> bytes:
        """Encode the completion."""
        message: dict[str, Any] = {
            "role": "assistant",
            "content": result.text or (None if result.client_calls else ""),
            "refusal": None,
        }
        if self.reasoning:
            message["reasoning_content"] = "".join(self.reasoning)
        if result.client_calls:
            message["tool_calls"] = [_tool_call_json(call) for call in result.client_calls]
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": finish_reason(result),
        }
        completion = {
            "id": self.id,
            "object": "chat.completion",
            "created": self.created,
            "model": self.model,
            "choices": [choice],
            "usage": _usage_json(self.record.usage),
            "apexbridge": self.summary(result),
        }
        return to_json(completion)

    def summary(self, result: TurnResult) -> dict[str, Any]:
        """Return the `apexbridge` extension of the completion."""
        summary: dict[str, Any] = {
            "turn": self.record.id,
            "session": self.session,
            "finish": result.finish,
            "skills": list(self.skills),
            "skill_calls": [asdict(call) for call in self.record.skill_calls],
            "confidence": self.record.confidence,
        }
        if self.files:
            summary["files"] = self.files
        if self.skipped_files:
            summary["skipped_files"] = self.skipped_files
        if self.explain:
            summary["explanation"] = orjson.loads(encode_json(self.record))
        return summary


def _files_json(event: FilesCreated) -> list[dict[str, Any]]:
    return [
        {
            "path": path,
            "size": size,
            "skill": event.skill,
            "run": event.run_id,
            "url": file_url(event.run_id, path),
        }
        for path, size in event.files.items()
    ]


class ChunkEncoder:
    """Encodes the chunks of one completion as server-sent events."""

    def __init__(self, completion: CompletionBuilder, *, with_tool_data: bool = False) -> None:
        self._completion, self._with_tool_data = completion, with_tool_data
        head = {
            "id": completion.id,
            "object": "chat.completion.chunk",
            "created": completion.created,
            "model": completion.model,
        }
        self._head = b"data: " + to_json(head)[:-1]
        self._delta = self._head + b',"choices":[{"index":0,"delta":'
        self._round = 0
        self._arguments: dict[str, str] = {}
        self._finished: dict[str, ToolFinished] = {}

    def start(self) -> bytes:
        """Encode the first chunk, which has the role."""
        return self._chunk(b'{"role":"assistant","content":""}')

    def text(self, text: str) -> bytes:
        """Encode a text delta; a new round of the agent loop starts a paragraph."""
        now, before = self._completion.record.rounds, self._round
        self._round = now
        text = _ROUND_SEPARATOR + text if before and before != now else text
        return self._chunk(b'{"content":' + to_json(text) + b"}")

    def reasoning(self, text: str) -> bytes:
        """Encode a reasoning delta."""
        return self._chunk(b'{"reasoning_content":' + to_json(text) + b"}")

    def tool_call(self, call: ToolCall, result: str | None) -> bytes:
        """Remember the arguments of a tool call; encode its result."""
        if result is None:
            self._arguments[call.id] = call.arguments[:MAX_PROGRESS_CHARS]
            return b""
        event = self._finished.pop(call.id, None)
        data = {
            "arguments": call.arguments[:MAX_PROGRESS_CHARS],
            "result": result[:MAX_PROGRESS_CHARS],
        }
        return self._event(event, data) if event else b""

    def progress(self, event: Event) -> bytes:
        """Encode a progress event on a chunk with an empty delta; empty if it is not streamed."""
        if type(event) not in _PROGRESS_EVENTS:
            return b""
        more = dict[str, Any]()
        if self._with_tool_data:
            if isinstance(event, ToolFinished) and event.call_id in self._arguments:
                self._finished[event.call_id] = event  # encoded with its result, which follows
                return b""
            if isinstance(event, ToolStarted):
                more["arguments"] = self._arguments.get(event.call_id, "")
        return self._event(event, more)

    def _event(self, event: Event, more: Mapping[str, Any]) -> bytes:
        fields = asdict(event)
        if isinstance(event, TurnFinished):
            fields.pop("text", None)  # already streamed as deltas
        elif isinstance(event, FilesCreated):
            fields = {**fields, "files": _files_json(event)}
            fields.pop("folder")  # of this machine
        elif isinstance(event, SkillRefused):
            fields.pop("details")  # may have paths of this machine
        data = {"event": _PROGRESS_EVENTS[type(event)], **fields, **more}
        return self._chunk(b"{}", more=b',"apexbridge":' + to_json(data))

    def end(self, result: TurnResult, *, with_usage: bool, with_summary: bool) -> Iterator[bytes]:
        """Encode calls of client tools, the finish reason, the usage and `[DONE]`."""
        if result.finish == "blocked" and result.text:
            yield self.text(result.text)
        for at, call in enumerate(result.client_calls):
            yield self._chunk(to_json({"tool_calls": [{"index": at, **_tool_call_json(call)}]}))
        more = b""
        if with_summary:
            more = b',"apexbridge":' + to_json(self._completion.summary(result))
        yield self._chunk(b"{}", finish=b'"' + finish_reason(result).encode() + b'"', more=more)
        if with_usage:
            usage = to_json(_usage_json(self._completion.record.usage))
            yield self._head + b',"choices":[],"usage":' + usage + b"}\n\n"
        yield DONE

    def _chunk(self, delta: bytes, *, finish: bytes = b"null", more: bytes = b"") -> bytes:
        return self._delta + delta + b',"finish_reason":' + finish + b"}]" + more + b"}\n\n"


def error_chunk(error: ApexBridgeError, language: locales.Language) -> bytes:
    """Encode an error in the middle of a stream, and `[DONE]`."""
    return b"data: " + to_json(error_body(error, language)) + b"\n\n" + DONE


def finish_reason(result: TurnResult) -> str:
    """Map the end of a turn to OpenAI's `finish_reason`."""
    if result.client_calls:
        return "tool_calls"
    if result.finish == "time":
        return "length"
    return result.reason if result.reason in {"length", "content_filter"} else "stop"


def to_json(value: object) -> bytes:
    """Encode JSON as UTF-8; lone surrogates, which UTF-8 cannot encode, become `?`."""
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
