"""Always-on instructions: what a skill orders for every use, checked for the harm it does.

The sentence "after any change, run this script" is harmless in itself. The order is harmful if the
script uploads files to an undeclared host, deletes files that it did not create, makes files
world-writable or force-pushes: none of these belongs to every use of a skill.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from apexbridge.scanner.budget import UNLIMITED, CpuBudget
from apexbridge.scanner.exfiltration import is_declared_host
from apexbridge.scanner.pattern_matcher import Hit, SkillContext, is_quoted
from apexbridge.scanner.rules import RiskLevel, fragment, lower_level
from apexbridge.scanner.scan_input import LineRole, TextFile

RULE = "AB076"
MAX_BLOCK_LINES = 8
"""Lines after an always-on instruction that belong to it."""

MAX_INSTRUCTIONS = 200
"""Instructions of one file that are checked, to bound the scan time."""

MAX_MENTIONS = 2
"""A script that the documents mention more often is the purpose of the skill."""

MAX_LINE = 700
MAX_SCRIPT_CHARS = 200_000
"""Characters of a script that are searched."""

_SCRIPT_PATH = re.compile(
    r"(?<![\w/])((?:[\w.-]{1,40}/){0,5}[\w-]{1,60}\.(?:sh|bash|py|js|mjs|cjs|ts|rb|pl|ps1|bat))\b"
)
_RUN_VERB = re.compile(
    r"\b(?:run|execut|call|invok|launch|start|us|python3?|bash|sh|node)\w{0,4}\b|运行|执行|调用",
    re.IGNORECASE,
)
_QUOTED_LINE = re.compile(r"\s{0,8}(?:>|[-*]|\d{1,3}\.)\s{0,4}[\"“「'][^\n]{0,700}[\"”」']\s{0,8}")
"""An item or a block quote that is in quotation marks from end to end: what a user may say."""

_HOST = re.compile(r"https?://((?:[a-z0-9-]{1,63}\.){1,5}[a-z]{2,12})", re.IGNORECASE)
_ADDRESS = re.compile(r"https?://\S{1,200}")
_DELETES = re.compile(
    r"\bos\.(?:remove|unlink)\(|\bshutil\.rmtree\(|\.unlink\(|\bfs\.(?:rm|unlink)\w{0,4}\(|"
    r"(?m:^|[;&|])\s{0,12}rm\s+(?:-\w+\s+)?[\"']?\$"
)
_CHANGES_REMOTE = re.compile(r"\bgit\s+remote\s+(?:add|set-url)\s[^\n]{0,120}")
_DOCUMENT_ROLES: frozenset[LineRole] = frozenset(("instruction", "reference", "command"))
_CLEANS_OWN_FILES = re.compile(
    r"\btmp\b|temp|\bcache|mkdtemp|backup_dir|output_dir|\.pyc|__pycache__"
)
"""A script that deletes temporary files of its own."""


def always_on_instructions(
    files: Sequence[TextFile], context: SkillContext, budget: CpuBudget = UNLIMITED
) -> Iterator[tuple[TextFile, Hit]]:
    """Match always-on instructions that do harm, or run a script of the skill that does."""
    documents = [file for file in files if file.role_of(1) in _DOCUMENT_ROLES]
    scripts = {
        PurePosixPath(file.path).name.lower(): file for file in files if file.role_of(1) == "script"
    }
    documentation = "\n".join(file.lower for file in documents)
    # A script that is mentioned often is the documented purpose, not a side effect.
    rare = {
        name: file
        for name, file in budget.limit(scripts.items())
        if documentation.count(name) <= MAX_MENTIONS
    }
    for file in documents:
        for line in budget.limit(_instruction_lines(file)):
            level = _instruction_level(file, line, rare, context)
            if level is not None:
                matched = file.raw_lines[line - 1].strip()
                yield file, Hit(rule=RULE, level=level, line=line, matched=matched)


def _instruction_lines(file: TextFile) -> Iterator[int]:
    """Return the lines that order something for every use."""
    last = count = 0
    for match in fragment("always_on").finditer(file.text):
        line = file.line_number(match.start())
        is_mention = is_quoted(file.text, match.start(), match.end()) or _QUOTED_LINE.fullmatch(
            file.lines[line - 1]
        )
        if line == last or line <= file.frontmatter_end or is_mention:
            continue
        last, count = line, count + 1
        if count > MAX_INSTRUCTIONS:
            return
        yield line


def _instruction_level(
    file: TextFile, line: int, scripts: Mapping[str, TextFile], context: SkillContext
) -> RiskLevel | None:
    block = _instruction_block(file, line)
    if _is_exempt(block[0]):
        return None
    if not (
        any(map(_is_destructive, block))
        or _sends_to_undeclared_host(block, context)
        or any(_runs_harmful_script(row, scripts, context) for row in block[:4])
    ):
        return None
    steps = int(context.is_about_security) + int(file.role_of(line) == "reference")
    return lower_level("warn", steps)


def _instruction_block(file: TextFile, line: int) -> list[str]:
    """Return an instruction and the lines that belong to it, up to the next heading."""
    rows = [file.lines[line - 1][:MAX_LINE]]
    if file.role_of(line) == "command":
        return rows
    for row in file.lines[line : line + MAX_BLOCK_LINES]:
        if row.lstrip().startswith("#") and not rows[0].lstrip().startswith("#"):
            break
        rows.append(row[:MAX_LINE])
    return rows


def _is_exempt(row: str) -> bool:
    return bool(fragment("always_on_exemption").search(row))


def _is_destructive(row: str) -> bool:
    return bool(fragment("destructive_action").search(row)) and not _is_exempt(row)


def _sends_to_undeclared_host(block: Sequence[str], context: SkillContext) -> bool:
    """Return whether a block sends data to a host which the skill does not declare."""
    return any(
        (
            fragment("network_send").search(row)
            or fragment("hand_over_verbs").search(_ADDRESS.sub(" ", row))
        )
        and not _is_exempt(row)
        and _has_undeclared_host(row, context)
        for row in block
    )


def _has_undeclared_host(text: str, context: SkillContext) -> bool:
    return any(not is_declared_host(match[1].lower(), context) for match in _HOST.finditer(text))


def _runs_harmful_script(row: str, scripts: Mapping[str, TextFile], context: SkillContext) -> bool:
    """Return whether a line runs a harmful script of the skill."""
    if not _RUN_VERB.search(_SCRIPT_PATH.sub(" ", row)):
        return False
    for match in _SCRIPT_PATH.finditer(row):
        file = scripts.get(PurePosixPath(match[1]).name.lower())
        if file is not None and _is_harmful_script(file.text[:MAX_SCRIPT_CHARS], context):
            return True
    return False


def _is_harmful_script(script: str, context: SkillContext) -> bool:
    if fragment("network_send").search(script) and _has_undeclared_host(script, context):
        return True
    if fragment("destructive_action").search(script) or _CHANGES_REMOTE.search(script):
        return True
    return bool(_DELETES.search(script)) and not _CLEANS_OWN_FILES.search(script.lower())
