"""File system check: verify the invariants of a data folder, read-only.

I1 every visible folder is readable and complete        I7  a reported change is durable
I2 folder name equals skill name, unique when folded    I8  an uninstalled skill is not found
I3 the index has a row for each folder, and no more     I9  an edit changes one field only
I4 row, marker and folder describe the same state       I10 no leftovers of operations
I5 a marker implies a row                               I11 audit log complete, hash chain intact
I6 a failed change changes nothing                      I12 one of concurrent installs wins
                                                        I13 every state file can be read

I6, I7, I9 and I12 hold during a change and cannot be seen on disk afterwards: tests verify them.
A manual change of files is an observation, not a violation.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

from apexbridge.audit import AuditLog, AuditRecord
from apexbridge.errors import AuditBrokenError
from apexbridge.lifecycle.crash_cleanup import CheckTally, find_leftovers, is_store_busy
from apexbridge.lifecycle.store import SkillStore, fold_name
from apexbridge.lifecycle.trash import TRASH
from apexbridge.lifecycle.version_store import VERSIONS
from apexbridge.retrieval import skill_document
from apexbridge.retrieval.results import IndexStatus
from apexbridge.retrieval.vectorized_marker import Marker, read_marker
from apexbridge.skills import tree
from apexbridge.skills.model import Fingerprint, Origin, Problem, Provenance, Skill
from apexbridge.skills.parser import ParseResult, read_skill
from apexbridge.sources.directory_scanner import DirectoryScanner, ScanLimits, is_scannable_folder

AUDIT_FILE = "audit.jsonl"
_CHANGES = frozenset({"install", "edit", "update", "rollback", "undo", "uninstall"})
_ALL = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditHistory:
    """The audit log compared with the files on disk."""

    tally: CheckTally
    known: frozenset[str]
    """Names that were ever installed here."""
    gone: frozenset[str]
    """Names that were uninstalled and not restored."""


def read_history(data: Path, present: Mapping[str, Skill]) -> AuditHistory:
    """Verify the hash chain, and compare the last change of each name with its files."""
    tally = CheckTally()
    log = AuditLog(data / AUDIT_FILE)
    try:
        tally.checked += log.verify()
    except AuditBrokenError as error:
        details = {key: str(value) for key, value in error.details.items() if value}
        tally.violation(error.code, AUDIT_FILE, **details)
    last = _last_changes(log)
    complete = _restorable(data / "skills")
    trashed = frozenset(complete.values())
    for name in sorted(last.keys() | present.keys()):
        _compare_record(tally, name, last.get(name), present.get(name))
    if not is_store_busy(data):  # work in progress would look incomplete
        _check_trash(tally, data / "skills" / TRASH, complete)
        for skill in _subfolders(data / "skills" / VERSIONS):
            for place in _subfolders(skill):
                _check_version(tally, place, skill.name)
    removed = {name for name, record in last.items() if record.action == "uninstall"}
    return AuditHistory(
        tally=tally, known=frozenset(last) | trashed, gone=(trashed | removed) - present.keys()
    )


def _last_changes(log: AuditLog) -> dict[str, AuditRecord]:
    changes = (record for record in log.latest(_ALL) if record.action in _CHANGES)
    return {record.facts["skill"]: record for record in changes if "skill" in record.facts}


def _compare_record(
    tally: CheckTally, name: str, record: AuditRecord | None, skill: Skill | None
) -> None:
    """Note a manual change, or a recorded one that was interrupted; neither is a violation."""
    if record is None:
        tally.remark("fsck_by_hand_new", name, name=name)
    elif skill is None:
        if record.action != "uninstall":
            tally.remark("fsck_by_hand_gone", name, name=name, action=record.action)
    elif record.action == "uninstall":
        tally.remark("fsck_there_after_all", name, name=name)
    elif _hash_differs(record.facts.get("sha256", ""), skill):
        tally.remark("fsck_by_hand_edited", name, name=name, at=record.at)


def _hash_differs(recorded: str, skill: Skill) -> bool:
    """Compare content hashes; some records and some trees have none."""
    fingerprint = skill.fingerprint
    return bool(recorded) and fingerprint is not None and fingerprint.sha256 != recorded


def _restorable(skills: Path) -> dict[str, str]:
    """Return the restorable skills by their trash folder."""
    try:
        return {entry.operation: entry.name for entry in SkillStore(skills).trash.list()}
    except OSError:  # not a folder
        return {}


def _check_trash(tally: CheckTally, trash: Path, complete: Mapping[str, str]) -> None:
    for place in _subfolders(trash):
        tally.checked += 1
        where = f"{TRASH}/{place.name}"
        if place.name not in complete:
            tally.violation("fsck_trash_unfinished", where, path=where)
            continue
        mark = tree.fingerprint(place / complete[place.name])
        if isinstance(mark, Problem):
            name = complete[place.name]
            tally.violation("fsck_trash_unreadable", where, name=name, detail=mark.message)


def _check_version(tally: CheckTally, place: Path, name: str) -> None:
    """Check that a stored version matches the content hash in its path."""
    tally.checked += 1
    mark = tree.fingerprint(place / name)
    where = f"{VERSIONS}/{name}/{place.name}"
    if not isinstance(mark, Fingerprint):
        tally.violation("fsck_version_broken", where, name=name, detail=mark.message)
    elif mark.sha256 != place.name:
        detail = f"sha256 {mark.sha256[:12]}"
        tally.violation("fsck_version_broken", where, name=name, detail=detail)


def _subfolders(place: Path) -> list[Path]:
    try:
        return sorted(path for path in place.iterdir() if path.is_dir())
    except OSError:
        return []


Invariant = Literal[
    "I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "I10", "I11", "I12", "I13"
]  # fmt: skip
INVARIANTS: tuple[Invariant, ...] = get_args(Invariant)
PROVEN_BY_TESTS: tuple[Invariant, ...] = ("I6", "I7", "I9", "I12")
"""Not visible on disk."""
_EVERY_FOLDER = ScanLimits(max_folders=1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class InvariantCheck:
    """Result for one invariant: number of checked items, violations and observations."""

    invariant: Invariant
    checked: int = 0
    problems: tuple[Problem, ...] = ()

    @property
    def is_visible(self) -> bool:
        """Say whether the invariant can be verified on disk."""
        return self.invariant not in PROVEN_BY_TESTS

    @property
    def violations(self) -> tuple[Problem, ...]:
        """Problems of severity `error`."""
        return tuple(problem for problem in self.problems if problem.severity == "error")

    @property
    def remarks(self) -> tuple[Problem, ...]:
        """Problems of lower severity."""
        return tuple(problem for problem in self.problems if problem.severity != "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class FsckReport:
    """Results of a check, one for each invariant."""

    entries: tuple[InvariantCheck, ...]

    @property
    def violations(self) -> tuple[Problem, ...]:
        """Violations of all invariants."""
        return tuple(problem for entry in self.entries for problem in entry.violations)

    def confirming(self, earlier: "FsckReport") -> "FsckReport":
        """Return this report without the violations that an earlier one does not have."""
        known = set(map(repr, earlier.violations))
        return FsckReport(
            entries=tuple(
                replace(
                    entry,
                    problems=tuple(
                        problem
                        for problem in entry.problems
                        if problem.severity != "error" or repr(problem) in known
                    ),
                )
                for entry in self.entries
            )
        )

    def get(self, invariant: Invariant) -> InvariantCheck:
        """Return the result for one invariant."""
        return next(entry for entry in self.entries if entry.invariant == invariant)


@dataclass(frozen=True, slots=True, kw_only=True)
class FsckInput:
    """Data folder, catalog winners and index status to compare."""

    data: Path
    winners: Mapping[str, Skill]
    """The catalog's skill of each name, local sources only."""
    disabled: frozenset[str] = frozenset()
    index: IndexStatus | None = None
    """Status of the index against the winners; None if there is no index yet."""
    state: CheckTally = field(default_factory=CheckTally)
    """The check of the state files."""


