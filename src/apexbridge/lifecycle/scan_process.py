"""Scans in a process of their own: they end with the client that waits, and slow no one else down.

A thread cannot be stopped, and the regular expressions of a scan keep the interpreter from the
event loop. Small skills are scanned in a thread all the same: starting a process takes longer.
"""

import json
import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread

from apexbridge.lifecycle.scan_folder import scan_folder
from apexbridge.sandbox.backends import UnsandboxedBackend
from apexbridge.sandbox.base import MIB, ExecRequest, SandboxLimits
from apexbridge.scanner.pattern_matcher import PARTIAL_SCAN
from apexbridge.scanner.report import Finding, Report
from apexbridge.scanner.scan_input import SKILL_MD
from apexbridge.skills.model import Fingerprint

log = logging.getLogger(__name__)

SMALL_BYTES = 128 * 1024
SMALL_FILES = 100
_NICE = 10
_LIMITS = SandboxLimits(
    wall_seconds=300, cpu_seconds=60, output_bytes=64 * MIB, memory_bytes=2048 * MIB
)
"""Far above what the scan's own budget allows: only a fault in a rule reaches them."""
_MODULE = "apexbridge.lifecycle.scan_process"


class FolderScanner:
    """Scans folders, in at most half of the processor cores at a time."""

    def __init__(self) -> None:
        self._limiter = anyio.CapacityLimiter(max(1, (os.cpu_count() or 1) // 2))

    async def scan(
        self,
        fingerprint: Fingerprint | None,
        root: Path,
        known: Mapping[str, str],
        origin: str = "",
    ) -> Report:
        """Scan a folder; if this is cancelled, the scan ends."""
        if fingerprint is not None and _is_small(fingerprint):
            return await to_thread.run_sync(scan_folder, root, known, origin)
        async with self._limiter:
            return await _scan_in_process(root, known, origin)


def _is_small(fingerprint: Fingerprint) -> bool:
    return fingerprint.size <= SMALL_BYTES and fingerprint.files <= SMALL_FILES


async def _scan_in_process(root: Path, known: Mapping[str, str], origin: str) -> Report:
    # -P: no module of the working folder, which may be a project with a skill in it.
    argv = (sys.executable, "-P", "-m", _MODULE)
    order = json.dumps({"root": str(root), "known": dict(known), "origin": origin})
    result = await UnsandboxedBackend().run(
        ExecRequest(
            argv=argv,
            cwd=root,
            env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=order.encode(),
            limits=_LIMITS,
        )
    )
    if result.outcome == "ok":
        return _from_json(json.loads(result.stdout))
    log.warning("The scan of %s ended: %s", root.name, result.error or result.outcome)
    # Not a level that installs without a question: what made the scan end may be the attack.
    ended = Finding(rule=PARTIAL_SCAN, level="block", path=SKILL_MD, excerpt="all files")
    return Report(findings=(ended,), partial=True, files=0, bytes=0)


def _from_json(value: dict[str, Any]) -> Report:
    findings = tuple(Finding(**finding) for finding in value.pop("findings"))
    return Report(findings=findings, **value)


def main() -> None:
    """Scan the folder that standard input names, and write the report to standard output."""
    os.nice(_NICE)
    order: dict[str, Any] = json.load(sys.stdin)
    report = scan_folder(Path(order["root"]), order["known"], order["origin"])
    json.dump(asdict(report), sys.stdout)


if __name__ == "__main__":
    main()
