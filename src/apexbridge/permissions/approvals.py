"""Approval store: tools and skills that a person approved for always (human in the loop)."""

import logging
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from apexbridge.errors import ConfigError, StateDamagedError
from apexbridge.permissions.rules import Decision, PermissionRequest, Rule, ToolPattern
from apexbridge.state_files import StateFile

log = logging.getLogger(__name__)


class ApprovalFile(BaseModel):
    """Content of `approvals.json`."""

    model_config = ConfigDict(extra="ignore")

    rules: dict[str, list[str]] = {}
    """Allowed patterns, by project directory."""
    skills: dict[str, str] = {}
    """Skill names, by the hash of all their files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _CachedApprovals:
    """Parsed file, and the stat signature by which a change is detected."""

    signature: tuple[int, ...] | None
    rules: tuple[Rule, ...]
    approved: frozenset[str]


class ApprovalStore:
    """Approvals in a JSON file; fail closed: an unreadable file approves nothing.

    Changes raise StateDamagedError then, and StorageError if the file cannot be written.
    """

    def __init__(self, path: Path, project: Path) -> None:
        self._file = StateFile(path, ApprovalFile)
        self._project = str(project.resolve())
        self._last: _CachedApprovals | None = None

    def rules(self) -> tuple[Rule, ...]:
        """Return the allow rules of this project."""
        return self._load().rules

    def approved(self) -> frozenset[str]:
        """Return the hashes of approved skills; a changed skill has another hash."""
        return self._load().approved

    def store(
        self, request: PermissionRequest, decision: Decision, rule: Rule | None = None
    ) -> bool:
        """Store an `always`: the given rule, else a skill's hash, or the exact suggestion.

        Returns False where nothing can be stored: a rule asks every time, or the skill has no hash.
        """
        chosen = rule or next(iter(decision.suggestions), None)
        if decision.rule is not None or (request.tool == "Skill" and not request.sha256):
            return False
        if request.sha256 and rule is None:
            return self._change(lambda data: _add_skill(data, request.sha256, request.argument))
        return chosen is not None and self._change(lambda data: self._add(data, chosen.pattern))

    def forget_rule(self, pattern: str) -> bool:
        """Remove an allow rule of this project; False if there was none."""
        return self._change(lambda data: self._drop(data, pattern))

    def forget_skill(self, sha256: str) -> bool:
        """Remove the approval of a skill's hash; False if there was none."""
        return self._change(lambda data: data.skills.pop(sha256, None) is not None)

    def _add(self, data: ApprovalFile, pattern: ToolPattern) -> bool:
        patterns = data.rules.setdefault(self._project, [])
        if str(pattern) not in patterns:
            patterns.append(str(pattern))
        return True

    def _drop(self, data: ApprovalFile, pattern: str) -> bool:
        patterns = data.rules.get(self._project, [])
        if pattern not in patterns:
            return False
        patterns.remove(pattern)
        return True

    def check(self) -> None:
        """Check that approvals can be stored.

        Raises:
            StateDamagedError: If the file cannot be read.
        """
        self._file.read()

    def _change(self, change: Callable[[ApprovalFile], bool]) -> bool:
        with self._file.change() as data:
            return change(data)

    def _load(self) -> _CachedApprovals:
        """Return the approvals; the file is read again only if its stat signature changed."""
        signature, last = self._stat_signature(), self._last
        if last is None or signature is None or last.signature != signature:
            data = self._read_or_empty()
            rules = tuple(self._parse_rules(data.rules.get(self._project, [])))
            self._last = last = _CachedApprovals(
                signature=signature, rules=rules, approved=frozenset(data.skills)
            )
        return last

    def _stat_signature(self) -> tuple[int, ...] | None:
        try:
            found = self._file.path.stat()
        except FileNotFoundError:
            return ()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def _parse_rules(self, patterns: list[str]) -> Generator[Rule]:
        for text in patterns:
            try:
                yield Rule(effect="allow", pattern=ToolPattern.parse(text))
            except ConfigError as error:
                log.warning("Ignoring an invalid approval: %s", error)

    def _read_or_empty(self) -> ApprovalFile:
        try:
            return self._file.read()
        except StateDamagedError as error:
            log.warning("Cannot read the approvals file, so nothing is approved: %s", error)
            return ApprovalFile()


def prefix_rule(request: PermissionRequest, decision: Decision) -> Rule | None:
    """Return the second suggestion for a skill: its name, and every name below it.

    `Skill(review *)` covers `review` and `review:x`. Like `always`, it is only for what no rule
    decides, and for skills whose files can be hashed.
    """
    if decision.rule is not None or request.tool != "Skill" or not request.sha256:
        return None
    return next(iter(decision.suggestions[1:]), None)


def _add_skill(data: ApprovalFile, sha256: str, name: str) -> bool:
    data.skills[sha256] = name
    return True
