"""Skills as the skills extension tells of them: frontmatter, and every file with its digest."""

import hashlib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import anyio.to_thread

from apexbridge.catalog.catalog import Catalog
from apexbridge.errors import ApexBridgeError
from apexbridge.mcp_server.addresses import address_of
from apexbridge.skills import tree
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.manifest import Value
from apexbridge.skills.model import Origin, Problem, Skill
from apexbridge.skills.reader import MAX_DESCRIPTION, open_document
from apexbridge.sources.mcp_skills import MAX_BYTES, MAX_FILES

log = logging.getLogger(__name__)

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_LONGEST_NAME = 64
_LONGEST_COMPATIBILITY = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file of a skill."""

    path: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A skill's files, and its frontmatter if other programs can take it as it is."""

    files: Mapping[str, File]
    frontmatter: Mapping[str, Any] | None


class Entries:
    """Entries of skills, kept for as long as the skills stay as they are."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._kept: dict[str, tuple[tuple[str, str], Entry]] = {}

    async def of(self, skill: Skill) -> Entry:
        """A skill's entry; what cannot be read now has no files."""
        mark = (skill.provenance.source_id, skill.fingerprint.sha256 if skill.fingerprint else "")
        kept = self._kept.get(skill.name)
        if kept is not None and mark[1] and kept[0] == mark:
            return kept[1]
        try:
            entry = await self._make(skill)
        except (ApexBridgeError, OSError) as error:
            log.info("The files of %s cannot be served: %s", skill.name, error)
            return Entry(files={}, frontmatter=None)
        known = {known.name for known in self._catalog.skills}
        self._kept = {name: one for name, one in self._kept.items() if name in known}
        self._kept[skill.name] = (mark, entry)
        return entry

    async def read(self, skill: Skill, path: str) -> bytes:
        """A file's bytes, through the source that listed the skill.

        Raises:
            ApexBridgeError: If it cannot be read.
        """
        source = self._catalog.source_of(skill).source
        return (await source.resource(skill, PurePosixPath(path))).data

    async def _make(self, skill: Skill) -> Entry:
        paths, is_whole = await anyio.to_thread.run_sync(_paths, skill)
        files, head = dict[str, File](), b""
        for path in paths:
            data = await self.read(skill, path)
            digest = hashlib.sha256(data).hexdigest()
            files[path] = File(path=path, sha256=digest, size=len(data))
            head = data if path == SKILL_MD else head
        is_whole = is_whole and SKILL_MD in files
        return Entry(files=files, frontmatter=_frontmatter(skill, head) if is_whole else None)


def is_served(skill: Skill) -> bool:
    """Whether a skill's files are ours to serve: another MCP server's are that server's."""
    return skill.provenance.origin is not Origin.MCP


def as_wire(skill: Skill, entry: Entry) -> dict[str, Any]:
    """The entry as the extension writes it."""
    return {
        "uri": address_of(skill, SKILL_MD),
        "frontmatter": entry.frontmatter,
        "resources": [
            {
                "uri": address_of(skill, file.path),
                "digest": f"sha256:{file.sha256}",
                "size": file.size,
            }
            for file in entry.files.values()
        ],
    }


def _paths(skill: Skill) -> tuple[list[str], bool]:
    """The plain files of a skill, and whether they are all of it.

    Of one that is too large for the extension, or that has no folder, it is SKILL.md alone.
    """
    if skill.root is None:
        return [SKILL_MD], False
    listed = [
        entry
        for entry in tree.entries(skill.root, is_ours=not skill.provenance.needs_trust)
        if entry.kind == "file" and not tree.is_litter(entry.path)
    ]
    if len(listed) > MAX_FILES or sum(entry.size for entry in listed) > MAX_BYTES:
        return [SKILL_MD], False
    return [str(entry.path) for entry in listed], True


def _frontmatter(skill: Skill, data: bytes) -> dict[str, Any] | None:
    """What SKILL.md declares, in the form that clients take; None if they would refuse it.

    One entry that a client refuses costs it the whole page, so that such a skill is left out.
    """
    opened = open_document(data)
    if isinstance(opened, Problem):
        return None
    values = {key: value for key, value in opened[1].values.items() if value is not None}
    tools = values.get("allowed-tools")
    if isinstance(tools, list):
        values["allowed-tools"] = " ".join(skill.manifest.allowed_tools)
    if isinstance(values.get("metadata"), dict):
        values["metadata"] = dict(skill.manifest.metadata)
    return values if _is_taken(values, skill.name.rpartition(":")[2]) else None


def _is_taken(values: Mapping[str, Value], name: str) -> bool:
    description, fits = values.get("description"), values.get("compatibility", "-")
    return (
        values.get("name") == name
        and len(name) <= _LONGEST_NAME
        and _NAME.fullmatch(name) is not None
        and isinstance(description, str)
        and len(description.strip()) > 0
        and len(description) <= MAX_DESCRIPTION
        and isinstance(fits, str)
        and 0 < len(fits) <= _LONGEST_COMPATIBILITY
        and all(isinstance(values.get(key, ""), str) for key in ("license", "allowed-tools"))
        and isinstance(values.get("metadata", {}), dict)
    )
