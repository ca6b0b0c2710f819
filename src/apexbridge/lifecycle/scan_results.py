"""Security scan of a staged skill, with results stored by content hash."""

import logging
from pathlib import Path
from typing import Literal

from anyio import to_thread
from pydantic import BaseModel, ConfigDict, ValidationError

from apexbridge.catalog.catalog import Catalog
from apexbridge.errors import SkillDangerousError, StorageError
from apexbridge.lifecycle.scan_process import FolderScanner
from apexbridge.paths import replace_bytes, storage_errors
from apexbridge.scanner.report import Report
from apexbridge.scanner.rules import RISK_LEVELS, RiskLevel
from apexbridge.skills.model import Skill

log = logging.getLogger(__name__)

BlockLevel = RiskLevel | Literal["policy"] | None
"""Minimum level of a finding that refuses a skill: a level, the configured one, or none at all."""


class ScanSummary(BaseModel):
    """Number of findings by risk level, and whether part of the skill was not scanned."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    counts: dict[RiskLevel, int]
    partial: bool

    @classmethod
    def from_report(cls, report: Report) -> "ScanSummary":
        """Count the findings of a report."""
        levels = [finding.level for finding in report.findings]
        counts = {level: count for level in RISK_LEVELS if (count := levels.count(level))}
        return cls.model_validate({"counts": counts, "partial": report.partial})


class ScanResultStore:
    """Scan summaries on disk, one JSON file for each content hash; derived data, safe to lose."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, sha256: str) -> ScanSummary | None:
        """Return the summary for a content hash; None if it was never scanned or is unreadable."""
        try:
            return ScanSummary.model_validate_json((self.folder / f"{sha256}.json").read_bytes())
        except (OSError, ValidationError):
            return None

    def put(self, sha256: str, report: Report) -> None:
        """Store the summary of a report; a storage error is logged, since a rescan replaces it."""
        try:
            with storage_errors(self.folder):
                self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            data = ScanSummary.from_report(report).model_dump_json().encode()
            replace_bytes(self.folder / f"{sha256}.json", data, new_mode=0o600)
        except StorageError as error:
            log.warning("Scan result not stored: %s", error)


class ScanGate:
    """Scan a staged skill, and refuse it if a finding reaches the blocking level."""

    def __init__(self, results: ScanResultStore, catalog: Catalog, default: RiskLevel) -> None:
        self.results = results
        self._catalog = catalog
        self._default: RiskLevel = default
        self._scanner = FolderScanner()

    async def check(
        self, skill: Skill, root: Path, blocks_at: BlockLevel, origin: str = ""
    ) -> Report:
        """Scan a skill folder and store the result; `origin` is where it was fetched from.

        Raises:
            SkillDangerousError: If a finding is at `blocks_at` or above.
        """
        report = await self.scan(skill, root, origin)
        self._refuse_dangerous(skill, report, self._default if blocks_at == "policy" else blocks_at)
        if skill.fingerprint is not None:
            await to_thread.run_sync(self.results.put, skill.fingerprint.sha256, report)
        return report

    async def scan(self, skill: Skill, root: Path, origin: str = "") -> Report:
        """Scan a skill folder, and store nothing."""
        return await self._scanner.scan(skill.fingerprint, root, self.known_skills(), origin)

    def known_skills(self) -> dict[str, str]:
        """Return name and summary of every skill in the catalog, to compare look-alikes with."""
        return {skill.name: skill.summary for skill in self._catalog.snapshot.skills}

    @staticmethod
    def _refuse_dangerous(skill: Skill, report: Report, limit: RiskLevel | None) -> None:
        worst = report.worst()
        if limit is None or worst is None or RISK_LEVELS.index(worst) < RISK_LEVELS.index(limit):
            return
        rules = ", ".join(dict.fromkeys(f.rule for f in report.findings if f.level == worst))
        raise SkillDangerousError(report, name=skill.name, level=worst, rules=rules)
