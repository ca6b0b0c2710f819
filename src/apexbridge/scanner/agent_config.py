"""What changes the agents themselves: their instructions, settings, servers; and odd behaviour."""

import re
from collections.abc import Iterator

from apexbridge.scanner.pattern_matcher import (
    NON_SCRIPT_ROLES,
    RUNNABLE_ROLES,
    Hit,
    Pattern,
    pattern,
)
from apexbridge.scanner.scan_input import TextFile

_AGENT_FILES = (
    r"(?:CLAUDE(?:\.local)?\.md|AGENTS\.md|GEMINI\.md|SOUL\.md|MEMORY\.md|HEARTBEAT\.md|"
    r"\.cursorrules|\.windsurfrules|copilot-instructions\.md"
    r"|\.cursor/rules|\.claude/(?:settings(?:\.local)?\.json|commands|agents|hooks|skills)|"
    r"\.codex/config\.toml|\.clinerules)"
)
_MCP = r"(?:\.mcp\.json|mcp\.json|claude_desktop_config\.json|mcpServers|mcp_settings\.json)"

AGENTS: tuple[Pattern, ...] = (
    pattern(
        "AB053",
        "warn",
        rf"(?:>>?|\btee\b[^\n]{{0,20}}|\bcp\b[^\n]{{0,100}}|\bmv\b[^\n]{{0,100}}|"
        rf"\bsed\s+-i[^\n]{{0,100}})\s{{0,3}}[\"']?(?:[~$\w{{}}./-]{{0,60}})?{_AGENT_FILES}",
        hints=".md .cursor .windsurf .claude .codex .cline",
        places=frozenset(("script",)),
    ),
    pattern(
        "AB053",
        "review",
        rf"(?:>>?|\btee\b[^\n]{{0,20}})\s{{0,3}}[\"']?(?:[~$\w{{}}./-]{{0,60}})?{_AGENT_FILES}",
        hints=".md .cursor .windsurf .claude .codex .cline",
        places=frozenset(("command", "reference")),
    ),
    pattern(
        "AB053",
        "warn",
        rf"{_AGENT_FILES}[\"'`)]{{0,3}}[^\n]{{0,60}}(?:\.write_text|\.write\(|['\"][wa]\+?['\"]|"
        rf"writeFile|appendFile)|(?:writeFile|appendFile)(?:Sync)?\([^\n]{{0,80}}{_AGENT_FILES}",
        hints=".md .cursor .windsurf .claude .codex .cline",
        places=frozenset(("script", "command")),
    ),
    pattern(
        "AB053",
        "review",
        r"\b(?:write|append|add|insert|inject|update|modify|edit|overwrite|"
        rf"prepend)\b[^\n.]{{0,60}}\b(?:to|into|in|at)?\b[^\n.]{{0,20}}{_AGENT_FILES}",
        hints=".md .cursor .windsurf .claude .codex .cline",
        places=frozenset(("instruction",)),
        is_phrase=True,
    ),
    pattern(
        "AB054",
        "review",
        r"(?:>>?|\btee\b|\bcp\b|write|append|add|modify|update|edit|"
        rf"insert)[^\n]{{0,80}}{_MCP}|\bclaude\s+mcp\s+add\b",
        hints="mcp claude_desktop",
        places=RUNNABLE_ROLES,
    ),
    pattern(
        "AB057",
        "warn",
        r"\b(?:datetime\.(?:now|today|utcnow)\(\)|date\.today\(\)|new Date\(\)|Date\.now\(\)|"
        r"time\.time\(\))[^\n]{0,40}(?:>=?|<=?|==)[^\n]{0,60}(?:datetime\(|date\(|20\d\d|"
        r"\d{10})|\$\(date \+%s\)[\"']?\s{0,2}(?:-gt|-ge|>)\s{0,2}\d{10}|"
        r"getHours\(\)\s{0,2}(?:>=?|<=?)\s{0,2}\d",
        hints="date time gethours",
        places=frozenset(("script", "command")),
        unless=r"expir|cache|ttl|copyright|token|deprecat|timeout|birth|age\b",
    ),
    pattern(
        "AB057",
        "review",
        r"\b(?:SANDBOX|VIRTUALBOX|VMWARE|QEMU|is_?debugger|sys\.gettrace\(\)|/\.dockerenv|"
        r"CUCKOO|detect_?(?:vm|sandbox|debugger))\b",
        hints="sandbox virtualbox vmware qemu debugger gettrace dockerenv cuckoo detect",
        places=frozenset(("script",)),
        also=(r"\bif\b|exists|return|==|\bin\b",),
    ),
    pattern(
        "AB058",
        "warn",
        r"\[(?:https?://)?(?:[a-z0-9-]{1,40}\.){0,2}([a-z0-9-]{2,40}\.(?:com|org|io|net|dev|ai|"
        r"app))/?[^\]\s]{0,80}\]\(https?://(?![^)\s]{0,60}\1)",
        hints="](http",
        places=NON_SCRIPT_ROLES,
    ),
)

_QUOTED_AGENT_FILE = re.compile(rf"[\"'/]{_AGENT_FILES}[\"']")
_FILE_WRITE = re.compile(
    r"open\([^\n]{1,80}[\"'][wa]b?\+?[\"']|\.write_text\(|writeFile|appendFile|>>?\s{0,2}[\"']?\$"
)
WRITE_WINDOW = 8
"""Within how many lines a file is written that was named before."""


def agent_file_writes(view: TextFile) -> Iterator[Hit]:
    """Programs that name a file of instructions in one line and write it in another."""
    if view.place_of(1) != "script":
        return
    for match in _QUOTED_AGENT_FILE.finditer(view.text):
        line = view.line_at(match.start())
        behind = "\n".join(view.lines[line - 1 : line + WRITE_WINDOW])[:2_000]
        if _FILE_WRITE.search(behind):
            yield Hit(rule="AB053", level="warn", line=line, matched=match[0])
