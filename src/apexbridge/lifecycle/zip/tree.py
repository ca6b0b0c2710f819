"""Zip archives with any layout, such as several skills: extracted whole, with all checks."""

import stat
from pathlib import Path, PurePosixPath

from apexbridge.lifecycle.zip.archive import atomic_extraction, read_entry
from apexbridge.lifecycle.zip.central_directory import read_entries
from apexbridge.lifecycle.zip.entry_paths import check_collisions, check_path_length
from apexbridge.lifecycle.zip.layout import LayoutEntry, read_entry_names
from apexbridge.lifecycle.zip.limits import ArchiveFile, ArchiveLimits, limit_exceeded
from apexbridge.lifecycle.zip.records import open_zip


def extract_zip_tree(archive: Path, into: Path, limits: ArchiveLimits) -> None:
    """Extract every file into an empty folder; all or nothing.

    Raises:
        ArchiveError: If it is malformed, unsafe or too large; symlinks are refused.
        StorageError: If the folder is not empty, or the disk refuses.
    """
    with open_zip(archive, limits) as source:
        items, _ = read_entry_names(read_entries(source, limits), limits)
        for item in items:
            check_path_length(item.path.parts, limits)
        check_collisions(item.path for item in items)
        files = [item for item in items if not item.path.is_folder]
        if len(files) > limits.files:
            raise limit_exceeded(f"more than {limits.files} files")
        with atomic_extraction(into) as target:
            for item in files:
                with target.new_file(_to_file(item)) as write:
                    for chunk in read_entry(source, item.entry):
                        write(chunk)


def _to_file(item: LayoutEntry) -> ArchiveFile:
    path, mode = PurePosixPath(*item.path.parts), item.entry.mode
    # No Unix mode: decide by folder, as for the archive of one skill.
    executable = bool(mode & stat.S_IXUSR) if mode else "scripts" in path.parts[:-1]
    return ArchiveFile(path=path, size=item.entry.size, executable=executable)
