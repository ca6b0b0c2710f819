"""What a request plainly asks for, told by its words, in English and Chinese. Pure.

Only a request that is nothing else counts: "what time is it" is about the clock, "what time does
it begin" is not. A wish that is missed is looked for among the skills.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apexbridge.models import phrases, sums
from apexbridge.models.named_files import is_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A call of a tool that a request asks for."""

    tool: str
    arguments: Mapping[str, Any]


MAX_CHARS = 300
"""Whoever writes more wants more than one plain thing."""

_POLITE, _ENDING = phrases.compiled(phrases.POLITE, phrases.ENDING)
_NOW = phrases.compiled(*phrases.NOW)
_PLATFORM = phrases.compiled(*phrases.PLATFORM)
_READ = phrases.compiled(*phrases.READ)
_GLOB = phrases.compiled(*phrases.GLOB)
_GREP = phrases.compiled(*phrases.GREP)
_SMALL_TALK = phrases.compiled(*phrases.SMALL_TALK)
_DESTRUCTION = phrases.compiled(*phrases.DESTRUCTION)
_SPECIAL = re.compile(r"[\\.^$*+?{}\[\]|()]")
_FOLDERS = ("/", "./", "../", "~/")


def plain_wish(text: str) -> Wish | None:
    """The one thing that a request plainly asks a built-in tool for.

    >>> plain_wish("What is 17 * 23?")
    Wish(tool='Calculate', arguments={'expression': '17 * 23'})
    >>> plain_wish("现在几点") == Wish(tool="Now", arguments={})
    True
    >>> plain_wish("What time does it begin?") is None
    True
    """
    request = _bare(text)
    wishes = (look(request) for look in _LOOKS)
    return next((wish for wish in wishes if wish is not None), None) if request else None


def is_small_talk(text: str) -> bool:
    """Say whether a request wants nothing done: a greeting, a thank you, "who are you".

    >>> is_small_talk("Hello!"), is_small_talk("Hello world in Rust")
    (True, False)
    """
    return _whole(_SMALL_TALK, _bare(text)) is not None


def is_destruction(text: str) -> bool:
    """Say whether a request is to delete files or folders, and nothing else.

    >>> is_destruction("Delete everything in /etc."), is_destruction("Remove duplicate rows")
    (True, False)
    """
    return _whole(_DESTRUCTION, _bare(text)) is not None


def is_chinese(text: str) -> bool:
    """Say whether a request is written in Chinese."""
    return len(re.findall(r"[\u4e00-\u9fff]", text)) * 3 >= len(re.findall(r"[A-Za-z]+", text)) + 1


def _bare(text: str) -> str:
    """A short request without its courtesies; nothing of one that is long."""
    request = " ".join(text[: 2 * MAX_CHARS].replace("’", "'").split())
    if len(text) > MAX_CHARS:
        return ""
    while (found := _POLITE.match(request)) and found.end() < len(request):
        request = request[found.end() :]
    while (found := _ENDING.search(request)) and found.start() > 0:
        request = request[: found.start()]
    return request.strip()


def _whole(looks: Sequence[re.Pattern[str]], text: str) -> re.Match[str] | None:
    found = (look.fullmatch(text) for look in looks)
    return next((match for match in found if match is not None), None)


def _group(match: re.Match[str], *names: str) -> str:
    """What was written for the first of the names that the phrase has."""
    groups = match.groupdict()
    return next((groups[name] for name in names if groups.get(name)), "")


def _calculate(text: str) -> Wish | None:
    found = sums.expression(text)
    return Wish(tool="Calculate", arguments={"expression": found}) if found else None


def _now(text: str) -> Wish | None:
    match = _whole(_NOW, text)
    if match is None:
        return None
    place = _group(match, "place")
    zone = phrases.ZONES.get(place.lower(), place.replace(" ", ""))
    return Wish(tool="Now", arguments={"timezone": zone} if zone else {})


def _platform(text: str) -> Wish | None:
    return Wish(tool="Platform", arguments={}) if _whole(_PLATFORM, text) else None


def _grep(text: str) -> Wish | None:
    match = _whole(_GREP, text)
    if match is None:
        return None
    literal = _SPECIAL.sub(r"\\\g<0>", _group(match, "quoted", "word"))
    return Wish(tool="Grep", arguments={"pattern": literal})


def _glob(text: str) -> Wish | None:
    match = _whole(_GLOB, text)
    if match is None:
        return None
    kind = phrases.KINDS.get(_group(match, "kind").lower(), "")
    pattern = _group(match, "pattern") or (f"**/*.{kind}" if kind else "**/*")
    return Wish(tool="Glob", arguments={"pattern": pattern})


def _read(text: str) -> Wish | None:
    match = _whole(_READ, text)
    if match is None:
        return None
    path = match["path"].strip("`'\"“”「」")
    is_named = is_file(path) or path.lower() in phrases.DOTLESS or path.startswith(_FOLDERS)
    is_address = "://" in path
    return Wish(tool="Read", arguments={"file_path": path}) if is_named and not is_address else None


_LOOKS: tuple[Callable[[str], Wish | None], ...] = (
    _grep, _calculate, _now, _platform, _glob, _read,
)  # fmt: skip
