"""Skill files: `skill://` URIs, and manifests with the SHA-256 digest of each file."""

import base64
import hashlib
import logging
import mimetypes
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote, unquote

import anyio.to_thread
from mcp import types

from apexbridge.catalog.catalog import Catalog
from apexbridge.errors import ApexBridgeError, RequestError
from apexbridge.skills import tree
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.model import Origin, Problem, Skill, YamlValue
from apexbridge.skills.parser import MAX_DESCRIPTION, parse_document
from apexbridge.sources.mcp.skills_extension import MAX_BYTES, MAX_FILES

SCHEME = "skill://"
TEMPLATE = "skill://{name}/{+path}"
_MAX_URI_CHARS = 4_096
_FORBIDDEN_CHARS = frozenset("/\\\x7f")


def root_uri(skill: Skill) -> str:
    """Return the root URI of a skill's files; a plugin's skill lies below its plugin.

    fastmcp and its like want the last part to be the name that SKILL.md declares.
    """
    return SCHEME + "/".join(quote(part, safe="") for part in skill.name.split(":")) + "/"


def file_uri(skill: Skill, path: str) -> str:
    """Return the URI of a file."""
    return root_uri(skill) + quote(path, safe="/")


def parse_uri(uri: str, find: Callable[[str], Skill | None]) -> tuple[str, Skill | None, str]:
    """Parse a URI into skill name, skill (if it exists) and file path.

    Raises:
        RequestError: If it is malformed, or attempts path traversal.
    """
    parts = list(_uri_parts(uri))
    for length in range(len(parts) - 1, 0, -1):
        skill = find(":".join(parts[:length]))
        if skill is not None:
            return skill.name, skill, "/".join(parts[length:])
    return parts[0], None, "/".join(parts[1:])


def _uri_parts(uri: str) -> Iterator[str]:
    if len(uri) > _MAX_URI_CHARS or not uri.startswith(SCHEME):
        raise _invalid_uri(uri)
    written = uri.removeprefix(SCHEME).split("/")
    if len(written) < 2 or any(char in uri for char in "?#"):
        raise _invalid_uri(uri)
    for raw in written:
        try:
            part = unquote(raw, errors="strict")
        except UnicodeDecodeError:
            raise _invalid_uri(uri) from None
        if part in {"", ".", ".."} or any(char < " " or char in _FORBIDDEN_CHARS for char in part):
            raise _invalid_uri(uri)
        yield part


def _invalid_uri(uri: str) -> RequestError:
    return RequestError(f"'{uri[:200]}' is not the URI of a skill file", param="uri")


def to_contents(
    uri: str, path: str, data: bytes
) -> types.TextResourceContents | types.BlobResourceContents:
    """Return the content of a file: text where it is UTF-8."""
    kind = media_type(path)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        blob = base64.b64encode(data).decode()
        return types.BlobResourceContents(uri=uri, mime_type=kind, blob=blob)
    return types.TextResourceContents(uri=uri, mime_type=kind, text=text)


def media_type(path: str) -> str:
    """Guess the media type by the name."""
    if path.endswith(".md"):
        return "text/markdown"
    return mimetypes.guess_type(path)[0] or "application/octet-stream"


log = logging.getLogger(__name__)

_SKILL_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_MAX_NAME = 64
_MAX_COMPATIBILITY = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillFile:
    """File of a skill."""

    path: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileManifest:
    """Manifest of a skill: its files, and its frontmatter if it is valid for other clients."""

    files: Mapping[str, SkillFile]
    frontmatter: Mapping[str, Any] | None