def run_fsck(target: FsckInput) -> FsckReport:
    """Check every visible invariant; blocking and read-only."""
    folders = _read_folders(target.data / "skills")
    skills = [reading.skill for reading in folders.values() if reading.skill is not None]
    # A shadowed or disabled skill has no row, so rows are compared with the winners only.
    indexed = [skill for skill in skills if _is_winner(skill, target)]
    history = read_history(target.data, {skill.name: skill for skill in skills})
    tallies: dict[Invariant, CheckTally] = {
        "I1": _check_readable(folders),
        "I2": _check_names(folders),
        "I3": _check_rows(indexed, target, history),
        "I4": _check_states(indexed, target.index),
        "I5": _check_markers(indexed, target.index),
        "I8": _check_removed(target, history),
        "I10": find_leftovers(target.data),
        "I11": history.tally,
        "I13": target.state,
    }
    return FsckReport(
        entries=tuple(
            InvariantCheck(invariant=number, checked=tally.checked, problems=tuple(tally.problems))
            for number in INVARIANTS
            for tally in (tallies.get(number, CheckTally()),)
        )
    )


def _read_folders(root: Path) -> dict[str, ParseResult]:
    """Parse each visible folder, by its path below the root."""
    provenance = Provenance(
        origin=Origin.INSTALLED,
        source_id=f"{Origin.INSTALLED}:{root}",
        needs_trust=False,
        writable=True,
    )
    try:
        found = [folder.path for folder in DirectoryScanner(str(root), _EVERY_FOLDER).skills()]
        with os.scandir(root) as items:
            visible = [item.name for item in items if is_scannable_folder(item)]
    except FileNotFoundError:
        return {}
    except OSError as error:
        details = {"detail": error.strerror or str(error)}
        return {
            root.name: ParseResult(
                problems=(Problem(code="folder_unreadable", where=root.name, details=details),)
            )
        }
    nonempty = {path.split("/", 1)[0] for path in found}
    empty = [name for name in visible if name not in nonempty]
    return {path: read_skill(root / path, provenance) for path in sorted((*found, *empty))}


