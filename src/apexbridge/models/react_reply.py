"""What a model without tool calls replied: a call, an answer, or what is wrong with it."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_MAX_TRIES = 16
_TOOL_KEYS = ("tool", "name", "action")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input")
_LOOKS_LIKE_A_CALL = re.compile(r"[{｛]\s*[\"“'](?:tool|name|action)[\"”']\s*[:：]")
_NOISE = re.compile(
    r"```(?:json)?|</?tool_call>|(?:thought|action|思考|想法|行动)\s*[:：]", re.IGNORECASE
)
_ANSWER_LABEL = re.compile(r"(?:final answer|最终答案|最终回答)\s*[:：]\s*", re.IGNORECASE)
_PUNCTUATION = str.maketrans("“”‘’：，｛｝［］", "\"\"''" + ":,{}[]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a reply comes to; with a `problem` it is neither, and `text` is all of it."""

    text: str = ""
    reasoning: str = ""
    tool: str = ""
    arguments: str = ""
    problem: str = ""


def judge(said: str, names: frozenset[str], *, is_call_last: bool = False) -> Verdict:
    """Read a whole reply strictly.

    The first object decides. With `is_call_last` a call counts only where nothing follows it: a
    text that quotes one is no call.

    >>> judge('{"tool": "Now", "arguments": {}}', frozenset({"Now"})).tool
    'Now'
    """
    spans: list[range] = []
    for found, start, end in _objects(said):
        spans.append(range(start, end))
        verdict = _of_object(found, names)
        if verdict is None:
            continue
        thought = _NOISE.sub("", said[:start]).strip()
        if is_call_last and (thought or _NOISE.sub("", said[end:]).strip(" \n.。")):
            break
        return Verdict(
            text=said if verdict.problem else verdict.text,
            reasoning=thought,
            tool=verdict.tool,
            arguments=verdict.arguments,
            problem=verdict.problem,
        )
    else:
        tried = [found.start() for found in _LOOKS_LIKE_A_CALL.finditer(said)]
        if any(all(start not in span for span in spans) for start in tried):
            return Verdict(text=said, problem="it is not valid JSON")
    return _of_text(said)


def _of_text(said: str) -> Verdict:
    label = _ANSWER_LABEL.search(said)
    if label is None:
        return Verdict(text=said)
    thought = _NOISE.sub("", said[: label.start()]).strip()
    return Verdict(text=said[label.end() :], reasoning=thought)


def _objects(said: str) -> Iterator[tuple[dict[str, Any], int, int]]:
    """The JSON objects in a text, with where they stand; Chinese punctuation is read as well."""
    decoder = json.JSONDecoder(strict=False)
    readings = (said, said.translate(_PUNCTUATION))
    at = -1
    for _ in range(_MAX_TRIES):
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


def _of_object(found: dict[str, Any], names: frozenset[str]) -> Verdict | None:
    if isinstance(found.get("answer"), str) and not found.get("tool"):
        return Verdict(text=whole_letters(found["answer"]))
    asked = next((found[key] for key in _TOOL_KEYS if key in found), None)
    known = {name.lower(): name for name in names}
    name = known.get(asked.strip().lower()) if isinstance(asked, str) else None
    if name is None:
        if "tool" not in found:
            return None  # an answer that happens to be JSON
        there = ", ".join(sorted(names)) or "none"
        return Verdict(problem=f"there is no tool {asked!r}; the tools are {there}")
    arguments: Any = next((found[key] for key in _ARGUMENT_KEYS if key in found), None)
    if arguments is None:
        arguments = {}
    if isinstance(arguments, str):
        arguments = _read(arguments)
    if not isinstance(arguments, dict):
        return Verdict(problem='"arguments" must be a JSON object')
    written = json.dumps(arguments, ensure_ascii=False)
    return Verdict(tool=name, arguments=whole_letters(written))


def whole_letters(text: str) -> str:
    """A text without halves of letters, which JSON can write and nobody can print."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _read(arguments: str) -> Any:
    try:
        return json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        return None
