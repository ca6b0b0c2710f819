"""MCP resources: files of skills by `skill://` URI, with pagination and the skills extension."""

import base64
import binascii
import difflib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from mcp import MCPError, types
from mcp.server.extension import Extension, MethodBinding

from apexbridge.errors import RequestError, SkillNotFoundError
from apexbridge.mcp_server.permissions import Context
from apexbridge.mcp_server.skill_files import (
    TEMPLATE,
    SkillFile,
    file_uri,
    media_type,
    parse_uri,
    serves_files,
    to_contents,
    to_extension_json,
)
from apexbridge.mcp_server.tools import VisibleSkills
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.model import Skill
from apexbridge.sources.mcp.skills_extension import EXTENSION

PAGE_SIZE = 50
"""Skills per page."""
_MAX_CURSOR_CHARS = 2_000


def paginate(
    skills: Sequence[Skill], cursor: str | None, size: int = PAGE_SIZE
) -> tuple[Sequence[Skill], str | None]:
    """Return a page of skills, and the cursor of the next page; None on the last one.

    The cursor encodes a name and not an offset, so that it survives changes of the list.

    Raises:
        MCPError: If the cursor is invalid.
    """
    ordered = sorted(skills, key=lambda skill: skill.name)
    start = (
        bisect_right(ordered, _decode_cursor(cursor), key=lambda skill: skill.name) if cursor else 0
    )
    page = ordered[start : start + size]
    has_more = start + size < len(ordered)
    return page, _encode_cursor(page[-1].name) if has_more else None


def _encode_cursor(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode("utf-8", "surrogatepass")).decode()


def _decode_cursor(cursor: str) -> str:
    try:
        return base64.b64decode(cursor[:_MAX_CURSOR_CHARS], altchars=b"-_", validate=True).decode()
    except (ValueError, binascii.Error):
        raise MCPError(types.INVALID_PARAMS, "[request_invalid] invalid cursor") from None


_MAX_DESCRIPTION = 1_024


def skill_template() -> types.ResourceTemplate:
    """Return the URI template of skill files."""
    description = "A file of a skill; SKILL.md holds its instructions."
    return types.ResourceTemplate(name="skill", uri_template=TEMPLATE, description=description)


def to_resource(skill: Skill, file: SkillFile) -> types.Resource:
    """Convert a skill file to an MCP resource."""
    is_main = file.path == SKILL_MD
    return types.Resource(
        uri=file_uri(skill, file.path),
        name=skill.name if is_main else f"{skill.name}/{file.path}",
        description=skill.summary[:_MAX_DESCRIPTION] if is_main else None,
        mime_type=media_type(file.path),
        size=file.size,
        _meta={"digest": f"sha256:{file.sha256}"},
    )


async def read_resource(skills: VisibleSkills, uri: str) -> types.ReadResourceResult:
    """Read a skill file by URI."""
    skill, path = _resolve(skills, uri)
    if not serves_files(skill):
        raise SkillNotFoundError(skill.name)
    files = (await skills.manifests.get(skill)).files
    if path not in files:
        near = difflib.get_close_matches(path[:200], files, n=3)
        more = f"; did you mean {' / '.join(near)}?" if near else ""
        raise RequestError(f"{skill.name} has no file '{path[:200]}'{more}", param="uri")
    data = await skills.manifests.read(skill, path)
    return types.ReadResourceResult(contents=[to_contents(uri, path, data)])


def _resolve(skills: VisibleSkills, uri: str) -> tuple[Skill, str]:
    """Return the skill and the file path of a URI."""
    name, skill, path = parse_uri(uri, skills.find)
    return skill or skills.get(name), path


_CACHE_HINTS = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


class GetSkillParams(types.RequestParams):
    """Parameters of `skills/get`: the URI of a SKILL.md."""

    uri: str


Guard = Callable[[Context], AbstractContextManager[None]]
"""Makes a block for authorized callers only, and converts its errors to JSON-RPC errors."""


class SkillsExtension(Extension):
    """MCP extension with the requests `skills/list` and `skills/get`."""

    identifier = EXTENSION

    def __init__(self, skills: VisibleSkills, guarded: Guard, page_size: int = PAGE_SIZE) -> None:
        self._skills, self._guarded, self._page_size = skills, guarded, page_size

    def methods(self) -> Sequence[MethodBinding]:
        """Return the requests that the extension adds."""
        return (
            MethodBinding("skills/list", types.PaginatedRequestParams, self._list),
            MethodBinding("skills/get", GetSkillParams, self._get),
        )

    async def _list(self, ctx: Context, params: types.PaginatedRequestParams) -> dict[str, Any]:
        with self._guarded(ctx):
            served = [skill for skill in self._skills.skills() if serves_files(skill)]
            page, following = paginate(served, params.cursor, self._page_size)
            manifests = [(skill, await self._skills.manifests.get(skill)) for skill in page]
            skills = [to_extension_json(skill, one) for skill, one in manifests if one.frontmatter]
            result = {"skills": skills, **_CACHE_HINTS}
            return {**result, "nextCursor": following} if following else result

    async def _get(self, ctx: Context, params: GetSkillParams) -> dict[str, Any]:
        with self._guarded(ctx):
            skill, path = _resolve(self._skills, params.uri)
            entry = await self._skills.manifests.get(skill) if serves_files(skill) else None
            if entry is None or not entry.frontmatter:
                raise SkillNotFoundError(skill.name)
            if path != SKILL_MD:
                raise RequestError(f"a skill's address is {file_uri(skill, SKILL_MD)}", param="uri")
            return {"skill": to_extension_json(skill, entry), **_CACHE_HINTS}
