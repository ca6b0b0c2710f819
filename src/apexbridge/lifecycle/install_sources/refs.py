"""Refs of a git server: parse what `git ls-remote` prints, or a server advertises, and pick one."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from apexbridge.errors import SourceError
from apexbridge.lifecycle.install_sources.address import Address, is_commit, split_ref

_PEELED = "^{}"
_LINE = re.compile(r"([0-9a-f]{40}|[0-9a-f]{64})[ \t]([^\x00-\x20\x7f]+)")
_SERVICE = b"# service=git-upload-pack"
_MAX_NAMED = 5


@dataclass(frozen=True, slots=True)
class Refs:
    """Commits by ref; an annotated tag is the commit that it points to."""

    commits: Mapping[str, str]
    """By full name: `HEAD`, `refs/heads/main`, `refs/tags/v1`."""

    def names(self) -> frozenset[str]:
        """Names that a person may write: branches, tags and full names."""
        short = (name.split("/", 2)[2] for name in self.commits if name.startswith(_SHORT))
        return frozenset((*self.commits, *short))

    def full_name(self, ref: str) -> str:
        """Return the full name of a ref, a branch before a tag; empty if there is none."""
        for name in (f"refs/heads/{ref}", f"refs/tags/{ref}", ref):
            if name in self.commits:
                return name
        return ""


_SHORT = ("refs/heads/", "refs/tags/")


def parse_ls_remote(text: str) -> Refs:
    """Parse the lines of `git ls-remote`: commit, tab, name."""
    return _refs(text.splitlines())


def parse_advertisement(data: bytes, url: str) -> Refs:
    """Parse the ref advertisement of a smart HTTP server (pkt-line format, protocol version 0).

    Raises:
        SourceError: `remote_unusable` if it is not one.
    """
    lines = list(_packets(data, url))
    if not lines or lines[0].rstrip() != _SERVICE:
        raise SourceError("it is not a git server", code="remote_unusable", url=url)
    # The first ref has the server's capabilities behind a NUL.
    text = (line.partition(b"\0")[0].decode("utf-8", "replace").rstrip("\n") for line in lines[1:])
    return _refs(text)


def _packets(data: bytes, url: str) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        try:
            size = int(data[at : at + 4], 16)
        except ValueError:
            size = -1
        if size in {0, 1, 2}:  # a flush, delimiter or end packet
            at += 4
            continue
        if size < 4 or at + size > len(data):
            raise SourceError("it is not a git server", code="remote_unusable", url=url)
        yield data[at + 4 : at + size]
        at += size


def _refs(lines: "Iterator[str] | list[str]") -> Refs:
    commits = dict[str, str]()
    for line in lines:
        found = _LINE.fullmatch(line)
        if found and not found[2].startswith("capabilities"):
            name = found[2].removesuffix(_PEELED)
            if name not in commits or found[2] != name:
                commits[name] = found[1]
    return Refs(commits)


def resolve(address: Address, refs: Refs) -> Address:
    """Separate ref and path, and add the commit; a ref that is none may be a skill's name.

    People write `owner/repo@skill` for `npx skills`: it is understood where no ref has the name.

    Raises:
        SourceError: `source_ref_unknown`, with the closest that there are.
    """
    if not refs.commits:
        detail = "it is empty, or no git repository; perhaps a login page answers for it"
        raise SourceError(detail, code="remote_unusable", url=str(address))
    found = split_ref(address, refs.names())
    if found is None:
        if not address.ref_may_be_skill or "HEAD" not in refs.commits:
            raise _unknown_ref(address, refs)
        return replace(address, ref="", skill=address.ref, revision=refs.commits["HEAD"])
    name = refs.full_name(found.ref or "HEAD")
    if name:
        return replace(found, revision=refs.commits[name])
    if is_commit(found.ref):
        return replace(found, revision=found.ref)
    raise _unknown_ref(address, refs)


def _unknown_ref(address: Address, refs: Refs) -> SourceError:
    known = sorted(name.split("/", 2)[2] for name in refs.commits if name.startswith(_SHORT))
    near = ", ".join(known[:_MAX_NAMED])
    return SourceError(code="source_ref_unknown", source=address.source, ref=address.ref, near=near)
