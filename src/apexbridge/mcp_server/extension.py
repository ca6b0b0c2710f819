"""The skills extension: `skills/list` and `skills/get`, through the SDK's seam for extensions."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.extension import Extension, MethodBinding

from apexbridge.errors import RequestError, SkillNotFoundError
from apexbridge.mcp_server.addresses import address_of, take_apart
from apexbridge.mcp_server.entries import as_wire, is_served
from apexbridge.mcp_server.paging import PAGE, page_of
from apexbridge.mcp_server.tools import Shelf
from apexbridge.skills.document import SKILL_MD
from apexbridge.sources.mcp_skills import EXTENSION

Context = ServerRequestContext[Any, Any]
_HINTS = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


class GetSkillParams(types.RequestParams):
    """Which skill, by the address of its SKILL.md."""

    uri: str


Guarded = Callable[[Context, Callable[[], Awaitable[dict[str, Any]]]], Awaitable[dict[str, Any]]]
"""Answers a caller that may read, and tells our errors as the protocol's."""


class SkillsExtension(Extension):
    """Serves what our own source of MCP skills reads, and others' clients."""

    identifier = EXTENSION

    def __init__(self, shelf: Shelf, guarded: Guarded, page: int = PAGE) -> None:
        self._shelf, self._guarded, self._page = shelf, guarded, page

    def methods(self) -> Sequence[MethodBinding]:
        """The two requests that the extension adds."""
        return (
            MethodBinding("skills/list", types.PaginatedRequestParams, self._answer_list),
            MethodBinding("skills/get", GetSkillParams, self._answer_get),
        )

    async def _answer_list(
        self, ctx: Context, params: types.PaginatedRequestParams
    ) -> dict[str, Any]:
        return await self._guarded(ctx, lambda: self._list(params.cursor))

    async def _answer_get(self, ctx: Context, params: GetSkillParams) -> dict[str, Any]:
        return await self._guarded(ctx, lambda: self._get(params.uri))

    async def _list(self, cursor: str | None) -> dict[str, Any]:
        served = [skill for skill in self._shelf.skills() if is_served(skill)]
        page, following = page_of(served, cursor, self._page)
        entries = [(skill, await self._shelf.entries.of(skill)) for skill in page]
        skills = [as_wire(skill, entry) for skill, entry in entries if entry.frontmatter]
        return {"skills": skills, **_HINTS, **({"nextCursor": following} if following else {})}

    async def _get(self, uri: str) -> dict[str, Any]:
        name, skill, path = take_apart(uri, self._shelf.find)
        if skill is None:
            skill = self._shelf.get(name)
        entry = await self._shelf.entries.of(skill) if is_served(skill) else None
        if entry is None or not entry.frontmatter:
            raise SkillNotFoundError(skill.name)
        if path != SKILL_MD:
            raise RequestError(f"a skill's address is {address_of(skill, SKILL_MD)}", param="uri")
        return {"skill": as_wire(skill, entry), **_HINTS}
