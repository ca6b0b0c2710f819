"""Multi-step attacks: actions split over several lines, so that no line alone matches a rule."""

import re
from collections.abc import Iterator, Sequence
from functools import cache

from apexbridge.scanner.pattern_matcher import Hit, SkillContext
from apexbridge.scanner.rules import RiskLevel, fragment, lower_level
from apexbridge.scanner.scan_input import TextFile

MAX_STEP_DISTANCE = 6
"""Lines between a download and the command that runs it."""

MAX_LOOP_LINES = 25
"""Lines of a loop that are searched."""

WRITE_WINDOW = 8
"""Lines after a file is named in which a write, or what is written, counts as belonging to it."""

MAX_DOWNLOADS = 200
MAX_LINE = 1_000

_DOWNLOAD = re.compile(r"\b(?:curl|wget)\s[^\n]{0,400}?https?://[^\s\"'|;&)]{3,300}")
_OUTPUT_FILE = re.compile(
    r"(?:\s-\w{0,6}[oO]|--output|--output-document|>)[ =]{1,3}[\"']?(?!https?:)([\w./~$-]{2,120})"
)
_KEEPS_REMOTE_NAME = re.compile(r"\bwget\b|\s-\w{0,6}O(?!\w)|--remote-name\b")
"""Without an output file, only these name the file after the URL."""
_RUN_FILE = re.compile(
    r"(?:^|[;&|(]|\bsudo\s|\bthen\s|\bdo\s)\s{0,12}(?:(?:ba|z|da)?sh|source|\.|python[\d.]{0,4}|"
    r"node|perl|ruby|nohup)\s{1,3}(?:-\w{1,3}\s)?[\"']?(?:\./)?([\w./~$-]{2,120})"
)
_RUN_DIRECTLY = re.compile(
    r"(?:^|[;&|(]|\bsudo\s|\bnohup\s|\bthen\s|\bdo\s)\s{0,12}[\"']?((?:\./|/|~/|\$\w{1,20}/)[\w./~$-]{2,120})"
)
_PERSISTENT_FILE = re.compile(
    r"(?:>{1,2}|\btee\b[^\n]{0,12}|\bcp\b[^\n]{0,80})\s{0,3}[\"']?[\w./~${}-]{0,60}"
    r"(?:\.git/hooks/[a-z-]{4,24}|Library/Launch(?:Agents|Daemons)/|\.config/(?:autostart|systemd)/|"
    r"\.(?:bashrc|zshrc|bash_profile|zprofile|zshenv|profile)\b)"
)
_INFINITE_LOOP = re.compile(r"\bwhile\s+(?:true|:|\[\s1\s\])\s{0,2}(?:;|$)")
_NETWORK_COMMAND = re.compile(r"\b(?:curl|wget|ping\s+-f)\b")
_LOOP_PAUSE = re.compile(r"\bsleep\b|\bbreak\b|\bexit\b|\breturn\b|\bread\b|localhost|127\.0")
_FILE_WRITE = re.compile(
    r"open\([^\n]{1,80}[\"'][wa]b?\+?[\"']|\.write_text\(|writeFile|appendFile|>>?\s{0,2}[\"']?\$"
)
_JOINED_AGENT_FILE = re.compile(
    r"(?:home|expanduser|USERPROFILE)[^\n]{0,40}[\"']\.(?:claude|codex|cursor|gemini)[\"'][\s,/+]{1,6}"
    r"[\"'](?:settings(?:\.local)?\.json|config\.toml|mcp\.json|hooks|commands|agents)[\"']"
)
"""A settings file of an agent in the home folder, its path put together from parts."""

_AUTHORIZED_KEYS = re.compile(r"[\"'/]authorized_keys[\"']")
_DOWNLOADED_FILE = re.compile(r"\burlretrieve\(|\bhttps?\.get\(|\bfetch\(")
_MADE_EXECUTABLE = re.compile(
    r"[\"']\+x[\"']|\bchmod(?:Sync)?\([^\n]{1,60}0o?[0-7]?[57][0-7]{2}\b|\bS_IX?EXEC\b|\bS_IXUSR\b|"
    r"\bmode\s?:\s?0o7[0-7]{2}\b"
)


