"""What every command shares: one envelope, one way to fail, text that harms no terminal."""

import json
import sys
import unicodedata
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NoReturn

from apexbridge import errors, locales
from apexbridge.settings import Config, default_language, load
from apexbridge.skills.model import Problem

_MAX_COLUMN_WIDTH = 40
_GAP = 3

Flags = Mapping[str, object]


class ExitCode(IntEnum):
    """What a command's exit code means."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    DENIED = 5
    INVALID = 6
    TIMEOUT = 7
    FINDINGS = 8


_EXIT_BY_CODE = {
    "path_exists": ExitCode.CONFLICT,
    "path_missing": ExitCode.NOT_FOUND,
    "path_unreadable": ExitCode.DENIED,
    "version_unknown": ExitCode.NOT_FOUND,
    "key_unknown": ExitCode.NOT_FOUND,
}
_EXIT_BY_CLASS: tuple[tuple[type[errors.ApexBridgeError], ExitCode], ...] = (
    (errors.SkillNotFoundError, ExitCode.NOT_FOUND),
    (errors.SettingNotFoundError, ExitCode.NOT_FOUND),
    (errors.ToolNotFoundError, ExitCode.NOT_FOUND),
    (errors.SkillExistsError, ExitCode.CONFLICT),
    (errors.SkillChangedError, ExitCode.CONFLICT),
    (errors.SkillVersionError, ExitCode.CONFLICT),
    (errors.PermissionDeniedError, ExitCode.DENIED),
    (errors.SkillReadOnlyError, ExitCode.DENIED),
    (errors.UnsafePathError, ExitCode.DENIED),
    (errors.SkillInvalidError, ExitCode.INVALID),
    (errors.ArchiveError, ExitCode.INVALID),
    (errors.ConfigError, ExitCode.USAGE),
)


def exit_code_for(error: errors.ApexBridgeError) -> ExitCode:
    """The exit code of an error."""
    if error.code in _EXIT_BY_CODE:
        return _EXIT_BY_CODE[error.code]
    return next(
        (code for kind, code in _EXIT_BY_CLASS if isinstance(error, kind)), ExitCode.FAILURE
    )


def sanitize(text: object) -> str:
    r"""Make text from a skill harmless on a terminal: what would steer it is written out.

    >>> visible("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    return "".join(map(_sanitize_char, str(text)))


def _sanitize_char(char: str) -> str:
    if char in "\u200c\u200d" or unicodedata.category(char) not in {
        "Cc",
        "Cf",
        "Cs",
        "Co",
        "Zl",
        "Zp",
    }:
        return char
    return " " if char in "\n\t" else char.encode("unicode_escape").decode("ascii")


@dataclass(slots=True)
class Output:
    """One command's way to its reader."""

    command: str
    as_json: bool
    is_quiet: bool
    flags: Flags
    language: locales.Language = "en"
    _loaded: list[Config] = field(default_factory=list[Config])

    @property
    def loaded(self) -> Config:
        """The settings, read on first use."""
        if not self._loaded:
            self._loaded.append(load(flags=self.flags))
            self.language = self._loaded[0].language
        return self._loaded[0]

    def text(self, key: str, *, table: locales.Table = "cli", **fields: object) -> str:
        """Render a text in the user's language, its fields sanitized for the terminal."""
        safe = {name: sanitize(value) for name, value in fields.items()}
        return locales.text(table, key, self.language, **safe)

    def asks(self, key: str, **fields: object) -> bool:
        """Ask a person to agree; where there is none, the answer is no."""
        if self.as_json or not sys.stdin.isatty():
            return False
        print(self.text(key, **fields), end=" ", flush=True)
        return sys.stdin.readline().strip().lower() in {"y", "yes", "是", "好"}

    def line(self, text: str) -> None:
        """Print one line of people's text; nowhere when quiet or when JSON was asked for."""
        if not (self.is_quiet or self.as_json):
            print(text)

    def note(self, text: str) -> None:
        """Print one line beside the output, on stderr."""
        if not (self.is_quiet or self.as_json):
            print(text, file=sys.stderr)

    def table(self, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Print rows: a table on a terminal, and into a pipe plain lines with tabs, never cut."""
        if self.is_quiet or self.as_json:
            return
        cells = [[sanitize(cell) for cell in row] for row in rows]
        if sys.stdout.isatty():
            _draw_table([sanitize(head) for head in heads], cells)
        else:
            print(*("\t".join(row) for row in cells), sep="\n")

    def finish(
        self, data: object, render: Callable[[], None], code: ExitCode = ExitCode.OK
    ) -> None:
        """End the command: the envelope for programs, or the rendering for people."""
        if self.as_json:
            self._envelope(ok=code is ExitCode.OK, data=data, error=None)
        else:
            render()
        if code is not ExitCode.OK:
            raise SystemExit(code)

    def fail(self, error: errors.ApexBridgeError) -> NoReturn:
        """End the command with an error, in the reader's language."""
        said = error.localized(self.language)
        if self.as_json:
            body = {"code": error.code, "message": said.message, "hint": said.hint, "param": None}
            self._envelope(ok=False, data=None, error=body)
        print(f"{self.text('error')}: {sanitize(said.message)} [{error.code}]", file=sys.stderr)
        if said.hint:
            print(f"{self.text('hint')}: {sanitize(said.hint)}", file=sys.stderr)
        raise SystemExit(exit_code_for(error))

    def _envelope(self, *, ok: bool, data: object, error: object) -> None:
        envelope = {"ok": ok, "command": self.command, "data": data, "error": error}
        is_wide = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
        print(json.dumps(envelope, ensure_ascii=not is_wide, default=str))

    def problem(self, problem: Problem) -> dict[str, object]:
        """A problem as programs read it."""
        said = problem.localized(self.language)
        return {
            "code": problem.code,
            "severity": problem.severity,
            "where": problem.where,
            "message": said.message,
            "hint": said.hint,
        }

    def problem_lines(self, problem: Problem) -> None:
        """A problem as people read it."""
        said = problem.localized(self.language)
        severity = self.text(f"severity_{problem.severity}")
        self.line(
            f"  {sanitize(problem.where)}  {severity}  {sanitize(said.message)} [{problem.code}]"
        )
        if said.hint:
            self.line(f"      {sanitize(said.hint)}")


def _draw_table(heads: list[str], rows: list[list[str]]) -> None:
    """A table that knows how wide Chinese is; only its last column gives way."""
    from rich import box
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    room = console.width - _GAP * len(heads)
    for position, head in enumerate(heads):
        widest = max(cell_len(text) for text in (head, *(row[position] for row in rows)))
        width = widest if position == len(heads) - 1 else min(widest, _MAX_COLUMN_WIDTH)
        width = min(width, max(room, 1))
        room -= width
        grid.add_column(Text(head), no_wrap=True, width=width)
        for row in rows:
            text = Text(row[position])
            text.truncate(width, overflow="ellipsis")
            row[position] = text.plain
    for row in rows:
        grid.add_row(*map(Text, row))
    console.print(grid)


@contextmanager
def command_output(
    command: str, *, as_json: bool, is_quiet: bool, flags: Flags | None
) -> Generator[Output]:
    """Run a command's body; our errors end it with their exit code and the reader's words."""
    out = Output(command, as_json, is_quiet, flags or {}, default_language())
    try:
        out.language = out.loaded.language
        yield out
    except errors.ApexBridgeError as error:
        out.fail(error)
    except BrokenPipeError:
        raise
    except OSError as error:
        out.fail(_to_storage_error(error))


def _to_storage_error(error: OSError) -> errors.StorageError:
    """What the system refused, in our words."""
    path = sanitize(error.filename) if error.filename else "-"
    code = "path_missing" if isinstance(error, FileNotFoundError) else "path_unreadable"
    return errors.StorageError(error.strerror or str(error), code=code, path=path)
