"""Holds a data folder against the invariants, as far as a disk can show them; changes nothing.

I1 every visible folder is readable and complete        I7  what was reported done is durable
I2 a folder has its skill's name, and no other folds    I8  what was taken away is found nowhere
I3 the index has a row for each folder, and no more     I9  an edit changes one field only
I4 row, marker and folder tell of the same state        I10 nothing outlives its operation
I5 a marker implies a row                               I11 changes are recorded, in a sound chain
I6 what fails leaves everything as it was               I12 of many installs of a name one wins

I6, I7, I9 and I12 speak of what happens while something is changed: no disk shows them afterwards,
tests prove them. What a person did by hand is told and is no violation.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from apexbridge.audit import AuditLog, AuditRecord
from apexbridge.errors import AuditBrokenError
from apexbridge.lifecycle.crash_cleanup import CheckTally, find_leftovers, is_store_busy
from apexbridge.lifecycle.store import SkillStore, fold_name
from apexbridge.lifecycle.trash import TRASH
from apexbridge.lifecycle.vectorized_marker import Marker, read_marker
from apexbridge.lifecycle.version_store import VERSIONS
from apexbridge.retrieval import skill_document
from apexbridge.retrieval.results import IndexStatus
from apexbridge.skills import tree
from apexbridge.skills.model import Fingerprint, Origin, Problem, Provenance, Skill
from apexbridge.skills.parser import ParseResult, read_skill
from apexbridge.sources.directory_scanner import DirectoryScanner, ScanLimits, is_scannable_folder

AUDIT_FILE = "audit.jsonl"
_CHANGES = frozenset({"install", "edit", "update", "rollback", "undo", "uninstall"})
_ALL = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditHistory:
    """What was recorded, held against what lies there."""

    tally: CheckTally
    known: frozenset[str]
    """Names that were ever installed here."""
    gone: frozenset[str]
    """Names that were taken away and did not come back."""


def read_history(data: Path, there: Mapping[str, Skill]) -> AuditHistory:
    """Follow the chain, and compare the last change of each name with what lies there."""
    tally = CheckTally()
    log = AuditLog(data / AUDIT_FILE)
    try:
        tally.looked_at += log.verify()
    except AuditBrokenError as error:
        tally.tell(
            error.code, AUDIT_FILE, path=str(data / AUDIT_FILE), line=str(error.details["line"])
        )
    last = _last_changes(log)
    whole = _restorable(data / "skills")
    trashed = frozenset(whole.values())
    for name in sorted(last.keys() | there.keys()):
        _compare_record(tally, name, last.get(name), there.get(name))
    if not is_store_busy(data):  # what is half done now will be whole
        _check_trash(tally, data / "skills" / TRASH, whole)
        for place, name in _version_folders(data / "skills" / VERSIONS):
            _check_version(tally, place, name)
    removed = {name for name, record in last.items() if record.action == "uninstall"}
    return AuditHistory(
        tally=tally,
        known=frozenset(last) | trashed,
        gone=(trashed | removed) - there.keys(),
    )


def _last_changes(log: AuditLog) -> dict[str, AuditRecord]:
    changes = (record for record in log.latest(_ALL) if record.action in _CHANGES)
    return {record.facts["skill"]: record for record in changes if "skill" in record.facts}


def _compare_record(
    tally: CheckTally, name: str, record: AuditRecord | None, skill: Skill | None
) -> None:
    """What differs was done by hand, or was recorded and then did not happen: told, not blamed."""
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
    """Not every record tells a hash, and not every tree has one."""
    return (
        bool(recorded) and skill.fingerprint is not None and (skill.fingerprint.sha256 != recorded)
    )


def _restorable(skills: Path) -> dict[str, str]:
    """What can be brought back, by the place where it lies."""
    try:
        return {entry.operation: entry.name for entry in SkillStore(skills).trash.list()}
    except OSError:  # not even a folder
        return {}


def _check_trash(tally: CheckTally, trash: Path, whole: Mapping[str, str]) -> None:
    for place in _subfolders(trash):
        tally.looked_at += 1
        where = f"{TRASH}/{place.name}"
        if place.name not in whole:
            tally.tell("fsck_trash_unfinished", where, path=where)
            continue
        mark = tree.fingerprint(place / whole[place.name])
        if isinstance(mark, Problem):
            name = whole[place.name]
            tally.tell("fsck_trash_unreadable", where, name=name, detail=mark.message)


def _version_folders(versions: Path) -> Iterator[tuple[Path, str]]:
    for skill in _subfolders(versions):
        for place in _subfolders(skill):
            yield place, skill.name


def _check_version(tally: CheckTally, place: Path, name: str) -> None:
    """A kept version lies in a place that is called by its hash."""
    tally.looked_at += 1
    mark = tree.fingerprint(place / name)
    where = f"{VERSIONS}/{name}/{place.name}"
    if not isinstance(mark, Fingerprint):
        tally.tell("fsck_version_broken", where, name=name, detail=mark.message)
    elif mark.sha256 != place.name:
        detail = f"sha256 {mark.sha256[:12]}"
        tally.tell("fsck_version_broken", where, name=name, detail=detail)


def _subfolders(place: Path) -> list[Path]:
    try:
        return sorted(path for path in place.iterdir() if path.is_dir())
    except OSError:
        return []


Invariant = Literal[
    "I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "I10", "I11", "I12"
]  # fmt: skip
INVARIANTS: tuple[Invariant, ...] = (
    "I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "I10", "I11", "I12",
)  # fmt: skip
PROVEN_BY_TESTS: tuple[Invariant, ...] = ("I6", "I7", "I9", "I12")
"""No disk shows these."""
_EVERY_FOLDER = ScanLimits(max_folders=1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class InvariantCheck:
    """One invariant: how much was looked at, and what is wrong or worth telling."""

    invariant: Invariant
    looked_at: int = 0
    problems: tuple[Problem, ...] = ()

    @property
    def is_visible(self) -> bool:
        """Say whether a disk can show it; if not, tests prove it."""
        return self.invariant not in PROVEN_BY_TESTS

    @property
    def violations(self) -> tuple[Problem, ...]:
        """What must not be."""
        return tuple(problem for problem in self.problems if problem.severity == "error")

    @property
    def remarks(self) -> tuple[Problem, ...]:
        """What may be, and is told."""
        return tuple(problem for problem in self.problems if problem.severity != "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class FsckReport:
    """What came of the check: one entry for each invariant, in their order."""

    entries: tuple[InvariantCheck, ...]

    @property
    def violations(self) -> tuple[Problem, ...]:
        """All that must not be."""
        return tuple(problem for entry in self.entries for problem in entry.violations)

    def of(self, invariant: Invariant) -> InvariantCheck:
        """The entry of one invariant."""
        return next(entry for entry in self.entries if entry.invariant == invariant)


@dataclass(frozen=True, slots=True, kw_only=True)
class FsckInput:
    """What is held against each other: a data folder, who has which name, and the index."""

    data: Path
    winners: Mapping[str, Skill]
    """The skill that has a name now, of those that lie on this machine."""
    disabled: frozenset[str] = frozenset()
    index: IndexStatus | None = None
    """How the index stands to the winners; None where there is none yet."""


def run_fsck(ground: FsckInput) -> FsckReport:
    """Look at everything once; it blocks, and it writes nothing."""
    folders = _read_folders(ground.data / "skills")
    skills = [reading.skill for reading in folders.values() if reading.skill is not None]
    indexed = [skill for skill in skills if _is_winner(skill, ground)]
    history = read_history(ground.data, {skill.name: skill for skill in skills})
    tallies: dict[Invariant, CheckTally] = {
        "I1": _check_readable(folders),
        "I2": _check_names(folders),
        "I3": _check_rows(indexed, ground, history),
        "I4": _check_states(indexed, ground.index),
        "I5": _check_markers(indexed, ground.index),
        "I8": _check_removed(ground, history),
        "I10": find_leftovers(ground.data),
        "I11": history.tally,
    }
    return FsckReport(
        entries=tuple(
            InvariantCheck(
                invariant=number, looked_at=tally.looked_at, problems=tuple(tally.problems)
            )
            for number in INVARIANTS
            for tally in (tallies.get(number, CheckTally()),)
        )
    )


def _read_folders(root: Path) -> dict[str, ParseResult]:
    """What can be read of each visible folder, by its path below the root."""
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
    held = {path.split("/", 1)[0] for path in found}
    empty = [name for name in visible if name not in held]
    return {path: read_skill(root / path, provenance) for path in sorted((*found, *empty))}


def _is_winner(skill: Skill, ground: FsckInput) -> bool:
    """A skill that another hides, or that is switched off, has no row and needs none."""
    winner = ground.winners.get(skill.name)
    return winner is not None and winner.root == skill.root


def _check_readable(folders: Mapping[str, ParseResult]) -> CheckTally:
    tally = CheckTally(looked_at=len(folders))
    for path, reading in folders.items():
        if reading.skill is not None and reading.skill.fingerprint is not None:
            continue
        whole = reading.skill is not None  # readable, but not all of it can be hashed
        reason = reading.problems[-1 if whole else 0]
        tally.tell("fsck_folder_broken", path, path=path, detail=reason.message)
    return tally


def _check_names(folders: Mapping[str, ParseResult]) -> CheckTally:
    tally = CheckTally(looked_at=len(folders))
    alike = defaultdict[str, list[str]](list)
    for path, reading in folders.items():
        folder = path.rsplit("/", 1)[-1]
        name = reading.skill.name if reading.skill is not None else folder
        alike[fold_name(name)].append(path)
        if name != folder:
            tally.tell("fsck_name_differs", path, path=path, name=name)
    for paths in alike.values():
        if len(paths) > 1:
            tally.tell("fsck_names_collide", paths[0], paths=", ".join(paths))
    return tally


def _check_rows(indexed: Iterable[Skill], ground: FsckInput, history: AuditHistory) -> CheckTally:
    index, names = ground.index, [skill.name for skill in indexed]
    tally = CheckTally(looked_at=len(names))
    if index is None:
        if names:
            tally.remark("fsck_index_none", "index", count=len(names))
        return tally
    for detail in index.problems:
        tally.tell("fsck_index_damaged", index.path.name, detail=detail)
    for name in names:
        if name in index.missing:
            tally.tell("fsck_row_missing", name, name=name)
    for name in _orphaned_rows(ground, history):
        # Of a skill that was never installed here it may be the row of another project's,
        # or of a server that was not asked.
        say = tally.tell if name in history.known else tally.remark
        say("fsck_row_orphaned", name, name=name)
    return tally


def _orphaned_rows(ground: FsckInput, history: AuditHistory) -> Iterator[str]:
    for name in ground.index.orphaned if ground.index is not None else ():
        if name not in history.gone and name not in ground.disabled:
            yield name


def _check_states(indexed: Iterable[Skill], index: IndexStatus | None) -> CheckTally:
    tally = CheckTally()
    for skill in indexed:
        tally.looked_at += 1
        if index is None or not index.embedder or skill.root is None or skill.fingerprint is None:
            continue
        if skill.name in index.stale:
            tally.tell("fsck_row_stale", skill.name, name=skill.name)
        marker = read_marker(skill.root)
        if marker is None:
            if skill.name not in index.missing:
                tally.tell("fsck_marker_missing", skill.name, name=skill.name)
            continue
        right = Marker.from_fingerprint(
            skill.fingerprint,
            embedder=index.embedder,
            generation=f"v{skill_document.DOCUMENT_VERSION}",
        )
        if (marker.sha256, marker.size) != (right.sha256, right.size):
            tally.tell("fsck_marker_stale", skill.name, name=skill.name)
        elif marker != right:
            tally.tell(
                "fsck_marker_foreign",
                skill.name,
                name=skill.name,
                found=f"{marker.embedder} {marker.generation}",
                expected=f"{right.embedder} {right.generation}",
            )
    return tally


def _check_markers(indexed: Iterable[Skill], index: IndexStatus | None) -> CheckTally:
    tally = CheckTally()
    for skill in indexed:
        if skill.root is None or read_marker(skill.root) is None:
            continue
        tally.looked_at += 1
        if index is None or skill.name in index.missing:
            tally.tell("fsck_marker_without_row", skill.name, name=skill.name)
    return tally


def _check_removed(ground: FsckInput, history: AuditHistory) -> CheckTally:
    tally = CheckTally(looked_at=len(history.gone) + len(ground.disabled))
    orphaned = set(ground.index.orphaned) if ground.index is not None else set[str]()
    for name in sorted(history.gone & orphaned):
        tally.tell("fsck_gone_has_row", name, name=name)
    for name in sorted((ground.disabled - history.gone) & orphaned):
        tally.tell("fsck_off_has_row", name, name=name)
    return tally
