"""The protocol of an install source, and the registry that finds the one for an address."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Protocol

from apexbridge.errors import ArchiveError, SourceError
from apexbridge.lifecycle.install_sources.address import LOCAL, Address, parse_address
from apexbridge.lifecycle.zip.limits import ArchiveLimits
from apexbridge.skills.model import Problem
from apexbridge.sources.remote.http_client import DEFAULT_TRANSPORT, FetchLimits, Transport


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPolicy:
    """Limits of a fetch: time, size, private networks, and what may be in an archive."""

    fetch: FetchLimits
    """Of one download."""
    archive: ArchiveLimits
    """Of a repository or an archive with several skills."""
    transport: Transport = DEFAULT_TRANSPORT


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedTree:
    """What an address leads to, on this disk."""

    address: Address
    """The address with its revision."""
    path: Path
    """A folder, or a zip with one skill that is read as it is."""
    dropped: Mapping[PurePosixPath, ArchiveError] = field(
        default_factory=dict[PurePosixPath, ArchiveError]
    )
    """Entries that were left out, by path below the folder: a skill that has one is refused."""
    problems: tuple[Problem, ...] = ()
    archive: Path | None = None
    """The signed archive that the folder was unpacked from."""
    signature: str = ""
    """Its detached signature; that of an archive with one skill is the file beside it."""


class InstallSource(Protocol):
    """A kind of place that skills are installed from."""

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of addresses that it fetches."""
        ...

    async def parse(self, text: str) -> Address | None:
        """Recognise an address that only this source knows; None for all others."""
        ...

    async def resolve(self, address: Address) -> Address:
        """Separate ref and path and find the newest revision, if that needs no download.

        An address that has a revision stays as it is.

        Raises:
            SourceError: If the source cannot be reached, or has no such ref.
        """
        ...

    async def fetch(self, address: Address, into: Path) -> FetchedTree:
        """Fetch a resolved address below an empty folder, which the caller removes.

        Raises:
            SourceError: If it cannot be reached, or has not that revision.
            ArchiveError: If what comes is unsafe or too large.
        """
        ...


class InstallSources:
    """Registry of install sources: the first that knows an address has it."""

    def __init__(self, sources: Sequence[InstallSource]) -> None:
        self._sources = tuple(sources)

    async def parse(self, text: str, *, is_local_known: bool = True) -> Address:
        """Parse an address of any kind; an existing path is one, whatever it looks like.

        Without `is_local_known` no path is looked for.

        Raises:
            SourceError: `source_refused` or `source_address_invalid`.
        """
        for source in self._sources:
            if LOCAL in source.kinds and not is_local_known:
                continue
            found = await source.parse(text)
            if found is not None:
                return found
        return parse_address(text)

    async def resolve(self, address: Address) -> Address:
        """Find the newest revision of an address, as its source does."""
        return await self._of(address).resolve(address)

    async def fetch(self, address: Address, into: Path) -> FetchedTree:
        """Fetch a resolved address, as its source does."""
        return await self._of(address).fetch(address, into)

    def _of(self, address: Address) -> InstallSource:
        for source in self._sources:
            if address.kind in source.kinds:
                return source
        detail = f"no source fetches {address.kind}"
        raise SourceError(detail, code="source_address_invalid", address=str(address))
