"""Command output: text or a JSON envelope, exit codes, and terminal escape sanitization."""

import codecs
import io
import json
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NoReturn

import typer

from apexbridge import errors, locales
from apexbridge.settings import Config, default_language, load
from apexbridge.skills.model import Problem

_MAX_COLUMN_WIDTH = 40
_GAP = 3
_ESCAPED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})

Flags = Mapping[str, object]


class ExitCode(IntEnum):
    """Exit codes of all commands."""

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
    "source_address_invalid": ExitCode.USAGE,
    "source_choice": ExitCode.USAGE,
    "update_targets": ExitCode.USAGE,
    "source_ref_unknown": ExitCode.NOT_FOUND,
    "source_path_unknown": ExitCode.NOT_FOUND,
    "source_skill_unknown": ExitCode.NOT_FOUND,
    "source_not_recorded": ExitCode.NOT_FOUND,
    "source_refused": ExitCode.DENIED,
    "remote_refused": ExitCode.DENIED,
    "source_changed": ExitCode.CONFLICT,
    "source_content_changed": ExitCode.CONFLICT,
    "lock_incomplete": ExitCode.CONFLICT,
}
# The first match wins, so a subclass is listed before its base class.
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
    """Exit code for an error, by its code and else by its class."""
    if error.code in _EXIT_BY_CODE:
        return _EXIT_BY_CODE[error.code]
    return next(
        (code for kind, code in _EXIT_BY_CLASS if isinstance(error, kind)), ExitCode.FAILURE
    )


def sanitize(text: object) -> str:
    r"""Escape control and invisible characters, against terminal escape injection by a skill.

    >>> sanitize("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    return "".join(map(_sanitize_char, str(text)))


def sanitize_lines(text: str) -> str:
    """Sanitize a text, but keep its lines and tabs."""
    return "".join(char if char in "\n\t" else _sanitize_char(char) for char in text)


class ScriptOutput:
    """Output of a script: bytes into a pipe or file, sanitized text on a terminal.

    There a script could otherwise change the title, hide lines, or write to the clipboard.
    """

    def __init__(self) -> None:
        self._decoders: dict[int, io.IncrementalNewlineDecoder] = {}

    def write(self, stream: int, piece: bytes, *, is_last: bool = False) -> None:
        """Write a piece to stdout (1) or stderr (2); characters may be split between pieces."""
        if os.isatty(stream):
            if stream not in self._decoders:
                utf8 = codecs.getincrementaldecoder("utf-8")("backslashreplace")
                # A lone carriage return would overwrite the line: it begins another one.
                self._decoders[stream] = io.IncrementalNewlineDecoder(utf8, translate=True)
            text = self._decoders[stream].decode(piece, final=is_last)
            piece = sanitize_lines(text).encode()
        # os.write may write less than it was given, e.g. into a full pipe.
        while piece:
            piece = piece[os.write(stream, piece) :]

    def close(self) -> None:
        """Write what is left of an incomplete character."""
        for stream in self._decoders:
            self.write(stream, b"", is_last=True)


_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile("[\x7f-\x9f\u2028\u2029]")
"""Control characters that JSON does not escape, and a terminal obeys."""


def to_json_line(data: object, *, is_utf8: bool) -> str:
    r"""Serialize to JSON that every parser reads: a byte that is no text becomes `\xff`."""
    text = json.dumps(data, ensure_ascii=False, default=str)
    text = _LONE_SURROGATE.sub(_escape_byte, text)
    if not is_utf8:  # JSON escapes are valid where stdout cannot encode the characters
        return json.dumps(json.loads(text))
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escape_byte(match: re.Match[str]) -> str:
    number = ord(match[0]) - 0xDC00  # as surrogateescape decodes the bytes of a file name
    return f"\\\\x{number:02x}" if 0x80 <= number <= 0xFF else "\ufffd"


def _sanitize_char(char: str) -> str:
    # Zero-width joiners stay: Persian text and emoji sequences need them.
    if char in "\u200c\u200d" or unicodedata.category(char) not in _ESCAPED_CATEGORIES:
        return char
    return " " if char in "\n\t" else char.encode("unicode_escape").decode("ascii")


@dataclass(slots=True)
class Output:
    """Output of one command: human-readable text, or one JSON envelope with `--json`."""

    command: str
    as_json: bool
    is_quiet: bool
    flags: Flags
    language: locales.Language = "en"
    _config: list[Config] = field(default_factory=list[Config])

    @property
    def config(self) -> Config:
        """The settings, loaded on first use."""
        if not self._config:
            self._config.append(load(flags=self.flags))
            self.language = self._config[0].language
            for found in self._config[0].deprecated:
                self.note(self.text("setting_deprecated", **found._asdict()))
        return self._config[0]

    def text(self, key: str, /, **fields: object) -> str:
        """Render a text of the terminal, its fields sanitized."""
        return self._render("cli", key, fields)

    def diagnostic(self, key: str, **fields: object) -> str:
        """Render a text of the diagnostics, its fields sanitized."""
        return self._render("doctor", key, fields)

    def _render(self, table: locales.Table, key: str, fields: Mapping[str, object]) -> str:
        safe = {name: sanitize(value) for name, value in fields.items()}
        return locales.text(table, key, self.language, **safe)

    def confirm(self, key: str, **fields: object) -> bool:
        """Ask the user for confirmation; without a terminal the answer is no."""
        # Consent must come from a person: data piped into stdin does not count.
        if self.as_json or not sys.stdin.isatty():
            return False
        print(self.text(key, **fields), end=" ", flush=True)
        return sys.stdin.readline().strip().lower() in {"y", "yes", "是", "好"}

    def line(self, text: str) -> None:
        """Print a line on stdout, unless `--quiet` or `--json` is given."""
        if not (self.is_quiet or self.as_json):
            print(text)

    def note(self, text: str) -> None:
        """Print a line on stderr, unless `--quiet` or `--json` is given."""
        if not (self.is_quiet or self.as_json):
            print(text, file=sys.stderr)

    def table(self, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Print rows: a table on a terminal, tab-separated and untruncated into a pipe."""
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
        """End the command: print the JSON envelope or the rendered text, and set the exit code."""
        if self.as_json:
            self._envelope(ok=code is ExitCode.OK, data=data, error=None)
        else:
            render()
        if code is not ExitCode.OK:
            raise SystemExit(code)

    def finish_line(
        self, data: object, key: str, /, code: ExitCode = ExitCode.OK, **fields: object
    ) -> None:
        """End the command with one line: the text `key`."""
        line = self.text(key, **fields)
        self.finish(data, lambda: self.line(line), code)

    def fail(self, error: errors.ApexBridgeError) -> NoReturn:
        """End the command with a localized error and its exit code."""
        localized = error.localized(self.language)
        if self.as_json:
            body = {"code": error.code, **localized._asdict(), "param": None}
            self._envelope(ok=False, data=None, error=body)
        message = f"{self.text('error')}: {sanitize(localized.message)} [{error.code}]"
        print(message, file=sys.stderr)
        if localized.hint:
            print(f"{self.text('hint')}: {sanitize(localized.hint)}", file=sys.stderr)
        raise SystemExit(exit_code_for(error))

    def _envelope(self, *, ok: bool, data: object, error: object) -> None:
        envelope = {"ok": ok, "command": self.command, "data": data, "error": error}
        is_utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
        print(to_json_line(envelope, is_utf8=is_utf8))

    def problem_to_json(self, problem: Problem) -> dict[str, object]:
        """Serialize a problem for the JSON envelope."""
        fields = {"code": problem.code, "severity": problem.severity, "where": problem.where}
        return {**fields, **problem.localized(self.language)._asdict()}

    def print_problem(self, problem: Problem) -> None:
        """Print a problem with its location, severity and hint."""
        localized = problem.localized(self.language)
        severity = self.text(f"severity_{problem.severity}")
        where, message = sanitize(problem.where), sanitize(localized.message)
        self.line(f"  {where}  {severity}  {message} [{problem.code}]")
        if localized.hint:
            self.line(f"      {sanitize(localized.hint)}")


