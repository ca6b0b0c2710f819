"""What a shell program does in two lines, so that neither shows it: fetch and run, loop and ask."""

import re
from collections.abc import Iterator, Sequence

from apexbridge.vetting.incoming import KNOWN_INSTALLERS
from apexbridge.vetting.patterns import Hit, Setting
from apexbridge.vetting.rulebook import Level, lowered
from apexbridge.vetting.view import View

REACH = 6
"""How many lines may lie between two steps."""

LOOP = 25
"""How many lines of a loop are looked at."""

MAX_FETCHES = 200
MAX_LINE = 1_000

_FETCH = re.compile(r"\b(?:curl|wget)\s[^\n]{0,400}?https?://[^\s\"'|;&)]{3,300}")
_NAMED = re.compile(
    r"(?:\s-\w{0,6}[oO]|--output|--output-document|>)[ =]{1,3}[\"']?(?!https?:)([\w./~$-]{2,120})"
)
_KEPT = re.compile(r"\bwget\b|\s-\w{0,6}O(?!\w)|--remote-name\b")
"""Without a name given, only these write a file called as the address ends."""
_RUN = re.compile(
    r"(?:^|[;&|(]|\bsudo\s|\bthen\s|\bdo\s)\s{0,12}(?:(?:ba|z|da)?sh|source|\.|python[\d.]{0,4}|"
    r"node|perl|ruby|nohup)\s{1,3}(?:-\w{1,3}\s)?[\"']?(?:\./)?([\w./~$-]{2,120})"
)
_LOOP = re.compile(r"\bwhile\s+(?:true|:|\[\s1\s\])\s{0,2}(?:;|$)")
_ASKS = re.compile(r"\b(?:curl|wget|ping\s+-f)\b")
_RESTS = re.compile(r"\bsleep\b|\bbreak\b|\bexit\b|\breturn\b|\bread\b|localhost|127\.0")


def stepwise(view: View, setting: Setting) -> Iterator[Hit]:
    """Look at every shell program and block for two steps that belong together."""
    for unit in view.units:
        whole = view.lower[view.starts[unit.first - 1] : view.end_of(unit.last)]
        if unit.language != "shell" or not _may_ask(whole):
            continue
        lines = [line[:MAX_LINE] for line in view.lines[unit.first - 1 : unit.last]]
        steps = 0 if unit.place == "script" else int(setting.is_about_security)
        steps += int(unit.place == "reference")
        found = (*_fetched_and_run(lines), *_asked_forever(lines))
        for rule, level, at in found:
            line = unit.first + at
            yield Hit(
                rule=rule,
                level=lowered(level, steps),
                line=line,
                matched=view.lines[line - 1].strip(),
            )


def _may_ask(text: str) -> bool:
    """A quick look that saves a slow one."""
    return "curl" in text or "wget" in text or "ping" in text


def _fetched_and_run(lines: Sequence[str]) -> Iterator[tuple[str, Level, int]]:
    fetches = 0
    for at, line in enumerate(lines):
        match = _FETCH.search(line) if fetches < MAX_FETCHES else None
        if match is None:
            continue
        fetches += 1
        name = _file_of(line, match[0])
        following = (line[match.end() :], *lines[at + 1 : at + 1 + REACH])
        runs = (run[1] for row in following for run in _RUN.finditer(row))
        if name and any(run.rsplit("/", 1)[-1] == name for run in runs):
            yield "AB011", "review" if KNOWN_INSTALLERS.search(line) else "warn", at


def _file_of(line: str, fetched: str) -> str:
    """The last part of the name under which something fetched is kept."""
    named = _NAMED.search(line)
    if named:
        return named[1].rsplit("/", 1)[-1]
    return fetched.rsplit("/", 1)[-1].split("?", 1)[0] if _KEPT.search(line) else ""


def _asked_forever(lines: Sequence[str]) -> Iterator[tuple[str, Level, int]]:
    for at, line in enumerate(lines):
        if _LOOP.search(line):
            inside = "\n".join(lines[at : at + LOOP])
            if _ASKS.search(inside) and not _RESTS.search(inside):
                yield "AB037", "warn", at
                return
