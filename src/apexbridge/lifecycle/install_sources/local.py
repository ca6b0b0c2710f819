"""Folders and archives on this machine, and archives that are downloaded by https."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

import anyio.to_thread

from apexbridge.errors import SourceError, StorageError
from apexbridge.lifecycle.install_sources.address import ARCHIVE, GIT, LOCAL, Address
from apexbridge.lifecycle.install_sources.archives import is_single_skill, is_tar, unpack_archive
from apexbridge.lifecycle.install_sources.base import FetchedTree, FetchPolicy
from apexbridge.lifecycle.signature_check import copy_archive, find_signature
from apexbridge.lifecycle.zip.limits import ArchiveLimits
from apexbridge.signatures import MAX_BYTES, SUFFIX
from apexbridge.sources.remote.http_client import download, fetch

_SHA256 = "sha256:"
_SIGNATURE_START = b"untrusted comment:"


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
        return _open_archive(address, path, into, self._policy.archive)

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
        await self._fetch_signature(address.location, archive)
        resolved, limits = replace(address, revision=found), self._policy.archive
        return await anyio.to_thread.run_sync(_open_archive, resolved, archive, into, limits)

    async def _fetch_signature(self, url: str, archive: Path) -> None:
        """Download the signature that is beside an archive, if there is one.

        What answers instead of a missing file (a page, a login, an error) is no signature: a server
        that wants to hide one can do so anyway. `install.require_signature` refuses the archive.
        """
        parts = urlsplit(url)
        beside = parts._replace(path=f"{parts.path}{SUFFIX}").geturl()
        limits = replace(self._policy.fetch, max_bytes=MAX_BYTES)
        with suppress(SourceError):
            data = await fetch(beside, limits, transport=self._policy.transport)
            if data.startswith(_SIGNATURE_START):
                target = archive.with_name(archive.name + SUFFIX)
                await anyio.to_thread.run_sync(target.write_bytes, data)


def _open_archive(address: Address, path: Path, into: Path, limits: ArchiveLimits) -> FetchedTree:
    """Unpack an archive, unless it is one skill in a zip, which is verified and read as it is."""
    if path.is_dir() or (not is_tar(path) and is_single_skill(path, limits)):
        return FetchedTree(address=address, path=path)
    signature = find_signature(path)
    # What is verified must be what is unpacked (TOCTOU).
    archive = copy_archive(path, into, limits) if signature else None
    tree = unpack_archive(archive or path, into / "tree", limits)
    return FetchedTree(address=address, path=tree, archive=archive, signature=signature)


def _is_bare_repository(path: Path) -> bool:
    return path.is_dir() and all(Path(path / n).exists() for n in ("HEAD", "objects", "refs"))
