"""Folders and archives on this machine, and archives that are downloaded by https."""

from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

import anyio.to_thread

from apexbridge.errors import SourceError, StorageError
from apexbridge.lifecycle.install_sources.address import ARCHIVE, GIT, LOCAL, Address
from apexbridge.lifecycle.install_sources.archives import is_single_skill, is_tar, unpack_archive
from apexbridge.lifecycle.install_sources.base import FetchedTree, FetchPolicy
from apexbridge.lifecycle.zip.limits import ArchiveLimits
from apexbridge.sources.remote.http_client import download

_SHA256 = "sha256:"


class LocalSource:
    """A folder as it is, or an archive, on this machine."""

    kinds = frozenset({LOCAL})

    def __init__(self, policy: FetchPolicy, home: Path, base: Path) -> None:
        """Store the limits, and the folders that `~` and a relative path start at."""
        self._policy = policy
        self._home = home
        self._base = base

    async def parse(self, text: str) -> Address | None:
        """Recognise an existing path, whatever it looks like; a bare repository is read by git."""
        return await anyio.to_thread.run_sync(self._parse, text)

    def _parse(self, text: str) -> Address | None:
        try:
            path = self._place(text)
            if not text or "://" in text or not path.exists():
                return None
            if _is_bare_repository(path):
                return Address(kind=GIT, location=path.resolve().as_uri())
        except (OSError, ValueError, RuntimeError):  # too long for a path, or has NUL
            return None
        return Address(kind=LOCAL, location=str(path))

    async def resolve(self, address: Address) -> Address:
        """Keep the address: what is there is read when it is fetched."""
        return address

    async def fetch(self, address: Address, into: Path) -> FetchedTree:
        """Return the folder as it is; unpack an archive, unless it is one skill.

        Raises:
            StorageError: `path_missing`.
        """
        path = self._place(address.location)
        return await anyio.to_thread.run_sync(self._open, address, path, into)

    def _open(self, address: Address, path: Path, into: Path) -> FetchedTree:
        if not path.exists():
            raise StorageError(code="path_missing", path=path)
        return FetchedTree(address=address, path=_open_archive(path, into, self._policy.archive))

    def _place(self, text: str) -> Path:
        if text == "~" or text.startswith(("~/", "~\\")):
            return self._home / text[2:]
        return self._base / text


class ArchiveSource:
    """Zip and tar archives at a URL; the SHA-256 of the bytes is the revision."""

    kinds = frozenset({ARCHIVE})

    def __init__(self, policy: FetchPolicy) -> None:
        self._policy = policy

    async def parse(self, text: str) -> Address | None:
        """Leave it to `parse_address`."""
        return None

    async def resolve(self, address: Address) -> Address:
        """Keep the address: only the bytes tell whether they are others."""
        return address

    async def fetch(self, address: Address, into: Path) -> FetchedTree:
        """Download and unpack; other bytes than the revision says are refused.

        Raises:
            SourceError: `source_changed`, or as the HTTP client does.
        """
        # Named as at its source: a zip of one skill is called so in the audit log.
        name = PurePosixPath(unquote(urlsplit(address.location).path)).name
        archive = into / (
            name if name.isprintable() and len(name.encode()) < 200 else "archive.zip"
        )
        sha256 = await download(
            address.location, archive, self._policy.fetch, transport=self._policy.transport
        )
        found = f"{_SHA256}{sha256}"
        if address.revision not in {"", found}:
            raise SourceError(code="source_changed", source=str(address), name=name)
        limits = self._policy.archive
        path = await anyio.to_thread.run_sync(partial(_open_archive, archive, into, limits))
        return FetchedTree(address=replace(address, revision=found), path=path)


def _open_archive(path: Path, into: Path, limits: ArchiveLimits) -> Path:
    if path.is_dir() or (not is_tar(path) and is_single_skill(path, limits)):
        return path
    return unpack_archive(path, into / "tree", limits)


def _is_bare_repository(path: Path) -> bool:
    return path.is_dir() and all(Path(path / n).exists() for n in ("HEAD", "objects", "refs"))
