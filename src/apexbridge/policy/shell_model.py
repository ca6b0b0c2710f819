"""What a line of shell comes to: the commands it runs, and the files it writes and reads."""

import re
import shlex
from dataclasses import dataclass
from typing import Literal

Role = Literal["plain", "wrapper", "opaque"]

_PLAIN = re.compile(r"[\w@%+=:,./\-{}\[\]!^#]+")


def names(text: str) -> frozenset[str]:
    """Names that are written in a row."""
    return frozenset(text.split())


@dataclass(frozen=True, slots=True)
class Word:
    """One word: as it is written, and what it stands for; None where only the shell can tell."""

    text: str
    value: str | None
    is_one: bool = True
    """Whether it stays one word when the shell is done with it."""

    @property
    def said(self) -> str:
        """The same for every way of quoting it."""
        if self.value is None:
            return self.text
        return self.value if _PLAIN.fullmatch(self.value) else shlex.quote(self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleCommand:
    """A program and its arguments.

    A `wrapper` only starts what is judged beside it. What an `opaque` one starts cannot be told,
    so no prefix can allow it.
    """

    words: tuple[Word, ...]
    assigned: tuple[Word, ...] = ()
    """Variables that are set for it, or for all that follows where it has no words."""
    role: Role = "plain"

    @property
    def name(self) -> str:
        """The program; empty where variables are set and nothing is run."""
        return (self.words[0].value or "") if self.words else ""

    @property
    def text(self) -> str:
        """The whole of it, the same for every way of quoting."""
        return " ".join(word.said for word in (*self.assigned, *self.words))


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """Everything that a text can run, whichever way it takes."""

    commands: tuple[SimpleCommand, ...] = ()
    writes: tuple[str, ...] = ()
    """Files that redirections write, as they are written there."""
    reads: tuple[str, ...] = ()
    moves: bool = False
    """Whether it may change its folder: then nobody can tell where a relative path leads."""


class NotUnderstoodError(Exception):
    """The text may do more than can be told; it is judged as a whole."""
