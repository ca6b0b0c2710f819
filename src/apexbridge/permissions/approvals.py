"""What a person allowed for always: rules for one project, and states of skills."""

import logging
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from apexbridge.errors import ConfigError, StorageError
from apexbridge.file_lock import file_lock
from apexbridge.paths import replace_bytes
from apexbridge.permissions.rules import Decision, PermissionRequest, Rule, ToolPattern

log = logging.getLogger(__name__)


class _ApprovalFile(BaseModel):
    model_config = ConfigDict(extra="ignore")

    rules: dict[str, list[str]] = {}
    """Patterns that are allowed, by project."""
    skills: dict[str, str] = {}
    """Names of skills, by the hash of all their files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _CachedApprovals:
    """What the file said when it was read, and the marks by which a later state is told."""

    mark: tuple[int, ...] | None
    rules: tuple[Rule, ...]
    approved: frozenset[str]


class ApprovalStore:
    """Answers in a small file. One that cannot be read allows nothing, and is not written over."""

    def __init__(self, path: Path, project: Path) -> None:
        self._path = path
        self._project = str(project.resolve())
        self._last: _CachedApprovals | None = None

    def rules(self) -> tuple[Rule, ...]:
        """What is allowed in this project."""
        return self._known().rules

    def approved(self) -> frozenset[str]:
        """The states of skills that may be used, by hash; a changed skill is not among them."""
        return self._known().approved

    def keep(
        self, request: PermissionRequest, decision: Decision, rule: Rule | None = None
    ) -> bool:
        """Remember an `always`: for a skill its state, else the rule, or the exact suggestion.

        False where there is nothing that could be kept: a rule asks every time, or nobody can tell
        what state a skill is in.

        Raises:
            StorageError: If that cannot be written down.
        """
        chosen = rule or next(iter(decision.suggestions), None)
        if decision.rule is not None or (request.tool == "Skill" and not request.sha256):
            return False
        if request.sha256:
            return self._change(lambda book: _add_skill(book, request.sha256, request.argument))
        return chosen is not None and self._change(lambda book: self._add(book, chosen.pattern))

    def forget_rule(self, pattern: str) -> bool:
        """Take a rule of this project back; False if there was none.

        Raises:
            StorageError: If that cannot be written down.
        """
        return self._change(lambda book: self._drop(book, pattern))

    def forget_skill(self, sha256: str) -> bool:
        """Take the approval of a skill's state back; False if there was none.

        Raises:
            StorageError: If that cannot be written down.
        """
        return self._change(lambda book: book.skills.pop(sha256, None) is not None)

    def _add(self, book: _ApprovalFile, pattern: ToolPattern) -> bool:
        kept = book.rules.setdefault(self._project, [])
        if str(pattern) not in kept:
            kept.append(str(pattern))
        return True

    def _drop(self, book: _ApprovalFile, pattern: str) -> bool:
        kept = book.rules.get(self._project, [])
        if pattern not in kept:
            return False
        kept.remove(pattern)
        return True

    def _change(self, change: Callable[[_ApprovalFile], bool]) -> bool:
        with self._alone():
            try:
                book = self._read()
            except (OSError, ValidationError) as error:
                raise StorageError(str(error), path=self._path) from None
            if not change(book):
                return False
            replace_bytes(self._path, book.model_dump_json(indent=1).encode())
            return True

    def _known(self) -> _CachedApprovals:
        """What the file says; it is read again only where it is another one than before."""
        mark, last = self._mark(), self._last
        if last is None or mark is None or last.mark != mark:
            book = self._read_or_nothing()
            rules = tuple(self._parsed(book.rules.get(self._project, [])))
            self._last = last = _CachedApprovals(
                mark=mark, rules=rules, approved=frozenset(book.skills)
            )
        return last

    def _mark(self) -> tuple[int, ...] | None:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return ()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def _parsed(self, patterns: list[str]) -> Generator[Rule]:
        for text in patterns:
            try:
                yield Rule(effect="allow", pattern=ToolPattern.parse(text))
            except ConfigError as error:
                log.warning("A kept approval is passed over: %s", error)

    def _read_or_nothing(self) -> _ApprovalFile:
        try:
            return self._read()
        except (OSError, ValidationError) as error:
            log.warning("Kept approvals cannot be read, so none counts: %s", error)
            return _ApprovalFile()

    def _read(self) -> _ApprovalFile:
        try:
            return _ApprovalFile.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return _ApprovalFile()

    def _alone(self) -> AbstractContextManager[int]:
        return file_lock(self._path.with_suffix(".lock"))


def _add_skill(book: _ApprovalFile, sha256: str, name: str) -> bool:
    book.skills[sha256] = name
    return True
