"""A turn as it is seen on a terminal."""

import importlib
import signal
import sys
import termios
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio

from apexbridge.activation.input_files import format_skipped
from apexbridge.cli.output import Output, sanitize
from apexbridge.events import (
    Event,
    FilesCreated,
    FilesSkipped,
    SkillActivated,
    SkillRefused,
    TextDelta,
    ToolFinished,
    TurnFinished,
)
from apexbridge.locales import localize
from apexbridge.permissions.approvals import prefix_rule
from apexbridge.permissions.engine import Answer, ApproverReply
from apexbridge.permissions.rules import Decision, PermissionRequest, Rule


class TurnDisplay:
    """Streams the reply of a turn to stdout, and tool calls and skills to stderr."""

    def __init__(self, out: Output, session: str) -> None:
        self._out = out
        self.session = session
        """The session whose text is shown."""
        self.begin()

    def begin(self) -> None:
        """Reset the state for a new turn."""
        self._is_open = self._has_text = False
        self.text = self.finish = self.turn_id = ""
        self.skills, self.tools = list[str](), list[str]()
        self.created, self.skipped = list[FilesCreated](), dict[str, str]()

    def show(self, event: Event) -> None:
        """Render an event; text of subagents is for their parent session and not shown."""
        out = self._out
        match event:
            case TextDelta(session_id=session, text=text) if session == self.session:
                self._write(text)
            case ToolFinished():
                self.tools.append(event.tool)
                key = "chat_tool_failed" if event.is_error else "chat_tool"
                self._aside(out.text(key, tool=event.tool, seconds=f"{event.seconds:.2f} s"))
            case SkillActivated():
                self.skills.append(event.skill)
                self._aside(out.text("chat_skill", name=event.skill, mode=event.mode))
            case SkillRefused():
                self._aside(self._refusal(event))
            case FilesCreated():
                self.created.append(event)
                names = ", ".join(map(sanitize, event.files))
                self._aside(out.text("chat_files", names=names, folder=event.folder))
            case FilesSkipped():
                self.skipped.update(event.files)
                reasons = sanitize(format_skipped(event.files))
                self._aside(out.text("chat_files_skipped", reasons=reasons))
            case TurnFinished(session_id=session) if session == self.session:
                self._end(event)
            case _:
                pass

    def _refusal(self, event: SkillRefused) -> str:
        """Return why a skill was refused and who could allow it: the model may not repeat that."""
        found = localize(event.code, event.details, self._out.language)
        reason = sanitize(f"{found.message}. {found.hint}".rstrip(". "))
        return self._out.text("chat_skill_refused", name=event.skill, reason=reason)

    def show_saved(self, paths: Sequence[Path]) -> None:
        """Show where created files were copied to."""
        for path in paths:
            self._aside(self._out.text("created", path=path))

    def close(self) -> None:
        """End an unfinished line."""
        if self._is_open:
            print(flush=True)
            self._is_open = False

    def _write(self, text: str) -> None:
        if text and not (self._out.as_json or self._out.is_quiet):
            print("\n".join(map(sanitize, text.split("\n"))), end="", flush=True)
            self._has_text, self._is_open = True, not text.endswith("\n")

    def _aside(self, text: str) -> None:
        self.close()
        self._out.note(text)

    def _end(self, event: TurnFinished) -> None:
        self.text, self.finish, self.turn_id = event.text, event.finish, event.turn_id
        if not self._has_text:  # a reply without a model has no text deltas
            self._write(event.text)
        self.close()
        if event.finish not in {"stop", "skill"}:
            self._out.note(self._out.text("chat_finish", finish=event.finish))


_HISTORY_LINES = 1_000
_MAX_REASONS = 1_000
"""Characters of the reasons for which a skill needs consent."""
_ANSWERS: dict[str, Answer] = {
    "y": "once",
    "yes": "once",
    "是": "once",
    "a": "always",
    "always": "always",
    "始终": "always",
    "p": "always_prefix",
    "prefix": "always_prefix",
    "前缀": "always_prefix",
}


class LineReader:
    """Line editor (readline) with a history file that outlives the process.

    The tabulator key completes a `/name` at the beginning of a line.
    """

    def __init__(self, history: Path, names: Callable[[], Iterable[str]]) -> None:
        # Imported late: importing readline may write escape sequences to stdout.
        self._readline: Any = importlib.import_module("readline")
        self._names = names
        self._readline.set_completer(self.complete)
        # Names hold `-` and `:`, at which readline would break words.
        self._readline.set_completer_delims(" \t\n")
        self._readline.parse_and_bind("tab: complete")
        self._history = history
        self._readline.set_history_length(_HISTORY_LINES)
        with suppress(OSError):
            history.parent.mkdir(parents=True, exist_ok=True)
            history.touch(mode=0o600)
            self._readline.read_history_file(history)

    def complete(self, text: str, number: int) -> str | None:
        """Return the completion of this number of a word, as readline asks for them."""
        is_first = not self._readline.get_line_buffer()[: self._readline.get_begidx()].strip()
        if not is_first or not text.startswith("/"):
            return None
        found = sorted(f"/{name}" for name in self._names() if f"/{name}".startswith(text))
        return found[number] + " " if number < len(found) else None

    def ask(self) -> str | None:
        """Read a line; None at EOF, and Ctrl-C discards what was typed.

        Blocks the event loop: nothing happens between turns, and only so Ctrl-C comes here.
        """
        # The event loop's own SIGINT handler would cancel the session instead of the line.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            line = input("> ")
        except KeyboardInterrupt:
            print()
            return ""
        except EOFError:
            print()
            return None
        finally:
            signal.signal(signal.SIGINT, before)
        with suppress(OSError):
            self._readline.write_history_file(self._history)
        return line


class ApprovalPrompt:
    """Human approval on the terminal; without one, or with `--json`, nobody can be asked."""

    def __init__(self, out: Output, screen: TurnDisplay) -> None:
        self._out, self._screen = out, screen

    async def __call__(self, request: PermissionRequest, decision: Decision) -> ApproverReply:
        """Ask for approval; anything but a clear yes is a no."""
        if self._out.as_json or not sys.stdin.isatty():
            return "unasked"
        wider = prefix_rule(request, decision)
        question = "\n".join(self._question(request, decision, wider))
        self._screen.close()
        termios.tcflush(sys.stdin, termios.TCIFLUSH)  # type-ahead must not answer the question
        print(question, end=" ", file=sys.stderr, flush=True)
        await anyio.wait_readable(sys.stdin)
        answer = _ANSWERS.get(sys.stdin.readline().strip().lower(), "no")
        return "no" if answer == "always_prefix" and wider is None else answer

    def _question(
        self, request: PermissionRequest, decision: Decision, wider: Rule | None
    ) -> Iterator[str]:
        text = self._out.text
        yield text("chat_allow", tool=request.tool, argument=request.argument or request.summary)
        if request.reasons:
            yield text("chat_allow_reasons", reasons="; ".join(request.reasons)[:_MAX_REASONS])
        if decision.rule is not None:
            yield text("chat_allow_rule", rule=decision.rule.pattern)
        # What a rule asks about is asked each time, and without a hash there is none to approve.
        if decision.rule is not None or not decision.suggestions or _is_unhashed(request):
            yield text("chat_answers_once")
            return
        key = "chat_answers_prefix" if wider else "chat_answers_always"
        prefix = wider.pattern if wider else ""
        yield text(key, rule=decision.suggestions[0].pattern, prefix=prefix)


def _is_unhashed(request: PermissionRequest) -> bool:
    return request.tool == "Skill" and not request.sha256
