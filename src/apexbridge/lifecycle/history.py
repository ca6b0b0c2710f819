"""What the audit log tells of the skills here, and whether what is kept of them is whole."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from apexbridge.audit import AuditLog, Record
from apexbridge.errors import AuditBrokenError
from apexbridge.lifecycle.kept import VERSIONS
from apexbridge.lifecycle.leftovers import Tally, is_busy
from apexbridge.lifecycle.store import TRASH, SkillStore
from apexbridge.skills import tree
from apexbridge.skills.model import Fingerprint, Problem, Skill

AUDIT = "audit.jsonl"
_CHANGES = frozenset({"install", "edit", "update", "rollback", "undo", "uninstall"})
_ALL = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What was recorded, held against what lies there."""

    tally: Tally
    known: frozenset[str]
    """Names that were ever installed here."""
    gone: frozenset[str]
    """Names that were taken away and did not come back."""


def read_history(data: Path, there: Mapping[str, Skill]) -> History:
    """Follow the chain, and compare the last change of each name with what lies there."""
    tally = Tally()
    log = AuditLog(data / AUDIT)
    try:
        tally.looked_at += log.verify()
    except AuditBrokenError as error:
        tally.tell(error.code, AUDIT, path=str(data / AUDIT), line=str(error.details["line"]))
    last = _last_changes(log)
    whole = _whole(data / "skills")
    trashed = frozenset(whole.values())
    for name in sorted(last.keys() | there.keys()):
        _compare(tally, name, last.get(name), there.get(name))
    if not is_busy(data):  # what is half done now will be whole
        _trash(tally, data / "skills" / TRASH, whole)
        for place, name in _kept(data / "skills" / VERSIONS):
            _version(tally, place, name)
    removed = {name for name, record in last.items() if record.action == "uninstall"}
    return History(
        tally=tally,
        known=frozenset(last) | trashed,
        gone=(trashed | removed) - there.keys(),
    )


def _last_changes(log: AuditLog) -> dict[str, Record]:
    changes = (record for record in log.latest(_ALL) if record.action in _CHANGES)
    return {record.facts["skill"]: record for record in changes if "skill" in record.facts}


def _compare(tally: Tally, name: str, record: Record | None, skill: Skill | None) -> None:
    """What differs was done by hand, or was recorded and then did not happen: told, not blamed."""
    if record is None:
        tally.remark("fsck_by_hand_new", name, name=name)
    elif skill is None:
        if record.action != "uninstall":
            tally.remark("fsck_by_hand_gone", name, name=name, action=record.action)
    elif record.action == "uninstall":
        tally.remark("fsck_there_after_all", name, name=name)
    elif _differ(record.facts.get("sha256", ""), skill):
        tally.remark("fsck_by_hand_edited", name, name=name, at=record.at)


def _differ(recorded: str, skill: Skill) -> bool:
    """Not every record tells a hash, and not every tree has one."""
    return (
        bool(recorded) and skill.fingerprint is not None and (skill.fingerprint.sha256 != recorded)
    )


def _whole(skills: Path) -> dict[str, str]:
    """What can be brought back, by the place where it lies."""
    try:
        return {entry.operation: entry.name for entry in SkillStore(skills).trashed()}
    except OSError:  # not even a folder
        return {}


def _trash(tally: Tally, trash: Path, whole: Mapping[str, str]) -> None:
    for place in _folders(trash):
        tally.looked_at += 1
        where = f"{TRASH}/{place.name}"
        if place.name not in whole:
            tally.tell("fsck_trash_unfinished", where, path=where)
            continue
        mark = tree.fingerprint(place / whole[place.name])
        if isinstance(mark, Problem):
            name = whole[place.name]
            tally.tell("fsck_trash_unreadable", where, name=name, detail=mark.message)


def _kept(versions: Path) -> Iterator[tuple[Path, str]]:
    for skill in _folders(versions):
        for place in _folders(skill):
            yield place, skill.name


def _version(tally: Tally, place: Path, name: str) -> None:
    """A kept version lies in a place that is called by its hash."""
    tally.looked_at += 1
    mark = tree.fingerprint(place / name)
    where = f"{VERSIONS}/{name}/{place.name}"
    if not isinstance(mark, Fingerprint):
        tally.tell("fsck_version_broken", where, name=name, detail=mark.message)
    elif mark.sha256 != place.name:
        detail = f"sha256 {mark.sha256[:12]}"
        tally.tell("fsck_version_broken", where, name=name, detail=detail)


def _folders(place: Path) -> list[Path]:
    try:
        return sorted(path for path in place.iterdir() if path.is_dir())
    except OSError:
        return []
