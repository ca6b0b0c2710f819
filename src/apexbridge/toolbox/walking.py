"""Every file below a folder, in bounded time: no link is followed, what git ignores is left out."""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from apexbridge.skills.patterns import Patterns, read_ignore_file
from apexbridge.toolbox.reaching import FOLDER, NotPlainError, open_entry

MAX_DEPTH = 64
_ALWAYS_PASSED = frozenset({".git", ".hg", ".svn", ".jj", "__pycache__"})
_IGNORE_FILE = ".gitignore"
_MOST_IGNORE_BYTES = 256 * 1024


class Found(NamedTuple):
    """A plain file: its path from where the walk began, and the open folder that holds it."""

    path: str
    parent: int
    name: str


class Ignored(NamedTuple):
    """What one ignore file says, and the folder it speaks of (empty, or with a slash)."""

    folder: str
    patterns: Patterns


@dataclass(slots=True, kw_only=True)
class Walk:
    """One walk, and what it left out."""

    deadline: float
    """Of `time.monotonic`."""
    most_entries: int = 200_000
    takes_ignored: bool = False
    ignored: int = 0
    unreadable: int = 0
    stopped: str = ""
    """Why it ended early."""
    _seen: int = field(default=0, init=False)

    def files(self, top: int) -> Iterator[Found]:
        """Walk from an open folder. Each file's folder is open only until the next one is asked."""
        yield from self._folder(top, "", ())

    def _folder(self, held: int, prefix: str, rules: Sequence[Ignored]) -> Iterator[Found]:
        if not self.takes_ignored:
            rules = (*rules, *_rules(held, prefix))
        try:
            with os.scandir(held) as entries:
                listed = sorted((e.name, e.is_dir(follow_symlinks=False)) for e in entries)
        except OSError:
            self.unreadable += 1
            return
        for name, is_folder in listed:
            if self._must_stop():
                return
            path = f"{prefix}{name}"
            if self._is_passed(f"{path}/" if is_folder else path, name, rules):
                continue
            if is_folder:
                yield from self._inner(held, name, f"{path}/", rules)
            else:
                yield Found(path, held, name)

    def _inner(
        self, held: int, name: str, prefix: str, rules: Sequence[Ignored]
    ) -> Iterator[Found]:
        if prefix.count("/") > MAX_DEPTH:
            self.unreadable += 1
            return
        try:
            inner = os.open(name, FOLDER, dir_fd=held)
        except OSError:
            self.unreadable += 1
            return
        try:
            yield from self._folder(inner, prefix, rules)
        finally:
            os.close(inner)

    def _must_stop(self) -> bool:
        self._seen += 1
        if self._seen > self.most_entries:
            self.stopped = f"after {self.most_entries:,} entries"
        elif time.monotonic() > self.deadline:
            self.stopped = "because the time was up"
        return bool(self.stopped)

    def _is_passed(self, path: str, name: str, rules: Sequence[Ignored]) -> bool:
        if self.takes_ignored:
            return False
        is_passed = name in _ALWAYS_PASSED
        for folder, patterns in reversed(rules):
            verdict = None if is_passed else patterns.verdict(path[len(folder) :])
            if verdict is not None:
                is_passed = verdict
                break
        self.ignored += is_passed
        return is_passed


def _rules(held: int, prefix: str) -> Iterator[Ignored]:
    try:
        with open_entry(held, _IGNORE_FILE) as file:
            text = file.read(_MOST_IGNORE_BYTES).decode("utf-8", "replace")
    except (OSError, NotPlainError):
        return
    yield Ignored(prefix, read_ignore_file(text))
