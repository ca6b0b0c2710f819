"""What a model without tool calls replied: a call, an answer, or what is wrong with it."""

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
    """What a reply comes to; with a `problem` it is neither, and `text` is all of it."""

    text: str = ""
    reasoning: str = ""
    tool: str = ""
    arguments: str = ""
    problem: str = ""


def parse_reply(said: str, names: frozenset[str], *, is_call_last: bool = False) -> ParsedReply:
    """Read a whole reply strictly.

    The first object decides. With `is_call_last` a call counts only where nothing follows it: a
    text that quotes one is no call.

    >>> parse_reply('{"tool": "Now", "arguments": {}}', frozenset({"Now"})).tool
    'Now'
    """
    spans: list[range] = []
    for found, start, end in _objects(said):
        spans.append(range(start, end))
        verdict = _parse_object(found, names)
        if verdict is None:
            continue
        thought = _REASONING_MARKUP.sub("", said[:start]).strip()
        if is_call_last and (thought or _REASONING_MARKUP.sub("", said[end:]).strip(" \n.。")):
            break
        return ParsedReply(
            text=said if verdict.problem else verdict.text,
            reasoning=thought,
            tool=verdict.tool,
            arguments=verdict.arguments,
            problem=verdict.problem,
        )
    else:
        tried = [found.start() for found in _LOOKS_LIKE_A_CALL.finditer(said)]
        if any(all(start not in span for span in spans) for start in tried):
            return ParsedReply(text=said, problem="it is not valid JSON")
    return _parse_text(said)


def _parse_text(said: str) -> ParsedReply:
    label = _ANSWER_LABEL.search(said)
    if label is None:
        return ParsedReply(text=said)
    thought = _REASONING_MARKUP.sub("", said[: label.start()]).strip()
    return ParsedReply(text=said[label.end() :], reasoning=thought)


def _objects(said: str) -> Iterator[tuple[dict[str, Any], int, int]]:
    """The JSON objects in a text, with where they stand; Chinese punctuation is read as well."""
    decoder = json.JSONDecoder(strict=False)
    readings = (said, said.translate(_PUNCTUATION))
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
    asked = next((found[key] for key in _TOOL_KEYS if key in found), None)
    known = {name.lower(): name for name in names}
    name = known.get(asked.strip().lower()) if isinstance(asked, str) else None
    if name is None:
        if "tool" not in found:
            return None  # an answer that happens to be JSON
        there = ", ".join(sorted(names)) or "none"
        return ParsedReply(problem=f"there is no tool {asked!r}; the tools are {there}")
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
    """A text without halves of letters, which JSON can write and nobody can print."""
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
"""Characters that are enough to see whether a mark begins a call."""
_THOUGHT_END = "</think>"
_ESCAPE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}|\\u[0-9a-fA-F]{4}|\\[^u]")
_HALF_ESCAPE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?\Z")

_ESCAPE_LENGTH = len("\\u0000")

ParserState = Literal["start", "thinking", "plain", "answer", "held", "done"]


class ReplyStreamParser:
    """Takes a reply in pieces, and says at the end what it came to."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._held = ""
        self._mode: ParserState = "start"
        self._is_after_text = False
        self._all: list[str] = []
        self._more: list[str] = []

    @property
    def raw(self) -> str:
        """The reply as it came."""
        return "".join(self._all)

    def feed(self, piece: str) -> ModelDelta | None:
        """Take a piece; what can be shown of it by now."""
        self._all.append(piece)
        if self._mode in {"held", "done"}:
            self._more.append(piece)
            return None
        self._held += piece
        text, reasoning = "", ""
        before = None
        while before != (self._mode, self._held):
            before = (self._mode, self._held)
            match self._mode:
                case "start":
                    self._start()
                case "thinking":
                    reasoning += self._think()
                case "plain":
                    text += self._plain()
                case "answer":
                    text += self._answer()
                case "held" | "done":
                    break
        return ModelDelta(text=text, reasoning=reasoning) if text or reasoning else None

    def end(self) -> ParsedReply:
        """What it came to, less what was shown."""
        match self._mode:
            case "start" | "held":
                said = "".join((self._held, *self._more))
                return parse_reply(said, self._names, is_call_last=self._is_after_text)
            case "thinking":
                return ParsedReply(reasoning=self._held)
            case "plain":
                return ParsedReply(text=self._held)
            case "answer":
                return ParsedReply(text=_unescape(self._held))
            case "done":
                return ParsedReply()

    def _start(self) -> None:
        """Decide what it is that begins."""
        said = self._held = self._held.lstrip()
        if found := _ANSWER.match(said):
            self._go("answer", said[found.end() :])
        elif label := _LABEL.match(said):
            self._held = said[label.end() :]
        elif said.startswith("<think>"):
            self._go("thinking", said.removeprefix("<think>"))
        elif _HELD_BACK.match(said):
            # Until then it may yet be an answer in JSON.
            self._mode = "held" if len(said) >= _LOOKAHEAD_CHARS else "start"
        elif said and not _may_start_call(said):
            self._go("plain", said)

    def _think(self) -> str:
        thought, end, rest = self._held.partition(_THOUGHT_END)
        if end:
            self._go("start", rest)
            return thought
        keep = len(_THOUGHT_END) - 1
        ready = self._held[:-keep]
        self._held = self._held[-keep:]
        return ready

    def _plain(self) -> str:
        """Text up to a mark, and on from there once it is plain that no call begins."""
        held, at = self._held, 0
        while mark := _CALL_MARK.search(held, at):
            at = mark.start()
            is_call = _CALL.match(held, at) is not None
            if is_call or len(held) - at < _LOOKAHEAD_CHARS:
                self._is_after_text = is_call
                self._go("held" if is_call else "plain", held[at:])
                return held[:at]
            at += 1
        self._held = ""
        return held

    def _answer(self) -> str:
        """The string of an answer, as far as no escape is torn."""
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
        self._go("done" if rest.startswith('"') else "answer", rest)
        return _unescape(ready)

    def _go(self, mode: ParserState, rest: str) -> None:
        self._mode, self._held = mode, rest


def _may_start_call(said: str) -> bool:
    plain = said.lower().replace("：", ":")
    return any(opening.startswith(plain) for opening in _OPENINGS)


def _unescape(ready: str) -> str:
    return _ESCAPE.sub(lambda escape: _unescape_one(escape.group()), ready)


def _unescape_one(escape: str) -> str:
    try:
        return drop_half_surrogates(json.loads(f'"{escape}"'))
    except ValueError:  # one that JSON does not know: a path of Windows, perhaps
        return escape
