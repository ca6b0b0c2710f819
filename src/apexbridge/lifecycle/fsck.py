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

from apexbridge.lifecycle.history import History, read_history
from apexbridge.lifecycle.leftovers import Tally, leftovers
from apexbridge.lifecycle.marker import Marker, read_marker
from apexbridge.lifecycle.store import folded
from apexbridge.retrieval import text
from apexbridge.retrieval.report import IndexStatus
from apexbridge.skills.model import Origin, Problem, Provenance, Skill
from apexbridge.skills.reader import Reading, read_skill
from apexbridge.sources.walking import ScanLimits, Walk, is_open_folder

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
class Checked:
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
class Soundness:
    """What came of the check: one entry for each invariant, in their order."""

    entries: tuple[Checked, ...]

    @property
    def violations(self) -> tuple[Problem, ...]:
        """All that must not be."""
        return tuple(problem for entry in self.entries for problem in entry.violations)

    def of(self, invariant: Invariant) -> Checked:
        """The entry of one invariant."""
        return next(entry for entry in self.entries if entry.invariant == invariant)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What is held against each other: a data folder, who has which name, and the index."""

    data: Path
    winners: Mapping[str, Skill]
    """The skill that has a name now, of those that lie on this machine."""
    disabled: frozenset[str] = frozenset()
    index: IndexStatus | None = None
    """How the index stands to the winners; None where there is none yet."""


def check(ground: Ground) -> Soundness:
    """Look at everything once; it blocks, and it writes nothing."""
    folders = _folders(ground.data / "skills")
    skills = [reading.skill for reading in folders.values() if reading.skill is not None]
    indexed = [skill for skill in skills if _has_its_name(skill, ground)]
    history = read_history(ground.data, {skill.name: skill for skill in skills})
    tallies: dict[Invariant, Tally] = {
        "I1": _readable(folders),
        "I2": _named(folders),
        "I3": _rows(indexed, ground, history),
        "I4": _states(indexed, ground.index),
        "I5": _marked(indexed, ground.index),
        "I8": _gone(ground, history),
        "I10": leftovers(ground.data),
        "I11": history.tally,
    }
    return Soundness(
        entries=tuple(
            Checked(invariant=number, looked_at=tally.looked_at, problems=tuple(tally.problems))
            for number in INVARIANTS
            for tally in (tallies.get(number, Tally()),)
        )
    )


def _folders(root: Path) -> dict[str, Reading]:
    """What can be read of each visible folder, by its path below the root."""
    provenance = Provenance(
        origin=Origin.INSTALLED,
        source_id=f"{Origin.INSTALLED}:{root}",
        needs_trust=False,
        writable=True,
    )
    try:
        found = [folder.path for folder in Walk(str(root), _EVERY_FOLDER).skills()]
        with os.scandir(root) as items:
            visible = [item.name for item in items if is_open_folder(item)]
    except FileNotFoundError:
        return {}
    except OSError as error:
        details = {"detail": error.strerror or str(error)}
        return {
            root.name: Reading(
                problems=(Problem(code="folder_unreadable", where=root.name, details=details),)
            )
        }
    held = {path.split("/", 1)[0] for path in found}
    empty = [name for name in visible if name not in held]
    return {path: read_skill(root / path, provenance) for path in sorted((*found, *empty))}


def _has_its_name(skill: Skill, ground: Ground) -> bool:
    """A skill that another hides, or that is switched off, has no row and needs none."""
    winner = ground.winners.get(skill.name)
    return winner is not None and winner.root == skill.root


def _readable(folders: Mapping[str, Reading]) -> Tally:
    tally = Tally(looked_at=len(folders))
    for path, reading in folders.items():
        if reading.skill is not None and reading.skill.fingerprint is not None:
            continue
        whole = reading.skill is not None  # readable, but not all of it can be hashed
        reason = reading.problems[-1 if whole else 0]
        tally.tell("fsck_folder_broken", path, path=path, detail=reason.message)
    return tally


def _named(folders: Mapping[str, Reading]) -> Tally:
    tally = Tally(looked_at=len(folders))
    alike = defaultdict[str, list[str]](list)
    for path, reading in folders.items():
        folder = path.rsplit("/", 1)[-1]
        name = reading.skill.name if reading.skill is not None else folder
        alike[folded(name)].append(path)
        if name != folder:
            tally.tell("fsck_name_differs", path, path=path, name=name)
    for paths in alike.values():
        if len(paths) > 1:
            tally.tell("fsck_names_collide", paths[0], paths=", ".join(paths))
    return tally


def _rows(indexed: Iterable[Skill], ground: Ground, history: History) -> Tally:
    index, names = ground.index, [skill.name for skill in indexed]
    tally = Tally(looked_at=len(names))
    if index is None:
        if names:
            tally.remark("fsck_index_none", "index", count=len(names))
        return tally
    for detail in index.problems:
        tally.tell("fsck_index_damaged", index.path.name, detail=detail)
    for name in names:
        if name in index.missing:
            tally.tell("fsck_row_missing", name, name=name)
    for name in _unowned(ground, history):
        # Of a skill that was never installed here it may be the row of another project's,
        # or of a server that was not asked.
        say = tally.tell if name in history.known else tally.remark
        say("fsck_row_orphaned", name, name=name)
    return tally


def _unowned(ground: Ground, history: History) -> Iterator[str]:
    for name in ground.index.orphaned if ground.index is not None else ():
        if name not in history.gone and name not in ground.disabled:
            yield name


def _states(indexed: Iterable[Skill], index: IndexStatus | None) -> Tally:
    tally = Tally()
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
        right = Marker.of(skill.fingerprint, embedder=index.embedder, generation=f"v{text.VERSION}")
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


def _marked(indexed: Iterable[Skill], index: IndexStatus | None) -> Tally:
    tally = Tally()
    for skill in indexed:
        if skill.root is None or read_marker(skill.root) is None:
            continue
        tally.looked_at += 1
        if index is None or skill.name in index.missing:
            tally.tell("fsck_marker_without_row", skill.name, name=skill.name)
    return tally


def _gone(ground: Ground, history: History) -> Tally:
    tally = Tally(looked_at=len(history.gone) + len(ground.disabled))
    orphaned = set(ground.index.orphaned) if ground.index is not None else set[str]()
    for name in sorted(history.gone & orphaned):
        tally.tell("fsck_gone_has_row", name, name=name)
    for name in sorted((ground.disabled - history.gone) & orphaned):
        tally.tell("fsck_off_has_row", name, name=name)
    return tally
