"""Whether a hook's matcher means a tool or a skill."""

import functools
import re

_LIST = re.compile(r"[\w:-]+(?:\s*\|\s*[\w:-]+)*")
_MAX_PATTERN = 200
_MAX_SUBJECT = 200
_MAX_STARS = 4
_MAX_OPTIONAL = 8
# A repeated group, or a look back at one, can take longer than anyone would wait.
_SLOW = re.compile(r"\)\s*[*+{]|\\[1-9]|\(\?P=")


def matches(matcher: str, subject: str) -> bool | None:
    """Empty or `*` means all, a `|` list exactly those, else a regular expression found in it.

    None where the expression is broken, or could run for ever.
    """
    matcher = matcher.strip()
    if matcher in {"", "*"}:
        return True
    if _LIST.fullmatch(matcher):
        return subject in map(str.strip, matcher.split("|"))
    pattern = _compiled(matcher)
    if pattern is None or len(subject) > _MAX_SUBJECT:
        return None
    return pattern.search(subject) is not None


@functools.lru_cache(256)
def _compiled(matcher: str) -> re.Pattern[str] | None:
    stars = sum(matcher.count(sign) for sign in "*+{")
    is_slow = stars > _MAX_STARS or matcher.count("?") > _MAX_OPTIONAL or _SLOW.search(matcher)
    if len(matcher) > _MAX_PATTERN or is_slow:
        return None
    try:
        return re.compile(matcher)
    except (re.error, OverflowError, RecursionError):
        return None
