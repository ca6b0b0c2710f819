"""Pages of lists that may change between two of them: a page goes on behind a name. Pure."""

import base64
import binascii
from bisect import bisect_right
from collections.abc import Sequence

from mcp import MCPError, types

from apexbridge.skills.model import Skill

PAGE = 50
"""Skills on a page."""
_LONGEST_CURSOR = 2_000


def page_of(
    skills: Sequence[Skill], cursor: str | None, size: int = PAGE
) -> tuple[Sequence[Skill], str | None]:
    """The skills of one page, and how to ask for the next; none where this is the last.

    Raises:
        MCPError: If the cursor is none that was given out.
    """
    ordered = sorted(skills, key=lambda skill: skill.name)
    start = bisect_right(ordered, _name(cursor), key=lambda skill: skill.name) if cursor else 0
    page = ordered[start : start + size]
    has_more = start + size < len(ordered)
    return page, _cursor(page[-1].name) if has_more else None


def _cursor(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode("utf-8", "surrogatepass")).decode()


def _name(cursor: str) -> str:
    try:
        return base64.b64decode(cursor[:_LONGEST_CURSOR], altchars=b"-_", validate=True).decode()
    except (ValueError, binascii.Error):
        raise MCPError(types.INVALID_PARAMS, "[request_invalid] no such cursor") from None
