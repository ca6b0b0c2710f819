"""`chat`: one question, or a conversation on the terminal."""

import importlib
import signal
import sys
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

import anyio
import anyio.to_thread

from apexbridge.agent.turn import TurnRequest
from apexbridge.cli.output import Exit, Out, visible
from apexbridge.errors import ApexBridgeError, ToolInputError
from apexbridge.events import (
    Event,
    SkillActivated,
    TextDelta,
    ToolFinished,
    TurnFinished,
)
from apexbridge.policy.engine import Answer
from apexbridge.policy.rules import Decision, PermissionRequest
from apexbridge.runtime import Runtime
from apexbridge.runtime.chatting import stream_turn
from apexbridge.runtime.modelling import EMBEDDED


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOrder:
    """What `chat` was asked for."""

    text: str
    session: str
    model: str
    skills: tuple[str, ...]


def chat(out: Out, order: ChatOrder) -> None:
    """Answer one question, or talk until the person ends it."""
    if order.text or not sys.stdin.isatty():
        text = order.text or sys.stdin.read(1_000_000)
        if not text.strip():
            raise ToolInputError("there is no question", name="chat")
        anyio.run(_once, out, order, text)
    else:
        anyio.run(_talk, out, order)


@asynccontextmanager
async def _opened(out: Out) -> AsyncGenerator[Runtime]:
    async with Runtime.open(out.loaded) as runtime:
        runtime.chatting.approver = _Terminal(out)
        yield runtime


async def _once(out: Out, order: ChatOrder, text: str) -> None:
    session = order.session or uuid.uuid4().hex[:12]
    screen = _Screen(out)
    async with _opened(out) as runtime:
        if runtime.chatting.model.name == EMBEDDED:
            out.note(out.word("chat_embedded"))
        is_done = await _turn(runtime, session, _request(order, text), screen)
    if not is_done:
        raise SystemExit(128 + signal.SIGINT)
    end = screen.end
    if end is not None and not order.session:
        out.note(out.word("chat_session", session=session))
    data = {
        "text": end.text if end else "",
        "finish": end.finish if end else "",
        "session": session,
        "turn": end.turn_id if end else "",
        "skills": screen.skills,
        "tools": screen.tools,
    }
    out.finish(data, lambda: None, Exit.OK)


def _request(order: ChatOrder, text: str) -> TurnRequest:
    return TurnRequest(text=text, model=order.model, skills=order.skills)


async def _turn(runtime: Runtime, session: str, request: TurnRequest, screen: "_Screen") -> bool:
    """One turn on the screen; False if the person broke it off."""
    is_done = False
    async with anyio.create_task_group() as tasks:

        async def stop() -> None:
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                async for _ in signals:
                    tasks.cancel_scope.cancel()

        tasks.start_soon(stop)
        async with aclosing(stream_turn(runtime.chatting, session, request)) as events:
            async for event in events:
                runtime.emit(event)
                screen.show(event)
        is_done = True
        tasks.cancel_scope.cancel()
    return is_done


async def _talk(out: Out, order: ChatOrder) -> None:
    session = order.session or uuid.uuid4().hex[:12]
    async with _opened(out) as runtime:
        out.line(out.word("chat_hello", model=runtime.chatting.model.name))
        if runtime.chatting.model.name == EMBEDDED:
            out.note(out.word("chat_embedded"))
        while (text := await anyio.to_thread.run_sync(_ask_line)) is not None:
            words = text.strip()
            if words in {"/exit", "/quit"}:
                break
            if words == "/skills":
                for skill in runtime.catalog.skills:
                    out.line(f"/{visible(skill.name)}  {visible(skill.description)[:100]}")
            elif words:
                await _answer(out, runtime, session, _request(order, text))
    out.note(out.word("chat_session", session=session))


async def _answer(out: Out, runtime: Runtime, session: str, request: TurnRequest) -> None:
    """What goes wrong in one turn does not end the conversation."""
    try:
        if not await _turn(runtime, session, request, _Screen(out)):
            out.note(out.word("chat_cancelled"))
    except ApexBridgeError as error:
        said = error.said(out.language)
        out.note(f"{visible(said.message)} [{error.code}]")
        if said.hint:
            out.note(visible(said.hint))


def _ask_line() -> str | None:
    importlib.import_module("readline")  # lines can be edited and called back

    try:
        return input("> ")
    except (EOFError, KeyboardInterrupt):
        return None


class _Screen:
    """A turn as it is seen: the reply on stdout, what is done for it on stderr, folded."""

    def __init__(self, out: Out) -> None:
        self._out = out
        self._is_open = False
        self.end: TurnFinished | None = None
        self.skills, self.tools = list[str](), list[str]()

    def show(self, event: Event) -> None:
        out = self._out
        match event:
            case TextDelta(session_id=session) if "." not in session:
                self._write(event.text)
            case ToolFinished():
                self.tools.append(event.tool)
                key = "chat_tool_failed" if event.is_error else "chat_tool"
                self._aside(out.word(key, tool=event.tool, seconds=f"{event.seconds:.2f} s"))
            case SkillActivated():
                self.skills.append(event.skill)
                self._aside(out.word("chat_skill", name=event.skill, mode=event.mode))
            case TurnFinished():
                self._end(event)
            case _:
                pass

    def _write(self, text: str) -> None:
        if not (self._out.as_json or self._out.is_quiet):
            lines = text.split("\n")
            print("\n".join(map(visible, lines)), end="", flush=True)
            self._is_open = not text.endswith("\n")

    def _aside(self, text: str) -> None:
        self._close()
        self._out.note(text)

    def _close(self) -> None:
        if self._is_open:
            print(flush=True)
            self._is_open = False

    def _end(self, event: TurnFinished) -> None:
        self.end = event
        self._close()
        if event.finish not in {"stop", "skill"}:
            self._out.note(self._out.word("chat_finish", finish=event.finish))


class _Terminal:
    """Asks the person at the terminal; where there is none, the answer is no."""

    def __init__(self, out: Out) -> None:
        self._out = out

    async def __call__(self, request: PermissionRequest, decision: Decision) -> Answer:
        """Ask, and take anything but a clear yes for a no."""
        if self._out.as_json or not sys.stdin.isatty():
            return "no"
        rule = str(decision.suggestions[0].pattern) if decision.suggestions else "-"
        question = self._out.word(
            "chat_allow", tool=request.tool, argument=request.argument, rule=rule
        )
        print(question, end=" ", flush=True)
        said = await anyio.to_thread.run_sync(sys.stdin.readline)
        answers: dict[str, Answer] = {"y": "once", "yes": "once", "是": "once", "a": "always"}
        return answers.get(said.strip().lower(), "no")