def _is_winner(skill: Skill, target: FsckInput) -> bool:
    winner = target.winners.get(skill.name)
    return winner is not None and winner.root == skill.root


def _check_readable(folders: Mapping[str, ParseResult]) -> CheckTally:
    tally = CheckTally(checked=len(folders))
    for path, reading in folders.items():
        if reading.skill is not None and reading.skill.fingerprint is not None:
            continue
        is_parsed = reading.skill is not None  # but some file cannot be hashed
        reason = reading.problems[-1 if is_parsed else 0]
        tally.violation("fsck_folder_broken", path, path=path, detail=reason.message)
    return tally


def _check_names(folders: Mapping[str, ParseResult]) -> CheckTally:
    tally = CheckTally(checked=len(folders))
    by_folded = defaultdict[str, list[str]](list)
    for path, reading in folders.items():
        folder = path.rsplit("/", 1)[-1]
        name = reading.skill.name if reading.skill is not None else folder
        by_folded[fold_name(name)].append(path)
        if name != folder:
            tally.violation("fsck_name_differs", path, path=path, name=name)
    for paths in by_folded.values():
        if len(paths) > 1:
            tally.violation("fsck_names_collide", paths[0], paths=", ".join(paths))
    return tally


def _check_rows(indexed: Iterable[Skill], target: FsckInput, history: AuditHistory) -> CheckTally:
    index, names = target.index, [skill.name for skill in indexed]
    tally = CheckTally(checked=len(names))
    if index is None:
        if names:
            tally.remark("fsck_index_none", "index", count=len(names))
        return tally
    for detail in index.problems:
        tally.violation("fsck_index_damaged", index.path.name, detail=detail)
    for name in names:
        if name in index.missing:
            tally.violation("fsck_row_missing", name, name=name)
    for name in index.orphaned:
        if name in history.gone or name in target.disabled:
            continue
        # A name that was never installed may belong to another project or an MCP server.
        add = tally.violation if name in history.known else tally.remark
        add("fsck_row_orphaned", name, name=name)
    return tally


def _check_states(indexed: Iterable[Skill], index: IndexStatus | None) -> CheckTally:
    tally = CheckTally()
    for skill in indexed:
        tally.checked += 1
        if index is None or not index.embedder or skill.root is None or skill.fingerprint is None:
            continue
        if skill.name in index.stale:
            tally.violation("fsck_row_stale", skill.name, name=skill.name)
        marker = read_marker(skill.root)
        if marker is None:
            if skill.name not in index.missing:
                tally.violation("fsck_marker_missing", skill.name, name=skill.name)
            continue
        expected = Marker.from_fingerprint(
            skill.fingerprint,
            embedder=index.embedder,
            generation=f"v{skill_document.DOCUMENT_VERSION}",
        )
        if (marker.sha256, marker.size) != (expected.sha256, expected.size):
            tally.violation("fsck_marker_stale", skill.name, name=skill.name)
        elif marker != expected:
            tally.violation(
                "fsck_marker_foreign",
                skill.name,
                name=skill.name,
                found=f"{marker.embedder} {marker.generation}",
                expected=f"{expected.embedder} {expected.generation}",
            )
    return tally


def _check_markers(indexed: Iterable[Skill], index: IndexStatus | None) -> CheckTally:
    tally = CheckTally()
    for skill in indexed:
        if skill.root is None or read_marker(skill.root) is None:
            continue
        tally.checked += 1
        if index is None or skill.name in index.missing:
            tally.violation("fsck_marker_without_row", skill.name, name=skill.name)
    return tally


def _check_removed(target: FsckInput, history: AuditHistory) -> CheckTally:
    tally = CheckTally(checked=len(history.gone) + len(target.disabled))
    orphaned = set(target.index.orphaned) if target.index is not None else set[str]()
    for name in sorted(history.gone & orphaned):
        tally.violation("fsck_gone_has_row", name, name=name)
    for name in sorted((target.disabled - history.gone) & orphaned):
        tally.violation("fsck_off_has_row", name, name=name)
    return tally
