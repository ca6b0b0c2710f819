"""Archives with any number of skills: recognise their format, unpack them, find their root."""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from apexbridge.errors import ArchiveError
from apexbridge.lifecycle.tar import extract_tar, is_gzip
from apexbridge.lifecycle.zip.archive import check_zip
from apexbridge.lifecycle.zip.limits import ArchiveLimits
from apexbridge.lifecycle.zip.tree import extract_zip_tree
from apexbridge.paths import storage_errors
from apexbridge.skills.document import SKILL_MD

Dropped = Mapping[PurePosixPath, ArchiveError]

_TAR_HEADER = 512
_TAR_MAGIC = (b"ustar", 257)


def is_tar(path: Path) -> bool:
    """Return whether a file is a tar, or something compressed with gzip."""
    if is_gzip(path):
        return True
    magic, at = _TAR_MAGIC
    with path.open("rb") as file:
        return file.read(_TAR_HEADER)[at : at + len(magic)] == magic


def is_single_skill(archive: Path, limits: ArchiveLimits) -> bool:
    """Return whether a zip is to be read as one skill: a folder with SKILL.md, or none at all.

    Of what has no SKILL.md the installation itself says best what is wrong.

    Raises:
        ArchiveError: If it is ambiguous, or a path in it is unsafe.
    """
    names = check_zip(archive, limits)
    skills = [name for name in names if name.rpartition("/")[2].lower() == SKILL_MD.lower()]
    depths = {name.count("/") for name in skills}
    is_one = len(skills) == 1 or len({name.partition("/")[0] for name in names}) == 1
    return not skills or 0 in depths or (1 in depths and is_one)


def unpack_repository(
    archive: Path, into: Path, limits: ArchiveLimits, *, has_root: bool
) -> tuple[Path, Dropped]:
    """Unpack the tar of a repository; with `has_root` it is in one folder, which is left out.

    Raises:
        ArchiveError: If it is malformed, unsafe or too large.
    """
    with storage_errors(into):
        into.mkdir(mode=0o700)
    dropped = extract_tar(archive, into, limits, is_repository=True).dropped
    root = _single_root(into) if has_root else into
    names = root.relative_to(into).parts
    inside = (path for path in dropped if path.parts[: len(names)] == names)
    return root, {PurePosixPath(*path.parts[len(names) :]): dropped[path] for path in inside}


def unpack_archive(archive: Path, into: Path, limits: ArchiveLimits) -> Path:
    """Unpack a zip or tar of skills, and return the folder that has them.

    Raises:
        ArchiveError: If it is malformed, unsafe or too large; links are refused.
    """
    with storage_errors(into):
        into.mkdir(mode=0o700)
    if is_tar(archive):
        extract_tar(archive, into, limits)
    else:
        extract_zip_tree(archive, into, limits)
    return _single_root(into)


def _single_root(folder: Path) -> Path:
    """Return the only folder in a folder, or the folder itself if there is more in it."""
    with storage_errors(folder):
        found = list(folder.iterdir())
    return (
        found[0] if len(found) == 1 and found[0].is_dir() and not found[0].is_symlink() else folder
    )
