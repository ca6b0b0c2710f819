"""`chat`: one question, or an interactive session on the terminal."""

import signal
import sys
import uuid
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread
import typer

from apexbridge.catalog.builtin_commands import (
    BUILTIN_COMMANDS,
    BuiltinCommand,
    builtin_command,
)
from apexbridge.cli.created_files import read_created, save_files
from apexbridge.cli.index_report import changes_noted
from apexbridge.cli.output import ExitCode, Output, sanitize
from apexbridge.cli.terminal import ApprovalPrompt, LineReader, TurnDisplay
from apexbridge.errors import ApexBridgeError
from apexbridge.runtime import Runtime
from apexbridge.runtime.model_factory import EMBEDDED_MODEL
from apexbridge.runtime.watcher import background_tasks

_MAX_CHARS = 1_000_000
_EXIT_BY_FINISH = {"time": ExitCode.TIMEOUT, "blocked": ExitCode.DENIED}


def chat(
    out: Output,
    *,
    text: str,
    session: str,
    model: str,
    skill: list[str] | None,
    file: list[Path] | None,
    output: Path | None,
) -> None:
    """Answer one question, or start an interactive session on a terminal."""
    options = ChatOptions(
        session=session,
        model=model,
        skills=tuple(skill or ()),
        files=tuple(file or ()),
        output=output,
    )
    is_terminal = sys.stdin.isatty()
    if text or out.as_json or not is_terminal:
        text = text or ("" if is_terminal else sys.stdin.read(_MAX_CHARS + 1))
        if not text.strip():
            raise typer.BadParameter("the question is empty", param_hint="TEXT")
        if len(text) > _MAX_CHARS:
            raise typer.BadParameter(f"longer than {_MAX_CHARS:,} characters", param_hint="TEXT")
        anyio.run(_chat_once, out, options, text)
    else:
        anyio.run(_chat_loop, out, options)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """Options of `chat`."""

    session: str
    model: str
    skills: tuple[str, ...]
    files: tuple[Path, ...]
    """Files and folders to attach to the first request."""
    output: Path | None
    """Folder to copy created files into."""


@dataclass(slots=True, kw_only=True)
class _ChatSession:
    """An open chat session on the terminal."""

    runtime: Runtime
    screen: TurnDisplay
    session: str
    options: ChatOptions
    model: str
    pending: list[Path]
    """Files that the next request brings."""

    def names(self) -> Iterator[str]:
        """Yield the names that may follow a `/`: built-in commands, and skills for users."""
        yield from (command.name for command in BUILTIN_COMMANDS)
        skills = self.runtime.catalog.skills
        yield from (skill.name for skill in skills if skill.manifest.user_invocable)

    def command(self, words: str) -> BuiltinCommand | None:
        """Return the built-in command that a line invokes, unless a skill has its name."""
        name = words.split(maxsplit=1)[0] if words else ""
        command = builtin_command(name[1:]) if name.startswith("/") else None
        if command is None or command.is_final:
            return command
        return None if self.runtime.catalog.snapshot.winner(command.name) else command


@asynccontextmanager
async def _open_chat(out: Output, options: ChatOptions) -> AsyncGenerator[_ChatSession]:
    session = options.session or uuid.uuid4().hex[:12]
    screen = TurnDisplay(out, session)
    async with Runtime.open(out.config) as runtime:
        runtime.chat_service.approver = ApprovalPrompt(out, screen)
        with runtime.listen(changes_noted(out)):
            yield _ChatSession(
                runtime=runtime,
                screen=screen,
                session=session,
                options=options,
                model=options.model,
                pending=list(options.files),
            )


async def _chat_once(out: Output, options: ChatOptions, text: str) -> None:
    async with _open_chat(out, options) as chat_session:
        if chat_session.runtime.chat_service.model.name == EMBEDDED_MODEL:
            out.note(out.text("chat_embedded"))
        stopped = await _turn(chat_session, text)
    if stopped is not None:
        raise SystemExit(128 + stopped)
    screen = chat_session.screen
    if not options.session:
        out.note(out.text("chat_session", session=chat_session.session))
    data = {
        "text": screen.text,
        "finish": screen.finish,
        "session": chat_session.session,
        "turn": screen.turn_id,
        "skills": screen.skills,
        "tools": screen.tools,
        "files": [
            {"path": path, "size": size, "run": event.run_id, "folder": event.folder}
            for event in screen.created
            for path, size in event.files.items()
        ],
        "skipped_files": screen.skipped,
    }
    out.finish(data, lambda: None, _EXIT_BY_FINISH.get(screen.finish, ExitCode.OK))