class ManifestCache:
    """Cache of manifests, by content hash."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._kept: dict[str, tuple[tuple[str, str], FileManifest]] = {}

    async def get(self, skill: Skill) -> FileManifest:
        """Return the manifest of a skill; one that cannot be read has no files."""
        mark = (skill.provenance.source_id, skill.fingerprint.sha256 if skill.fingerprint else "")
        kept = self._kept.get(skill.name)
        if kept is not None and mark[1] and kept[0] == mark:
            return kept[1]
        try:
            entry = await self._make(skill)
        except (ApexBridgeError, OSError) as error:
            log.info("Cannot serve the files of %s: %s", skill.name, error)
            return FileManifest(files={}, frontmatter=None)
        known = {known.name for known in self._catalog.skills}
        self._kept = {name: one for name, one in self._kept.items() if name in known}
        self._kept[skill.name] = (mark, entry)
        return entry

    async def read(self, skill: Skill, path: str) -> bytes:
        """Read a file through the source of its skill."""
        source = self._catalog.source_of(skill).source
        return (await source.resource(skill, PurePosixPath(path))).data

    async def _make(self, skill: Skill) -> FileManifest:
        paths, is_whole = await anyio.to_thread.run_sync(_file_paths, skill)
        files, head = dict[str, SkillFile](), b""
        for path in paths:
            data = await self.read(skill, path)
            digest = hashlib.sha256(data).hexdigest()
            files[path] = SkillFile(path=path, sha256=digest, size=len(data))
            head = data if path == SKILL_MD else head
        is_whole = is_whole and SKILL_MD in files
        return FileManifest(
            files=files, frontmatter=_frontmatter(skill, head) if is_whole else None
        )


def serves_files(skill: Skill) -> bool:
    """Return whether a skill's files are served: those of another MCP server are not."""
    return skill.provenance.origin is not Origin.MCP


def to_extension_json(skill: Skill, manifest: FileManifest) -> dict[str, Any]:
    """Convert a manifest to the JSON of the skills extension."""
    return {
        "uri": file_uri(skill, SKILL_MD),
        "frontmatter": manifest.frontmatter,
        "resources": [
            {
                "uri": file_uri(skill, file.path),
                "digest": f"sha256:{file.sha256}",
                "size": file.size,
            }
            for file in manifest.files.values()
        ],
    }


def _file_paths(skill: Skill) -> tuple[list[str], bool]:
    """Return the regular files of a skill, and whether the list is complete.

    Of one that is too large for the extension, or that has no folder, it is SKILL.md alone.
    """
    if skill.root is None:
        return [SKILL_MD], False
    listed = [
        entry
        for entry in tree.entries(skill.root, is_ours=not skill.provenance.needs_trust)
        if entry.kind == "file" and not tree.is_junk(entry.path)
    ]
    if len(listed) > MAX_FILES or sum(entry.size for entry in listed) > MAX_BYTES:
        return [SKILL_MD], False
    return [str(entry.path) for entry in listed], True


def _frontmatter(skill: Skill, data: bytes) -> dict[str, Any] | None:
    """Return the frontmatter in the form that clients accept; None if they would refuse it.

    One entry that a client refuses costs it the whole page, so that such a skill is left out.
    """
    opened = parse_document(data)
    if isinstance(opened, Problem):
        return None
    values = {key: value for key, value in opened[1].values.items() if value is not None}
    tools = values.get("allowed-tools")
    if isinstance(tools, list):
        values["allowed-tools"] = " ".join(skill.manifest.allowed_tools)
    if isinstance(values.get("metadata"), dict):
        values["metadata"] = dict(skill.manifest.metadata)
    return values if _is_valid_frontmatter(values, skill.name.rpartition(":")[2]) else None


def _is_valid_frontmatter(values: Mapping[str, YamlValue], name: str) -> bool:
    description, fits = values.get("description"), values.get("compatibility", "-")
    return (
        values.get("name") == name
        and len(name) <= _MAX_NAME
        and _SKILL_NAME.fullmatch(name) is not None
        and isinstance(description, str)
        and len(description.strip()) > 0
        and len(description) <= MAX_DESCRIPTION
        and isinstance(fits, str)
        and 0 < len(fits) <= _MAX_COMPATIBILITY
        and all(isinstance(values.get(key, ""), str) for key in ("license", "allowed-tools"))
        and isinstance(values.get("metadata", {}), dict)
    )