def _draw_table(heads: list[str], rows: list[list[str]]) -> None:
    """Draw a table with CJK cell widths; only the last column is truncated."""
    from rich import box
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    available = console.width - _GAP * len(heads)
    for position, head in enumerate(heads):
        widest = max(cell_len(text) for text in (head, *(row[position] for row in rows)))
        width = widest if position == len(heads) - 1 else min(widest, _MAX_COLUMN_WIDTH)
        width = min(width, max(available, 1))
        available -= width
        grid.add_column(Text(head), no_wrap=True, width=width)
        for row in rows:
            text = Text(row[position])
            text.truncate(width, overflow="ellipsis")
            row[position] = text.plain
    for row in rows:
        grid.add_row(*map(Text, row))
    console.print(grid)


@contextmanager
def command_output(context: typer.Context, *, json: bool, quiet: bool) -> Generator[Output]:
    """Run a command's body; an `ApexBridgeError` ends it with a message and its exit code."""
    flags: Flags = context.obj or {}
    out = Output(_command_name(context), json, quiet, flags, default_language())
    try:
        out.language = out.config.language
        yield out
    except errors.ApexBridgeError as error:
        out.fail(error)
    except BrokenPipeError:
        raise  # an OSError, but `main` handles it: the reader of a pipe went away
    except OSError as error:
        out.fail(_to_storage_error(error))


def _command_name(context: typer.Context) -> str:
    """Name of the command with its group ("keys ls"), without the program's."""
    names, at = list[str](), context
    while at.parent is not None:
        names.append(at.info_name or "")
        at = at.parent
    return " ".join(reversed(names))


def _to_storage_error(error: OSError) -> errors.StorageError:
    """Map an OSError to a `StorageError` with a code and the path."""
    path = sanitize(error.filename) if error.filename else "-"
    code = "path_missing" if isinstance(error, FileNotFoundError) else "path_unreadable"
    return errors.StorageError(error.strerror or str(error), code=code, path=path)
