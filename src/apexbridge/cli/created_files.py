"""Save files that scripts created: without overwriting, and without path traversal."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from apexbridge.events import FilesCreated
from apexbridge.paths import create_bytes, safe_join


def save_files(files: Mapping[str, bytes], folder: Path) -> list[Path]:
    """Write files into a folder, and return their paths.

    Raises:
        StorageError: `path_exists` if one is there already; `storage_failed`, `path_unsafe`.
    """
    saved = list[Path]()
    for name, data in files.items():
        folder.mkdir(parents=True, exist_ok=True)
        target = safe_join(folder, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        create_bytes(target, data)
        saved.append(folder / name)
    return saved


def read_created(events: Iterable[FilesCreated]) -> dict[str, bytes]:
    """Read the files of several scripts; of equal paths the last one counts."""
    return {name: Path(event.folder, name).read_bytes() for event in events for name in event.files}
