"""What a person types: the lines of a conversation, and answers to questions."""

import importlib
import signal
import sys
import termios
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio

from apexbridge.cli.output import Out
from apexbridge.cli.turn_screen import TurnScreen
from apexbridge.policy.engine import Answer
from apexbridge.policy.rules import Decision, PermissionRequest

_KEPT_LINES = 1_000
_ANSWERS: dict[str, Answer] = {
    "y": "once",
    "yes": "once",
    "是": "once",
    "a": "always",
    "always": "always",
    "始终": "always",
}


class LineReader:
    """Reads lines that can be edited and called back, also those of another day."""

    def __init__(self, history: Path) -> None:
        # Loaded only here: it may write to the terminal when it is.
        self._readline: Any = importlib.import_module("readline")
        self._history = history
        self._readline.set_history_length(_KEPT_LINES)
        with suppress(OSError):
            history.parent.mkdir(parents=True, exist_ok=True)
            history.touch(mode=0o600)
            self._readline.read_history_file(history)

    def ask(self) -> str | None:
        """The next line, None at the end; Ctrl-C drops what was typed.

        Blocks the event loop: nothing happens between turns, and only so Ctrl-C comes here.
        """
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


class Person:
    """Asks the person at the terminal; where there is none, the answer is no."""

    def __init__(self, out: Out, screen: TurnScreen) -> None:
        self._out, self._screen = out, screen

    async def __call__(self, request: PermissionRequest, decision: Decision) -> Answer:
        """Ask, and take anything but a clear yes for a no."""
        if self._out.as_json or not sys.stdin.isatty():
            return "no"
        rule = str(decision.suggestions[0].pattern) if decision.suggestions else "-"
        what = request.argument or request.summary
        question = self._out.word("chat_allow", tool=request.tool, argument=what, rule=rule)
        self._screen.close()
        termios.tcflush(sys.stdin, termios.TCIFLUSH)  # what was typed before answers nothing
        print(question, end=" ", file=sys.stderr, flush=True)
        await anyio.wait_readable(sys.stdin)
        return _ANSWERS.get(sys.stdin.readline().strip().lower(), "no")
