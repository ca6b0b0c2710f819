"""Vetting of a skill that lies in a folder."""

from collections.abc import Mapping
from pathlib import Path

from apexbridge.skills import tree
from apexbridge.vetting.examine import examine
from apexbridge.vetting.material import DEFAULT_LIMITS, File, Material
from apexbridge.vetting.report import Report


def vet(root: Path, others: Mapping[str, str] | None = None) -> Report:
    """Look at every file of a skill; nothing is run, and links are not followed.

    `others` are names and descriptions of skills that are known, for those that imitate them.
    """
    files, room, is_partial = list[File](), DEFAULT_LIMITS.total_bytes, False
    try:
        for entry in tree.entries(root):
            if entry.kind != "file":
                is_partial = is_partial or entry.kind != "folder"
                continue
            if len(files) >= DEFAULT_LIMITS.files or room <= 0:
                is_partial = True
                break
            data = _read(root / entry.path, min(room, DEFAULT_LIMITS.file_bytes + 1))
            room -= len(data)
            files.append(File(path=entry.path, data=data, executable=entry.executable))
    except OSError:
        is_partial = True
    known = {name: text for name, text in (others or {}).items() if name != root.name}
    return examine(
        Material(folder=root.name, files=tuple(files), others=known, is_partial=is_partial)
    )


def _read(path: Path, limit: int) -> bytes:
    with path.open("rb") as file:
        return file.read(limit)
