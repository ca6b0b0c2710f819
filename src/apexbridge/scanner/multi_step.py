"""What a shell program does in two lines, so that neither shows it: fetch and run, loop and ask."""

import re
from collections.abc import Iterator, Sequence
from functools import cache

from apexbridge.scanner.pattern_matcher import Hit, SkillContext
from apexbridge.scanner.rules import RiskLevel, lower_level, regex
from apexbridge.scanner.scan_input import TextFile

MAX_STEP_DISTANCE = 6
"""How many lines may lie between two steps."""

MAX_LOOP_LINES = 25
"""How many lines of a loop are looked at."""

MAX_FETCHES = 200
MAX_LINE = 1_000

_DOWNLOAD = re.compile(r"\b(?:curl|wget)\s[^\n]{0,400}?https?://[^\s\"'|;&)]{3,300}")
_OUTPUT_FILE = re.compile(
    r"(?:\s-\w{0,6}[oO]|--output|--output-document|>)[ =]{1,3}[\"']?(?!https?:)([\w./~$-]{2,120})"
)
_KEEPS_REMOTE_NAME = re.compile(r"\bwget\b|\s-\w{0,6}O(?!\w)|--remote-name\b")
"""Without a name given, only these write a file called as the address ends."""
_RUN_FILE = re.compile(
    r"(?:^|[;&|(]|\bsudo\s|\bthen\s|\bdo\s)\s{0,12}(?:(?:ba|z|da)?sh|source|\.|python[\d.]{0,4}|"
    r"node|perl|ruby|nohup)\s{1,3}(?:-\w{1,3}\s)?[\"']?(?:\./)?([\w./~$-]{2,120})"
)
_INFINITE_LOOP = re.compile(r"\bwhile\s+(?:true|:|\[\s1\s\])\s{0,2}(?:;|$)")
_NETWORK_COMMAND = re.compile(r"\b(?:curl|wget|ping\s+-f)\b")
_LOOP_PAUSE = re.compile(r"\bsleep\b|\bbreak\b|\bexit\b|\breturn\b|\bread\b|localhost|127\.0")

_FILE_WRITE = re.compile(
    r"open\([^\n]{1,80}[\"'][wa]b?\+?[\"']|\.write_text\(|writeFile|appendFile|>>?\s{0,2}[\"']?\$"
)
WRITE_WINDOW = 8
"""Lines after the name of an agent file in which a write counts as a write to it."""


def multi_step_shell(view: TextFile, setting: SkillContext) -> Iterator[Hit]:
    """Look at every shell program and block for two steps that belong together."""
    for unit in view.units:
        whole = view.lower[view.starts[unit.first - 1] : view.end_of(unit.last)]
        if unit.language != "shell" or not _uses_network(whole):
            continue
        lines = [line[:MAX_LINE] for line in view.lines[unit.first - 1 : unit.last]]
        steps = 0 if unit.place == "script" else int(setting.is_about_security)
        steps += int(unit.place == "reference")
        found = (*_download_then_run(lines), *_request_loop(lines))
        for rule, level, at in found:
            line = unit.first + at
            yield Hit(
                rule=rule,
                level=lower_level(level, steps),
                line=line,
                matched=view.lines[line - 1].strip(),
            )


def _uses_network(text: str) -> bool:
    """A quick look that saves a slow one."""
    return "curl" in text or "wget" in text or "ping" in text


def _download_then_run(lines: Sequence[str]) -> Iterator[tuple[str, RiskLevel, int]]:
    fetches = 0
    for at, line in enumerate(lines):
        match = _DOWNLOAD.search(line) if fetches < MAX_FETCHES else None
        if match is None:
            continue
        fetches += 1
        name = _downloaded_file(line, match[0])
        following = (line[match.end() :], *lines[at + 1 : at + 1 + MAX_STEP_DISTANCE])
        runs = (run[1] for row in following for run in _RUN_FILE.finditer(row))
        if name and any(run.rsplit("/", 1)[-1] == name for run in runs):
            yield "AB011", "review" if regex("{{known_installers}}").search(line) else "warn", at


def _downloaded_file(line: str, fetched: str) -> str:
    """The last part of the name under which something fetched is kept."""
    named = _OUTPUT_FILE.search(line)
    if named:
        return named[1].rsplit("/", 1)[-1]
    return fetched.rsplit("/", 1)[-1].split("?", 1)[0] if _KEEPS_REMOTE_NAME.search(line) else ""


def _request_loop(lines: Sequence[str]) -> Iterator[tuple[str, RiskLevel, int]]:
    for at, line in enumerate(lines):
        if _INFINITE_LOOP.search(line):
            inside = "\n".join(lines[at : at + MAX_LOOP_LINES])
            if _NETWORK_COMMAND.search(inside) and not _LOOP_PAUSE.search(inside):
                yield "AB037", "warn", at
                return


@cache
def _quoted_agent_file() -> re.Pattern[str]:
    # File names are matched with their case, unlike in the rule files.
    return re.compile(rf"[\"'/]{regex('{{agent_files}}').pattern}[\"']")


def agent_file_writes(view: TextFile) -> Iterator[Hit]:
    """Programs that name a file of instructions in one line and write it in another."""
    if view.place_of(1) != "script":
        return
    for match in _quoted_agent_file().finditer(view.text):
        line = view.line_at(match.start())
        behind = "\n".join(view.lines[line - 1 : line + WRITE_WINDOW])[:2_000]
        if _FILE_WRITE.search(behind):
            yield Hit(rule="AB053", level="warn", line=line, matched=match[0])
