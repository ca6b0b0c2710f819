"""GitHub, GitLab and Codeberg: archives of a commit over https, without git."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio.to_thread

from apexbridge.lifecycle.install_sources.address import FORGES, Address, Forge, checked_commit
from apexbridge.lifecycle.install_sources.archives import unpack_repository
from apexbridge.lifecycle.install_sources.base import FetchedTree, FetchPolicy
from apexbridge.lifecycle.install_sources.refs import parse_advertisement, resolve
from apexbridge.sources.remote.http_client import download, fetch

_MAX_REFS_BYTES = 64 * 1024 * 1024
"""Large repositories advertise a ref for every pull request."""


class ForgeSource:
    """Repositories of public code hosts."""

    def __init__(self, policy: FetchPolicy, forges: Iterable[Forge] = FORGES.values()) -> None:
        self._policy = policy
        self._forges: Mapping[str, Forge] = {forge.kind: forge for forge in forges}

    @property
    def kinds(self) -> frozenset[str]:
        """The names of the hosts."""
        return frozenset(self._forges)

    async def parse(self, text: str) -> Address | None:
        """Leave it to `parse_address`."""
        return None

    async def resolve(self, address: Address) -> Address:
        """Find the commit by the refs that the host's git server advertises.

        Not by the host's API, which allows only few requests without a key.
        """
        if address.revision:
            return address
        repository = self._forges[address.kind].repository_url(address.location)
        url = f"{repository}/info/refs?service=git-upload-pack"
        limits = replace(self._policy.fetch, max_bytes=_MAX_REFS_BYTES)
        data = await fetch(url, limits, expected="git-refs", transport=self._policy.transport)
        return resolve(address, await anyio.to_thread.run_sync(parse_advertisement, data, url))

    async def fetch(self, address: Address, into: Path) -> FetchedTree:
        """Download and unpack the archive of the commit."""
        forge = self._forges[address.kind]
        archive, tree = into / "archive", into / "tree"
        url = forge.archive_url(address.location, checked_commit(address))
        policy = self._policy
        await download(url, archive, policy.fetch, transport=policy.transport)
        unpack = partial(unpack_repository, archive, tree, policy.archive, has_root=True)
        path, dropped = await anyio.to_thread.run_sync(unpack)
        return FetchedTree(address=address, path=path, dropped=dropped)
