"""Gives the answer in a reply while it comes, and holds back what may be a call."""

import json
import re
from typing import Literal

from apexbridge.models.base import ModelDelta
from apexbridge.models.react_reply import Verdict, judge, whole_letters

_ANSWER = re.compile(r"(?:```(?:json)?\s*)?\{\s*\"answer\"\s*:\s*\"")
_LABEL = re.compile(
    r"(?:final answer|answer|最终答案|最终回答|回答|答案)\s*[:：]\s*", re.IGNORECASE
)
_HELD = re.compile(r"[{｛`\[]|<tool_call>|(?:thought|action|思考|想法|行动)\s*[:：]", re.IGNORECASE)
_OPENINGS = (
    *("final answer:", "answer:", "最终答案:", "最终回答:", "回答:", "答案:"),
    *("thought:", "action:", "思考:", "想法:", "行动:", "<tool_call>", "<think>"),
)
_CALL = re.compile(
    r"(?:```(?:json)?\s*|<tool_call>\s*)?[{｛]\s*[\"“](?:tool|name|action)[\"”]", re.IGNORECASE
)
_MARK = re.compile(r"[{｛`<]")
_WINDOW = 48
"""Characters that are enough to see whether a mark begins a call."""
_THOUGHT_END = "</think>"
_ESCAPE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}|\\u[0-9a-fA-F]{4}|\\[^u]")
_HALF = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?\Z")

_ESCAPE_LENGTH = len("\\u0000")

Mode = Literal["start", "thinking", "plain", "answer", "held", "done"]


class ReplyStream:
    """Takes a reply in pieces, and says at the end what it came to."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._held = ""
        self._mode: Mode = "start"
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

    def end(self) -> Verdict:
        """What it came to, less what was shown."""
        match self._mode:
            case "start" | "held":
                said = "".join((self._held, *self._more))
                return judge(said, self._names, is_call_last=self._is_after_text)
            case "thinking":
                return Verdict(reasoning=self._held)
            case "plain":
                return Verdict(text=self._held)
            case "answer":
                return Verdict(text=_decoded(self._held))
            case "done":
                return Verdict()

    def _start(self) -> None:
        """Decide what it is that begins."""
        said = self._held = self._held.lstrip()
        if found := _ANSWER.match(said):
            self._go("answer", said[found.end() :])
        elif label := _LABEL.match(said):
            self._held = said[label.end() :]
        elif said.startswith("<think>"):
            self._go("thinking", said.removeprefix("<think>"))
        elif _HELD.match(said):
            # Until then it may yet be an answer in JSON.
            self._mode = "held" if len(said) >= _WINDOW else "start"
        elif said and not _may_open(said):
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
        while mark := _MARK.search(held, at):
            at = mark.start()
            is_call = _CALL.match(held, at) is not None
            if is_call or len(held) - at < _WINDOW:
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
            if is_torn or _HALF.match(self._held, at):
                break
            at = escape.end() if escape else at + 1
        ready, rest = self._held[:at], self._held[at:]
        self._go("done" if rest.startswith('"') else "answer", rest)
        return _decoded(ready)

    def _go(self, mode: Mode, rest: str) -> None:
        self._mode, self._held = mode, rest


def _may_open(said: str) -> bool:
    plain = said.lower().replace("：", ":")
    return any(opening.startswith(plain) for opening in _OPENINGS)


def _decoded(ready: str) -> str:
    return _ESCAPE.sub(lambda escape: _letter(escape.group()), ready)


def _letter(escape: str) -> str:
    try:
        return whole_letters(json.loads(f'"{escape}"'))
    except ValueError:  # one that JSON does not know: a path of Windows, perhaps
        return escape
