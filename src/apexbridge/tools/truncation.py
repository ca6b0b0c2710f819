"""Truncate tool output for the model's context window, with a notice of what is missing."""

from typing import Literal

MAX_CHARS = 30_000
"""About 7,500 tokens of English, 30,000 of Chinese."""
MIN_CHARS = 400
"""Smallest limit: the truncation notice must fit."""

_HEAD_FRACTION = 2 / 3


def truncate_text(
    text: str, limit: int = MAX_CHARS, *, keeps: Literal["start", "ends"] = "ends", hint: str = ""
) -> str:
    """Truncate a text to at most `limit` characters, with a notice of how much is missing.

    `start` keeps the beginning, `ends` the beginning and the last third. The hint says how to
    get the rest.

    >>> truncate_text("short")
    'short'
    """
    limit = max(limit, MIN_CHARS)
    if len(text) <= limit:
        return text
    hint = hint[: MIN_CHARS // 2]
    budget = limit - len(_truncation_notice(len(text), len(text), hint))
    if keeps == "start":
        return text[:budget] + _truncation_notice(len(text) - budget, len(text), hint)
    # Head and tail are kept: errors and totals are usually at the end of command output.
    first = int(budget * _HEAD_FRACTION)
    last = budget - first
    return (
        text[:first]
        + _truncation_notice(len(text) - budget, len(text), hint)
        + text[len(text) - last :]
    )


def _truncation_notice(missing: int, of: int, hint: str) -> str:
    more = f"; {hint}" if hint else ""
    return f"\n[{missing:,} of {of:,} characters are left out here{more}]\n"
