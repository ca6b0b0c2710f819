"""`chat`: one question, or an interactive session on the terminal."""

import signal
import sys
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Annotated

import anyio
import typer

from apexbridge.cli.options import Json, Quiet
from apexbridge.cli.output import ExitCode, Output, command_output, sanitize
from apexbridge.cli.terminal import ApprovalPrompt, LineReader, TurnDisplay
from apexbridge.errors import ApexBridgeError
from apexbridge.runtime import Runtime
from apexbridge.runtime.model_factory import EMBEDDED_MODEL
from apexbridge.runtime.watcher import background_tasks

_MAX_CHARS = 1_000_000
_EXIT_BY_FINISH = {"time": ExitCode.TIMEOUT, "blocked": ExitCode.DENIED}


app = typer.Typer()


@app.command()
def chat(
    context: typer.Context,
    text: Annotated[str, typer.Argument(help="The question [start a conversation].")] = "",
    session: Annotated[str, typer.Option(metavar="ID", help="Continue this session.")] = "",
    model: Annotated[str, typer.Option(help="Use another model than the configured one.")] = "",
    skill: Annotated[list[str] | None, typer.Option(help="A skill to use; repeatable.")] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Ask the model, which calls tools and skills until it has the answer."""
    with command_output(context, json=json, quiet=quiet) as out:
        options = ChatOptions(text=text, session=session, model=model, skills=tuple(skill or ()))
        _chat(out, options)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """What `chat` was asked for."""

    text: str
    session: str
    model: str
    skills: tuple[str, ...]


def _chat(out: Output, order: ChatOptions) -> None:
    """Answer one question, or talk until the person ends it."""
    is_person = sys.stdin.isatty()
    if order.text or out.as_json or not is_person:
        text = order.text or ("" if is_person else sys.stdin.read(_MAX_CHARS + 1))
        if not text.strip():
            raise typer.BadParameter("there is no question", param_hint="TEXT")
        if len(text) > _MAX_CHARS:
            raise typer.BadParameter(f"longer than {_MAX_CHARS:,} letters", param_hint="TEXT")
        anyio.run(_chat_once, out, order, text)
    else:
        anyio.run(_chat_loop, out, order)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChatSession:
    """A conversation on the terminal."""

    runtime: Runtime
    screen: TurnDisplay
    session: str
    order: ChatOptions


@asynccontextmanager
async def _open_chat(out: Output, order: ChatOptions) -> AsyncGenerator[_ChatSession]:
    session = order.session or uuid.uuid4().hex[:12]
    screen = TurnDisplay(out, session)
    async with Runtime.open(out.config) as runtime:
        runtime.chat_service.approver = ApprovalPrompt(out, screen)
        yield _ChatSession(runtime=runtime, screen=screen, session=session, order=order)


async def _chat_once(out: Output, order: ChatOptions, text: str) -> None:
    async with _open_chat(out, order) as talk:
        if talk.runtime.chat_service.model.name == EMBEDDED_MODEL:
            out.note(out.text("chat_embedded"))
        stopped = await _turn(talk, text)
    if stopped is not None:
        raise SystemExit(128 + stopped)
    screen = talk.screen
    if not order.session:
        out.note(out.text("chat_session", session=talk.session))
    data = {
        "text": screen.text,
        "finish": screen.finish,
        "session": talk.session,
        "turn": screen.turn_id,
        "skills": screen.skills,
        "tools": screen.tools,
    }
    out.finish(data, lambda: None, _EXIT_BY_FINISH.get(screen.finish, ExitCode.OK))


async def _turn(talk: _ChatSession, text: str) -> signal.Signals | None:
    """One turn on the screen; the signal that broke it off, if one did."""
    caught, turn = list[signal.Signals](), anyio.CancelScope()

    async def stop() -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for number in signals:
                caught.append(number)
                turn.cancel()

    order, screen = talk.order, talk.screen
    screen.begin()
    async with background_tasks(stop):
        with turn:
            events = talk.runtime.chat(
                text, session=talk.session, model=order.model, skills=order.skills
            )
            async with aclosing(events):
                async for event in events:
                    screen.show(event)
    screen.close()
    return caught[0] if turn.cancelled_caught else None


async def _chat_loop(out: Output, order: ChatOptions) -> None:
    async with _open_chat(out, order) as talk:
        lines = LineReader(out.config.data / "chat_history")
        out.line(out.text("chat_hello", model=talk.runtime.chat_service.model.name))
        if talk.runtime.chat_service.model.name == EMBEDDED_MODEL:
            out.note(out.text("chat_embedded"))
        while (text := lines.ask()) is not None:
            words = text.strip()
            if words in {"/exit", "/quit"}:
                break
            if words == "/skills":
                for skill in talk.runtime.catalog.skills:
                    out.line(f"/{sanitize(skill.name)}  {sanitize(skill.description)[:100]}")
            elif words:
                await _answer(out, talk, text)
    out.note(out.text("chat_session", session=talk.session))


async def _answer(out: Output, talk: _ChatSession, text: str) -> None:
    """What goes wrong in one turn does not end the conversation."""
    try:
        stopped = await _turn(talk, text)
    except ApexBridgeError as error:
        talk.screen.close()
        said = error.localized(out.language)
        out.note(f"{sanitize(said.message)} [{error.code}]")
        if said.hint:
            out.note(sanitize(said.hint))
    else:
        if stopped == signal.SIGTERM:
            raise SystemExit(128 + stopped)
        if stopped is not None:
            out.note(out.text("chat_cancelled"))
