"""What every command shares: one envelope, one way to fail, text that harms no terminal."""

import json
import sys
import unicodedata
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NoReturn

from apexbridge import errors, wording
from apexbridge.cli.words import word
from apexbridge.settings import Loaded, language_of_place, load
from apexbridge.skills.model import Problem

_WIDEST_COLUMN = 40
_GAP = 3

Flags = Mapping[str, object]


class Exit(IntEnum):
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


_CODES = {
    "path_exists": Exit.CONFLICT,
    "path_missing": Exit.NOT_FOUND,
    "path_unreadable": Exit.DENIED,
    "version_unknown": Exit.NOT_FOUND,
    "key_unknown": Exit.NOT_FOUND,
}
_KINDS: tuple[tuple[type[errors.ApexBridgeError], Exit], ...] = (
    (errors.SkillNotFoundError, Exit.NOT_FOUND),
    (errors.SettingNotFoundError, Exit.NOT_FOUND),
    (errors.ToolNotFoundError, Exit.NOT_FOUND),
    (errors.SkillExistsError, Exit.CONFLICT),
    (errors.SkillChangedError, Exit.CONFLICT),
    (errors.SkillVersionError, Exit.CONFLICT),
    (errors.PermissionDeniedError, Exit.DENIED),
    (errors.SkillReadOnlyError, Exit.DENIED),
    (errors.UnsafePathError, Exit.DENIED),
    (errors.SkillInvalidError, Exit.INVALID),
    (errors.ArchiveError, Exit.INVALID),
    (errors.ConfigError, Exit.USAGE),
)


def exit_for(error: errors.ApexBridgeError) -> Exit:
    """The exit code of an error."""
    if error.code in _CODES:
        return _CODES[error.code]
    return next((code for kind, code in _KINDS if isinstance(error, kind)), Exit.FAILURE)


def visible(text: object) -> str:
    r"""Make text from a skill harmless on a terminal: what would steer it is written out.

    >>> visible("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    return "".join(map(_visible_char, str(text)))


def _visible_char(char: str) -> str:
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
class Out:
    """One command's way to its reader."""

    command: str
    as_json: bool
    is_quiet: bool
    flags: Flags
    language: wording.Language = "en"
    _loaded: list[Loaded] = field(default_factory=list[Loaded])

    @property
    def loaded(self) -> Loaded:
        """The settings, read on first use."""
        if not self._loaded:
            self._loaded.append(load(flags=self.flags))
            self.language = self._loaded[0].language
        return self._loaded[0]

    def word(self, key: str, **fields: object) -> str:
        """A text of the screens, in the reader's language."""
        return word(key, self.language, **{name: visible(value) for name, value in fields.items()})

    def asks(self, key: str, **fields: object) -> bool:
        """Ask a person to agree; where there is none, the answer is no."""
        if self.as_json or not sys.stdin.isatty():
            return False
        print(self.word(key, **fields), end=" ", flush=True)
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
        cells = [[visible(cell) for cell in row] for row in rows]
        if sys.stdout.isatty():
            _draw([visible(head) for head in heads], cells)
        else:
            print(*("\t".join(row) for row in cells), sep="\n")

    def finish(self, data: object, render: Callable[[], None], code: Exit = Exit.OK) -> None:
        """End the command: the envelope for programs, or the rendering for people."""
        if self.as_json:
            self._envelope(ok=code is Exit.OK, data=data, error=None)
        else:
            render()
        if code is not Exit.OK:
            raise SystemExit(code)

    def fail(self, error: errors.ApexBridgeError) -> NoReturn:
        """End the command with an error, in the reader's language."""
        said = error.said(self.language)
        if self.as_json:
            body = {"code": error.code, "message": said.message, "hint": said.hint, "param": None}
            self._envelope(ok=False, data=None, error=body)
        print(f"{self.word('error')}: {visible(said.message)} [{error.code}]", file=sys.stderr)
        if said.hint:
            print(f"{self.word('hint')}: {visible(said.hint)}", file=sys.stderr)
        raise SystemExit(exit_for(error))

    def _envelope(self, *, ok: bool, data: object, error: object) -> None:
        envelope = {"ok": ok, "command": self.command, "data": data, "error": error}
        is_wide = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
        print(json.dumps(envelope, ensure_ascii=not is_wide, default=str))

    def problem(self, problem: Problem) -> dict[str, object]:
        """A problem as programs read it."""
        said = problem.said(self.language)
        return {
            "code": problem.code,
            "severity": problem.severity,
            "where": problem.where,
            "message": said.message,
            "hint": said.hint,
        }

    def problem_lines(self, problem: Problem) -> None:
        """A problem as people read it."""
        said = problem.said(self.language)
        severity = self.word(f"severity_{problem.severity}")
        self.line(
            f"  {visible(problem.where)}  {severity}  {visible(said.message)} [{problem.code}]"
        )
        if said.hint:
            self.line(f"      {visible(said.hint)}")


def _draw(heads: list[str], rows: list[list[str]]) -> None:
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
        width = widest if position == len(heads) - 1 else min(widest, _WIDEST_COLUMN)
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
def door(command: str, *, as_json: bool, is_quiet: bool, flags: Flags | None) -> Generator[Out]:
    """Run a command's body; our errors end it with their exit code and the reader's words."""
    out = Out(command, as_json, is_quiet, flags or {}, language_of_place())
    try:
        out.language = out.loaded.language
        yield out
    except errors.ApexBridgeError as error:
        out.fail(error)
    except BrokenPipeError:
        raise
    except OSError as error:
        out.fail(_as_ours(error))


def _as_ours(error: OSError) -> errors.StorageError:
    """What the system refused, in our words."""
    path = visible(error.filename) if error.filename else "-"
    code = "path_missing" if isinstance(error, FileNotFoundError) else "path_unreadable"
    return errors.StorageError(error.strerror or str(error), code=code, path=path)
