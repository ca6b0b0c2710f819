"""Parser of text tool calls: a call, an answer or a parse error, streamed or whole."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from apexbridge.models.base import ModelDelta

_MAX_OBJECTS = 16
_TOOL_KEYS = ("tool", "name", "action")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input")
_LOOKS_LIKE_A_CALL = re.compile(r"[{｛]\s*[\"“'](?:tool|name|action)[\"”']\s*[:：]")
_REASONING_MARKUP = re.compile(
    r"```(?:json)?|</?tool_call>|(?:thought|action|思考|想法|行动)\s*[:：]", re.IGNORECASE
)
_ANSWER_LABEL = re.compile(r"(?:final answer|最终答案|最终回答)\s*[:：]\s*", re.IGNORECASE)
_PUNCTUATION = str.maketrans("“”‘’：，｛｝［］", "\"\"''" + ":,{}[]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedReply:
    """Parsed reply; with a `problem`, `text` is the whole reply."""

    text: str = ""
    reasoning: str = ""
    tool: str = ""
    arguments: str = ""
    problem: str = ""


def parse_reply(reply: str, names: frozenset[str], *, is_call_last: bool = False) -> ParsedReply:
    """Parse a complete reply; the first JSON object decides.

    With `is_call_last` a call counts only if nothing follows it: a text that quotes one is no call.

    >>> parse_reply('{"tool": "Now", "arguments": {}}', frozenset({"Now"})).tool
    'Now'
    """
    spans: list[range] = []
    for found, start, end in _objects(reply):
        spans.append(range(start, end))
        parsed = _parse_object(found, names)
        if parsed is None:
            continue
        reasoning = _REASONING_MARKUP.sub("", reply[:start]).strip()
        if is_call_last and (reasoning or _REASONING_MARKUP.sub("", reply[end:]).strip(" \n.。")):
            break
        return ParsedReply(
            text=reply if parsed.problem else parsed.text,
            reasoning=reasoning,
            tool=parsed.tool,
            arguments=parsed.arguments,
            problem=parsed.problem,
        )
    else:
        tried = [found.start() for found in _LOOKS_LIKE_A_CALL.finditer(reply)]
        if any(all(start not in span for span in spans) for start in tried):
            return ParsedReply(text=reply, problem="it is not valid JSON")
    return _parse_text(reply)


def _parse_text(reply: str) -> ParsedReply:
    label = _ANSWER_LABEL.search(reply)
    if label is None:
        return ParsedReply(text=reply)
    reasoning = _REASONING_MARKUP.sub("", reply[: label.start()]).strip()
    return ParsedReply(text=reply[label.end() :], reasoning=reasoning)


def _objects(reply: str) -> Iterator[tuple[dict[str, Any], int, int]]:
    """Yield the JSON objects in a text and their positions; Chinese punctuation is accepted."""
    decoder = json.JSONDecoder(strict=False)
    readings = (reply, reply.translate(_PUNCTUATION))
    at = -1
    for _ in range(_MAX_OBJECTS):
        at = readings[1].find("{", at + 1)
        if at < 0:
            return
        for reading in readings:
            try:
                found, end = decoder.raw_decode(reading, at)
            except (ValueError, RecursionError):
                continue
            yield found, at, end
            at = end - 1
            break


def _parse_object(found: dict[str, Any], names: frozenset[str]) -> ParsedReply | None:
    if isinstance(found.get("answer"), str) and not found.get("tool"):
        return ParsedReply(text=drop_half_surrogates(found["answer"]))
    tool = next((found[key] for key in _TOOL_KEYS if key in found), None)
    known = {name.lower(): name for name in names}
    name = known.get(tool.strip().lower()) if isinstance(tool, str) else None
    if name is None:
        if "tool" not in found:
            return None  # an answer that happens to be JSON
        available = ", ".join(sorted(names)) or "none"
        return ParsedReply(problem=f"there is no tool {tool!r}; the tools are {available}")
    arguments: Any = next((found[key] for key in _ARGUMENT_KEYS if key in found), None)
    if arguments is None:
        arguments = {}
    if isinstance(arguments, str):
        arguments = _load_arguments(arguments)
    if not isinstance(arguments, dict):
        return ParsedReply(problem='"arguments" must be a JSON object')
    written = json.dumps(arguments, ensure_ascii=False)
    return ParsedReply(tool=name, arguments=drop_half_surrogates(written))


def drop_half_surrogates(text: str) -> str:
    """Replace lone surrogates, which JSON can escape and UTF-8 cannot encode."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _load_arguments(arguments: str) -> Any:
    try:
        return json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        return None


