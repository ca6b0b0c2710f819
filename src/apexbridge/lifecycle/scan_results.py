"""Vetting of a skill that lies in a folder."""

import logging
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from apexbridge.errors import StorageError
from apexbridge.paths import replace_bytes, storage_errors
from apexbridge.scanner.report import Report
from apexbridge.scanner.rules import RISK_LEVELS, RiskLevel
from apexbridge.scanner.scan import scan_skill
from apexbridge.scanner.scan_input import DEFAULT_LIMITS, ScannedFile, ScanTarget
from apexbridge.skills import tree


def scan_folder(root: Path, others: Mapping[str, str] | None = None) -> Report:
    """Look at every file of a skill; nothing is run, and links are not followed.

    `others` are names and descriptions of skills that are known, for those that imitate them.
    """
    files, room, is_partial = list[ScannedFile](), DEFAULT_LIMITS.total_bytes, False
    try:
        for entry in tree.entries(root):
            if entry.kind != "file":
                is_partial = is_partial or entry.kind != "folder"
                continue
            if len(files) >= DEFAULT_LIMITS.files or room <= 0:
                is_partial = True
                break
            data = _read_limited(root / entry.path, min(room, DEFAULT_LIMITS.file_bytes + 1))
            room -= len(data)
            files.append(ScannedFile(path=entry.path, data=data, executable=entry.executable))
    except OSError:
        is_partial = True
    known = {name: text for name, text in (others or {}).items() if name != root.name}
    return scan_skill(
        ScanTarget(folder=root.name, files=tuple(files), known_skills=known, is_partial=is_partial)
    )


def _read_limited(path: Path, limit: int) -> bytes:
    with path.open("rb") as file:
        return file.read(limit)


log = logging.getLogger(__name__)


class ScanSummary(BaseModel):
    """How many findings of each level there were, and whether everything could be looked at."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    counts: dict[RiskLevel, int]
    partial: bool

    @classmethod
    def of(cls, report: Report) -> "ScanSummary":
        """What is remembered of a report."""
        levels = [finding.level for finding in report.findings]
        counts = {level: count for level in RISK_LEVELS if (count := levels.count(level))}
        return cls.model_validate({"counts": counts, "partial": report.partial})


class ScanResultStore:
    """A folder with one small file a state. Nothing hangs on it: what is lost is found again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, sha256: str) -> ScanSummary | None:
        """What was found in a state; None if nobody looked, or it cannot be read."""
        try:
            return ScanSummary.model_validate_json((self._folder / f"{sha256}.json").read_bytes())
        except (OSError, ValidationError):
            return None

    def put(self, sha256: str, report: Report) -> None:
        """Remember what was found in a state; a disk that refuses is only a lack of memory."""
        try:
            with storage_errors(self._folder):
                self._folder.mkdir(parents=True, exist_ok=True)
            data = ScanSummary.of(report).model_dump_json().encode()
            replace_bytes(self._folder / f"{sha256}.json", data)
        except StorageError as error:
            log.warning("What was found is not remembered: %s", error)
