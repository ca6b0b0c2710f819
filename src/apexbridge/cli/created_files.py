"""Save files that scripts created: without overwriting, and without path traversal."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from apexbridge.events import FilesCreated
from apexbridge.paths import create_bytes, join_posix


def save_files(files: Mapping[str, bytes], folder: Path) -> list[Path]:
    """Write files into a folder, and return their paths.

    Raises:
        StorageError: `path_exists` if one is there already; `storage_failed`, `path_unsafe`.
    """
    saved = list[Path]()
    for name, data in files.items():
        folder.mkdir(parents=True, exist_ok=True)
        target = join_posix(folder, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        create_bytes(target, data)
        saved.append(folder / name)
    return saved


def read_created(events: Iterable[FilesCreated]) -> dict[str, bytes]:
    """Read the files of several scripts; of equal paths the last one counts."""
    # Not `event.files`: a name there is printable, and may differ from that of the file.
    folders = [Path(event.folder) for event in events if event.files]
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
