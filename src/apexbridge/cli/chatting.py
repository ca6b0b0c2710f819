"""`chat`: one question, or a conversation on the terminal."""

import signal
import sys
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

import anyio
import typer

from apexbridge.cli.asking import LineReader, Person
from apexbridge.cli.output import Exit, Out, visible
from apexbridge.cli.turn_screen import TurnScreen
from apexbridge.errors import ApexBridgeError
from apexbridge.runtime import Runtime
from apexbridge.runtime.living import beside
from apexbridge.runtime.modelling import EMBEDDED

_MAX_CHARS = 1_000_000
_ENDS = {"time": Exit.TIMEOUT, "blocked": Exit.DENIED}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOrder:
    """What `chat` was asked for."""

    text: str
    session: str
    model: str
    skills: tuple[str, ...]


def chat(out: Out, order: ChatOrder) -> None:
    """Answer one question, or talk until the person ends it."""
    is_person = sys.stdin.isatty()
    if order.text or out.as_json or not is_person:
        text = order.text or ("" if is_person else sys.stdin.read(_MAX_CHARS + 1))
        if not text.strip():
            raise typer.BadParameter("there is no question", param_hint="TEXT")
        if len(text) > _MAX_CHARS:
            raise typer.BadParameter(f"longer than {_MAX_CHARS:,} letters", param_hint="TEXT")
        anyio.run(_once, out, order, text)
    else:
        anyio.run(_talk, out, order)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Talk:
    """A conversation on the terminal."""

    runtime: Runtime
    screen: TurnScreen
    session: str
    order: ChatOrder


@asynccontextmanager
async def _opened(out: Out, order: ChatOrder) -> AsyncGenerator[_Talk]:
    session = order.session or uuid.uuid4().hex[:12]
    screen = TurnScreen(out, session)
    async with Runtime.open(out.loaded) as runtime:
        runtime.chatting.approver = Person(out, screen)
        yield _Talk(runtime=runtime, screen=screen, session=session, order=order)


async def _once(out: Out, order: ChatOrder, text: str) -> None:
    async with _opened(out, order) as talk:
        if talk.runtime.chatting.model.name == EMBEDDED:
            out.note(out.word("chat_embedded"))
        stopped = await _turn(talk, text)
    if stopped is not None:
        raise SystemExit(128 + stopped)
    screen = talk.screen
    if not order.session:
        out.note(out.word("chat_session", session=talk.session))
    data = {
        "text": screen.text,
        "finish": screen.finish,
        "session": talk.session,
        "turn": screen.turn_id,
        "skills": screen.skills,
        "tools": screen.tools,
    }
    out.finish(data, lambda: None, _ENDS.get(screen.finish, Exit.OK))


async def _turn(talk: _Talk, text: str) -> signal.Signals | None:
    """One turn on the screen; the signal that broke it off, if one did."""
    caught, turn = list[signal.Signals](), anyio.CancelScope()

    async def stop() -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for number in signals:
                caught.append(number)
                turn.cancel()

    order, screen = talk.order, talk.screen
    screen.begin()
    async with beside(stop):
        with turn:
            events = talk.runtime.chat(
                text, session=talk.session, model=order.model, skills=order.skills
            )
            async with aclosing(events):
                async for event in events:
                    screen.show(event)
    screen.close()
    return caught[0] if turn.cancelled_caught else None


async def _talk(out: Out, order: ChatOrder) -> None:
    async with _opened(out, order) as talk:
        lines = LineReader(out.loaded.data / "chat_history")
        out.line(out.word("chat_hello", model=talk.runtime.chatting.model.name))
        if talk.runtime.chatting.model.name == EMBEDDED:
            out.note(out.word("chat_embedded"))
        while (text := lines.ask()) is not None:
            words = text.strip()
            if words in {"/exit", "/quit"}:
                break
            if words == "/skills":
                for skill in talk.runtime.catalog.skills:
                    out.line(f"/{visible(skill.name)}  {visible(skill.description)[:100]}")
            elif words:
                await _answer(out, talk, text)
    out.note(out.word("chat_session", session=talk.session))


async def _answer(out: Out, talk: _Talk, text: str) -> None:
    """What goes wrong in one turn does not end the conversation."""
    try:
        stopped = await _turn(talk, text)
    except ApexBridgeError as error:
        talk.screen.close()
        said = error.said(out.language)
        out.note(f"{visible(said.message)} [{error.code}]")
        if said.hint:
            out.note(visible(said.hint))
    else:
        if stopped == signal.SIGTERM:
            raise SystemExit(128 + stopped)
        if stopped is not None:
            out.note(out.word("chat_cancelled"))
