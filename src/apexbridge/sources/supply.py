"""The bytes of remote files: fetched, checked, remembered; where that fails, the last good ones."""

from dataclasses import dataclass, field

import anyio.to_thread

from apexbridge.errors import SourceError
from apexbridge.skills.model import Problem
from apexbridge.sources.addresses import shown
from apexbridge.sources.buckets import is_object, read_object
from apexbridge.sources.discovery import Listing, Wanted, read_index
from apexbridge.sources.fetching import SYSTEM_WEB, Fetched, FetchLimits, Web, fetch, retrieve
from apexbridge.sources.pins import Pins, sha256_of

_DISTRUSTED = frozenset({"remote_changed", "remote_digest"})
"""Faults that mean more than that an address is down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Supplied:
    """Bytes that may be used, if there are any, and what is to be said of them."""

    data: bytes | None = field(default=None, repr=False)
    problems: tuple[Problem, ...] = ()


class Supply:
    """Files from the network, under these limits, held to what they were at first."""

    def __init__(self, limits: FetchLimits, pins: Pins, web: Web = SYSTEM_WEB) -> None:
        self.limits = limits
        self.pins = pins
        self._web = web

    async def file(self, wanted: Wanted) -> Supplied:
        """Get a file. No byte is given that does not fit its digest or its pin.

        Raises:
            SourceError: If what was remembered cannot be read.
            StorageError: If it cannot be written.
        """
        try:
            data = await self._obtain(wanted)
            change = await anyio.to_thread.run_sync(self.pins.take, wanted.url, data)
        except SourceError as error:
            return await self.last_good(wanted, _problem(wanted.url, error))
        if change is None:
            return Supplied(data=data)
        details = {"url": shown(wanted.url), "old": change.old, "new": change.new}
        changed = Problem(code="remote_changed", where=shown(wanted.url), details=details)
        return await self.last_good(wanted, changed)

    async def last_good(self, wanted: Wanted, fault: Problem) -> Supplied:
        """The bytes of an earlier time, with what is wrong now."""
        data = await anyio.to_thread.run_sync(self.pins.last_good, wanted.url)
        if data is None or fault.code in _DISTRUSTED:
            return Supplied(data=data, problems=(fault,))
        return Supplied(data=data, problems=(_stale(wanted.url, fault.message),))

    async def listing(self, url: str) -> Listing:
        """Get an index; where that fails, what it said last.

        Raises:
            SourceError: If it never said anything.
            StorageError: If it cannot be remembered.
        """
        try:
            found = await retrieve(url, self.limits, expected="json", web=self._web)
            listing = _listed(found)
        except SourceError as error:
            said = await anyio.to_thread.run_sync(self.pins.latest, url)
            if said is None:
                raise
            # Where it was found is forgotten: from an old list nothing private is asked.
            old = read_index(said, url, may_be_private=False)
            problems = (_stale(url, error.message), *old.problems)
            return Listing(wanted=old.wanted, problems=problems)
        await anyio.to_thread.run_sync(self.pins.keep_latest, url, found.data)
        return listing

    async def _obtain(self, wanted: Wanted) -> bytes:
        if wanted.sha256:
            held = await anyio.to_thread.run_sync(self.pins.bytes_of, wanted.sha256)
            if held is not None:
                return held
        if is_object(wanted.url) and not wanted.is_listed:
            return await read_object(wanted.url, self.limits)
        limits = self.limits.after(is_private=wanted.may_be_private)
        data = await fetch(wanted.url, limits, web=self._web)
        if wanted.sha256 in {"", sha256_of(data)}:
            return data
        details = {"expected": wanted.sha256, "found": sha256_of(data)}
        raise SourceError(code="remote_digest", url=shown(wanted.url), **details)


def _listed(found: Fetched) -> Listing:
    return read_index(found.data, found.url, may_be_private=found.is_private)


def _problem(url: str, error: SourceError) -> Problem:
    return Problem(code=error.code, where=shown(url), details=error.details)


def _stale(url: str, detail: str) -> Problem:
    details = {"url": shown(url), "detail": detail}
    return Problem(code="source_stale", where=shown(url), severity="warning", details=details)