def multi_step_shell(file: TextFile, context: SkillContext) -> Iterator[Hit]:
    """Match shell code that downloads a file and runs it later, or floods a host in a loop."""
    for block in file.code_blocks:
        code = file.lower[file.line_starts[block.first - 1] : file.line_end(block.last)]
        if block.language != "shell" or not _uses_network(code):
            continue
        lines = [line[:MAX_LINE] for line in file.lines[block.first - 1 : block.last]]
        steps = 0 if block.role == "script" else int(context.is_about_security)
        steps += int(block.role == "reference")
        matches = (
            *_download_then_run(lines),
            *_request_loop(lines),
            *_persistent_request(lines),
        )
        for rule, level, at in matches:
            line = block.first + at
            yield Hit(
                rule=rule,
                level=lower_level(level, steps),
                line=line,
                matched=file.lines[line - 1].strip(),
            )


def _uses_network(text: str) -> bool:
    """Return whether code may use the network: a cheap pre-filter."""
    return "curl" in text or "wget" in text or "ping" in text


def _download_then_run(lines: Sequence[str]) -> Iterator[tuple[str, RiskLevel, int]]:
    downloads = 0
    for at, line in enumerate(lines):
        match = _DOWNLOAD.search(line) if downloads < MAX_DOWNLOADS else None
        if match is None:
            continue
        downloads += 1
        name = _downloaded_file(line, match[0])
        following = (line[match.end() :], *lines[at + 1 : at + 1 + MAX_STEP_DISTANCE])
        runs = (run[1] for row in following for run in _RUN_FILE.finditer(row))
        if name and any(run.rsplit("/", 1)[-1] == name for run in runs):
            yield "AB011", "review" if fragment("known_installers").search(line) else "warn", at
        elif name:
            path = _directly_run_path(name, following)
            if path:
                yield "AB011", "warn" if fragment("scratch_folder").search(path) else "review", at


def _directly_run_path(name: str, following: Sequence[str]) -> str:
    """Return the path by which a downloaded program is run."""
    paths = (run[1] for row in following for run in _RUN_DIRECTLY.finditer(row))
    return next((path for path in paths if path.rsplit("/", 1)[-1] == name), "")


def _persistent_request(lines: Sequence[str]) -> Iterator[tuple[str, RiskLevel, int]]:
    """Match requests that are written to a file which other programs run."""
    for at, line in enumerate(lines):
        if _PERSISTENT_FILE.search(line):
            inside = "\n".join(lines[at : at + WRITE_WINDOW])
            if _NETWORK_COMMAND.search(inside) and not fragment("known_installers").search(inside):
                yield "AB034", "warn", at
                return


def _downloaded_file(line: str, url: str) -> str:
    """Return the name of the file that a download command writes."""
    named = _OUTPUT_FILE.search(line)
    if named:
        return named[1].rsplit("/", 1)[-1]
    return url.rsplit("/", 1)[-1].split("?", 1)[0] if _KEEPS_REMOTE_NAME.search(line) else ""


def _request_loop(lines: Sequence[str]) -> Iterator[tuple[str, RiskLevel, int]]:
    for at, line in enumerate(lines):
        if _INFINITE_LOOP.search(line):
            inside = "\n".join(lines[at : at + MAX_LOOP_LINES])
            if _NETWORK_COMMAND.search(inside) and not _LOOP_PAUSE.search(inside):
                yield "AB037", "warn", at
                return


@cache
def _quoted_agent_file() -> re.Pattern[str]:
    # Case-sensitive, unlike the rule files: `claude.md` is not an agent file.
    return re.compile(rf"[\"'/]{fragment('agent_files').pattern}[\"']")


def multi_step_script(file: TextFile) -> Iterator[Hit]:
    """Match scripts that name a file in one line, and write it or make it executable in another."""
    if file.role_of(1) != "script":
        return
    steps = (
        ("AB053", _quoted_agent_file(), _FILE_WRITE),
        ("AB053", _JOINED_AGENT_FILE, _FILE_WRITE),
        ("AB034", _AUTHORIZED_KEYS, _FILE_WRITE),
        ("AB011", _DOWNLOADED_FILE, _MADE_EXECUTABLE),
    )
    for rule, first, second in steps:
        for match in first.finditer(file.text):
            line = file.line_number(match.start())
            following = "\n".join(file.lines[line - 1 : line + WRITE_WINDOW])[:2_000]
            if second.search(following):
                yield Hit(rule=rule, level="warn", line=line, matched=match[0])
