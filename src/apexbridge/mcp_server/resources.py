"""Resources: every file of every skill, by `skill://` address, with its digest."""

import base64
import difflib
import mimetypes

from mcp import types

from apexbridge.errors import RequestError, SkillNotFoundError
from apexbridge.mcp_server.addresses import TEMPLATE, address_of, take_apart
from apexbridge.mcp_server.entries import File, is_served
from apexbridge.mcp_server.tools import Shelf
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.model import Skill

_MAX_DESCRIPTION = 1_024


def templates() -> list[types.ResourceTemplate]:
    """How an address is made."""
    description = "A file of a skill; SKILL.md holds its instructions."
    return [types.ResourceTemplate(name="skill", uri_template=TEMPLATE, description=description)]


def resource_of(skill: Skill, file: File) -> types.Resource:
    """A file as it is listed."""
    is_main = file.path == SKILL_MD
    return types.Resource(
        uri=address_of(skill, file.path),
        name=skill.name if is_main else f"{skill.name}/{file.path}",
        description=skill.summary[:_MAX_DESCRIPTION] if is_main else None,
        mime_type=_kind(file.path),
        size=file.size,
        _meta={"digest": f"sha256:{file.sha256}"},
    )


async def read(shelf: Shelf, uri: str) -> types.ReadResourceResult:
    """The bytes behind an address.

    Raises:
        RequestError: If it is no address of ours, or of no file.
        SkillNotFoundError: With the names that come near.
        ApexBridgeError: If the file cannot be read.
    """
    name, skill, path = take_apart(uri, shelf.find)
    if skill is None:
        skill = shelf.get(name)
    if not is_served(skill):
        raise SkillNotFoundError(skill.name)
    file = (await shelf.entries.of(skill)).files.get(path)
    if file is None:
        files = (await shelf.entries.of(skill)).files
        near = difflib.get_close_matches(path[:200], files, n=3)
        more = f"; did you mean {' / '.join(near)}?" if near else ""
        raise RequestError(f"{skill.name} has no file '{path[:200]}'{more}", param="uri")
    data = await shelf.entries.read(skill, path)
    return types.ReadResourceResult(contents=[_content(uri, path, data)])


def _content(
    uri: str, path: str, data: bytes
) -> types.TextResourceContents | types.BlobResourceContents:
    kind = _kind(path)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        blob = base64.b64encode(data).decode()
        return types.BlobResourceContents(uri=uri, mime_type=kind, blob=blob)
    return types.TextResourceContents(uri=uri, mime_type=kind, text=text)


def _kind(path: str) -> str:
    if path.endswith(".md"):
        return "text/markdown"
    return mimetypes.guess_type(path)[0] or "application/octet-stream"
