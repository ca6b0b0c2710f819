"""Security scan of a folder on disk."""

from collections.abc import Mapping
from pathlib import Path

from apexbridge.regular_files import read_regular
from apexbridge.scanner.report import Report
from apexbridge.scanner.scan import scan_skill
from apexbridge.scanner.scan_input import DEFAULT_LIMITS, ScannedFile, ScanTarget
from apexbridge.skills import tree


def scan_folder(root: Path, others: Mapping[str, str] | None = None, origin: str = "") -> Report:
    """Scan every regular file of a skill; nothing is executed and symlinks are not followed.

    `others` maps names of known skills to their descriptions, to detect typosquatting. `origin` is
    the address that the files were fetched from, with its ref: `github:owner/repo@v1.2`.
    """
    files, remaining, is_partial = list[ScannedFile](), DEFAULT_LIMITS.total_bytes, False
    try:
        for entry in tree.entries(root):
            if entry.kind != "file":
                is_partial = is_partial or entry.kind != "folder"
                continue
            if len(files) >= DEFAULT_LIMITS.files or remaining <= 0:
                is_partial = True
                break
            # One byte over the limit shows the scanner that the file was truncated.
            data = read_regular(root / entry.path, min(remaining, DEFAULT_LIMITS.file_bytes + 1))
            remaining -= len(data)
            files.append(ScannedFile(path=entry.path, data=data, executable=entry.executable))
    except OSError:
        is_partial = True
    known = {name: text for name, text in (others or {}).items() if name != root.name}
    return scan_skill(
        ScanTarget(
            folder=root.name,
            files=tuple(files),
            known_skills=known,
            is_partial=is_partial,
            origin=origin,
        )
    )