async def _turn(chat_session: _ChatSession, text: str) -> signal.Signals | None:
    """Run one turn; returns the signal that cancelled it, if any."""
    caught, turn = list[signal.Signals](), anyio.CancelScope()

    async def stop() -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for number in signals:
                caught.append(number)
                turn.cancel()

    options, screen = chat_session.options, chat_session.screen
    screen.begin()
    async with background_tasks(stop):
        with turn:
            events = chat_session.runtime.chat(
                text,
                session=chat_session.session,
                model=chat_session.model,
                skills=options.skills,
                files=tuple(chat_session.pending),
            )
            async with aclosing(events):
                async for event in events:
                    screen.show(event)
            chat_session.pending.clear()
            await anyio.to_thread.run_sync(_copy_created, screen, options.output)
    screen.close()
    return caught[0] if turn.cancelled_caught else None


def _copy_created(screen: TurnDisplay, folder: Path | None) -> None:
    if folder is not None and screen.created:
        screen.show_saved(save_files(read_created(screen.created), folder))


async def _chat_loop(out: Output, options: ChatOptions) -> None:
    async with _open_chat(out, options) as chat_session:
        lines = LineReader(out.config.data / "chat_history", chat_session.names)
        out.line(out.text("chat_welcome", model=chat_session.runtime.chat_service.model.name))
        if chat_session.runtime.chat_service.model.name == EMBEDDED_MODEL:
            out.note(out.text("chat_embedded"))
        while (text := lines.ask()) is not None:
            words = text.strip()
            command = chat_session.command(words)
            if command is not None and command.is_final:
                break
            if command is not None:
                await _run_command(out, chat_session, command, words)
            elif words:
                await _answer(out, chat_session, text)
    out.note(out.text("chat_session", session=chat_session.session))


async def _run_command(
    out: Output, chat_session: _ChatSession, command: BuiltinCommand, words: str
) -> None:
    """Run a built-in command of the chat."""
    argument = words.partition(" ")[2].strip()
    match command.name:
        case "help":
            for each in BUILTIN_COMMANDS:
                head = f"/{each.name} {each.argument}".rstrip()
                out.line(f"{head:<16}  {out.text(f'command_{each.name}')}")
        case "skills":
            for skill in chat_session.runtime.catalog.skills:
                out.line(f"/{sanitize(skill.name)}  {sanitize(skill.description)[:100]}")
        case "model":
            chat_session.model = argument or chat_session.model
            default = chat_session.runtime.chat_service.model.name
            out.line(out.text("chat_model", model=sanitize(chat_session.model or default)))
        case "new":
            out.note(out.text("chat_session", session=chat_session.session))
            chat_session.session = chat_session.screen.session = uuid.uuid4().hex[:12]
        case _:
            await _compact(out, chat_session)


async def _compact(out: Output, chat_session: _ChatSession) -> None:
    runtime = chat_session.runtime
    try:
        done = await runtime.chat_service.compact(chat_session.session, runtime.events.emit)
    except ApexBridgeError as error:
        out.note(f"{sanitize(error.localized(out.language).message)} [{error.code}]")
    else:
        out.line(out.text("chat_compacted" if done else "chat_not_compacted"))


async def _answer(out: Output, chat_session: _ChatSession, text: str) -> None:
    """Run one turn of a session; an error is printed and does not end the session."""
    try:
        stopped = await _turn(chat_session, text)
    except ApexBridgeError as error:
        chat_session.screen.close()
        localized = error.localized(out.language)
        out.note(f"{sanitize(localized.message)} [{error.code}]")
        if localized.hint:
            out.note(sanitize(localized.hint))
    else:
        if stopped == signal.SIGTERM:
            raise SystemExit(128 + stopped)
        if stopped is not None:
            out.note(out.text("chat_cancelled"))
