"""What vetting found in each state of a skill, remembered by the hash of its files."""

import logging
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from apexbridge.errors import StorageError
from apexbridge.paths import as_storage, replace_bytes
from apexbridge.vetting.report import Report
from apexbridge.vetting.rulebook import LEVELS, Level

log = logging.getLogger(__name__)


class Verdict(BaseModel):
    """How many findings of each level there were, and whether everything could be looked at."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    counts: dict[Level, int]
    partial: bool

    @classmethod
    def of(cls, report: Report) -> "Verdict":
        """What is remembered of a report."""
        levels = [finding.level for finding in report.findings]
        counts = {level: count for level in LEVELS if (count := levels.count(level))}
        return cls.model_validate({"counts": counts, "partial": report.partial})


class Verdicts:
    """A folder with one small file a state. Nothing hangs on it: what is lost is found again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, sha256: str) -> Verdict | None:
        """What was found in a state; None if nobody looked, or it cannot be read."""
        try:
            return Verdict.model_validate_json((self._folder / f"{sha256}.json").read_bytes())
        except (OSError, ValidationError):
            return None

    def put(self, sha256: str, report: Report) -> None:
        """Remember what was found in a state; a disk that refuses is only a lack of memory."""
        try:
            with as_storage(self._folder):
                self._folder.mkdir(parents=True, exist_ok=True)
            data = Verdict.of(report).model_dump_json().encode()
            replace_bytes(self._folder / f"{sha256}.json", data)
        except StorageError as error:
            log.warning("What was found is not remembered: %s", error)