_ANSWER = re.compile(r"(?:```(?:json)?\s*)?\{\s*\"answer\"\s*:\s*\"")
_LABEL = re.compile(
    r"(?:final answer|answer|最终答案|最终回答|回答|答案)\s*[:：]\s*", re.IGNORECASE
)
_HELD_BACK = re.compile(
    r"[{｛`\[]|<tool_call>|(?:thought|action|思考|想法|行动)\s*[:：]", re.IGNORECASE
)
_OPENINGS = (
    *("final answer:", "answer:", "最终答案:", "最终回答:", "回答:", "答案:"),
    *("thought:", "action:", "思考:", "想法:", "行动:", "<tool_call>", "<think>"),
)
_CALL = re.compile(
    r"(?:```(?:json)?\s*|<tool_call>\s*)?[{｛]\s*[\"“](?:tool|name|action)[\"”]", re.IGNORECASE
)
_CALL_MARK = re.compile(r"[{｛`<]")
_LOOKAHEAD_CHARS = 48
"""Lookahead after which it is certain whether a mark begins a call."""
_REASONING_END = "</think>"
_ESCAPE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}|\\u[0-9a-fA-F]{4}|\\[^u]")
_HALF_ESCAPE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?\Z")

_ESCAPE_LENGTH = len("\\u0000")

ParserState = Literal["start", "thinking", "plain", "answer", "held", "done"]


class ReplyStreamParser:
    """Streaming parser: yields text as soon as it cannot be part of a tool call."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._held = ""
        self._state: ParserState = "start"
        self._is_after_text = False
        self._chunks: list[str] = []
        self._unread: list[str] = []

    @property
    def raw(self) -> str:
        """The unparsed reply."""
        return "".join(self._chunks)

    def feed(self, chunk: str) -> ModelDelta | None:
        """Add a chunk; return the text that can be shown by now."""
        self._chunks.append(chunk)
        if self._state in {"held", "done"}:
            self._unread.append(chunk)
            return None
        self._held += chunk
        text, reasoning = "", ""
        before = None
        while before != (self._state, self._held):
            before = (self._state, self._held)
            match self._state:
                case "start":
                    self._start()
                case "thinking":
                    reasoning += self._reasoning()
                case "plain":
                    text += self._plain()
                case "answer":
                    text += self._answer()
                case "held" | "done":
                    break
        return ModelDelta(text=text, reasoning=reasoning) if text or reasoning else None

    def finish(self) -> ParsedReply:
        """Return the parsed reply, without the text already returned."""
        match self._state:
            case "start" | "held":
                reply = "".join((self._held, *self._unread))
                return parse_reply(reply, self._names, is_call_last=self._is_after_text)
            case "thinking":
                return ParsedReply(reasoning=self._held)
            case "plain":
                return ParsedReply(text=self._held)
            case "answer":
                return ParsedReply(text=_unescape(self._held))
            case "done":
                return ParsedReply()

    def _start(self) -> None:
        """Choose the state from the first characters."""
        reply = self._held = self._held.lstrip()
        if found := _ANSWER.match(reply):
            self._enter("answer", reply[found.end() :])
        elif label := _LABEL.match(reply):
            self._held = reply[label.end() :]
        elif reply.startswith("<think>"):
            self._enter("thinking", reply.removeprefix("<think>"))
        elif _HELD_BACK.match(reply):
            # Shorter, it may still become a JSON answer.
            self._state = "held" if len(reply) >= _LOOKAHEAD_CHARS else "start"
        elif reply and not _may_start_call(reply):
            self._enter("plain", reply)

    def _reasoning(self) -> str:
        reasoning, end, rest = self._held.partition(_REASONING_END)
        if end:
            self._enter("start", rest)
            return reasoning
        keep = len(_REASONING_END) - 1
        ready = self._held[:-keep]
        self._held = self._held[-keep:]
        return ready

    def _plain(self) -> str:
        """Return text up to a mark, or beyond it once it cannot begin a call."""
        held, at = self._held, 0
        while mark := _CALL_MARK.search(held, at):
            at = mark.start()
            is_call = _CALL.match(held, at) is not None
            if is_call or len(held) - at < _LOOKAHEAD_CHARS:
                self._is_after_text = is_call
                self._enter("held" if is_call else "plain", held[at:])
                return held[:at]
            at += 1
        self._held = ""
        return held

    def _answer(self) -> str:
        """Return the JSON string of an answer, up to an incomplete escape."""
        at = 0
        while at < len(self._held) and self._held[at] != '"':
            if self._held[at] != "\\":
                at += 1
                continue
            escape = _ESCAPE.match(self._held, at)
            is_torn = escape is None and len(self._held) - at < _ESCAPE_LENGTH
            if is_torn or _HALF_ESCAPE.match(self._held, at):
                break
            at = escape.end() if escape else at + 1
        ready, rest = self._held[:at], self._held[at:]
        self._enter("done" if rest.startswith('"') else "answer", rest)
        return _unescape(ready)

    def _enter(self, state: ParserState, rest: str) -> None:
        self._state, self._held = state, rest


def _may_start_call(reply: str) -> bool:
    plain = reply.lower().replace("：", ":")
    return any(opening.startswith(plain) for opening in _OPENINGS)


def _unescape(ready: str) -> str:
    return _ESCAPE.sub(lambda escape: _unescape_one(escape.group()), ready)


def _unescape_one(escape: str) -> str:
    try:
        return drop_half_surrogates(json.loads(f'"{escape}"'))
    except ValueError:  # an invalid escape, such as in a Windows path
        return escape
