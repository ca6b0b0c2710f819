"""Standing orders: what is to be done at every use, whatever was asked for, and does harm.

A line that says "after any change, run this program" is harmless by its words. What counts is what
is run: a program that hands files to an address the skill does not speak of, deletes what it did
not make, opens rights to everybody or pushes by force does not belong to every use of a skill.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from apexbridge.scanner.exfiltration import NETWORK_SEND, is_declared_host
from apexbridge.scanner.pattern_matcher import Hit, SkillContext, is_quoted
from apexbridge.scanner.rules import RiskLevel, lower_level
from apexbridge.scanner.scan_input import LineRole, TextFile

RULE = "AB076"
MAX_BLOCK_LINES = 8
"""How many lines after a standing order belong to it."""

MAX_INSTRUCTIONS = 200
"""How many standing orders of one file are weighed."""

MAX_MENTIONS = 2
"""A program that the documents name more often than this is what the skill is made for."""

MAX_LINE = 700
MAX_SCRIPT_CHARS = 200_000
"""How many characters of a program are looked at."""

_OBJECTS = (
    r"(?:tasks?|operations?|changes?|edits?|documents?|files?|commits?|requests?|sessions?|"
    r"responses?|answers?|runs?|steps?|jobs?|messages?|quer(?:y|ies)|use|uses|invocations?|"
    r"actions?|deletions?|updates?|conversations?|turns?|work|outputs?|results?|calls?|"
    r"datasets?|data|entr(?:y|ies)|events?|reports?|projects?)"
)
_COMPLETION_VERBS = (
    r"(?:finish|complet|edit|mak|creat|modif|process|updat|commit|sav|writ|chang|review|submit|"
    r"generat|handl|perform|answer|respond|add|gather|clos|merg|deploy|us)(?:ing|ying)"
)
_ALWAYS_ON = re.compile(
    rf"\b(?:after|before|upon|following|on|with|for|during) (?:[\w-]{{1,16}} ){{0,3}}(?:any|each|"
    rf"every|all) (?:[\w/-]{{1,24}} ){{0,4}}{_OBJECTS}\b|"
    rf"\b(?:after|before|once|upon|when|whenever) (?:you )?(?:are done |have )?{_COMPLETION_VERBS} "
    rf"(?:[\w/-]{{1,24}} ){{0,5}}{_OBJECTS}\b|"
    r"\b(?:each|every) time\b|\bwhenever\b|\bat the end of (?:each|every|any|the) (?:task|session|"
    r"run|conversation)\b|\b(?:always|must|make sure to|be sure to|remember to) (?:run|execute|"
    r"call|invoke|launch)\b|"
    r"(?:每次|任何|所有|每个|每当|一旦)[^\n。]{0,12}(?:任务|操作|编辑|修改|提交|请求|会话|文档|文件|更新)"
    r"[^\n。]{0,8}(?:后|前|时|完成|结束)|(?:务必|始终|总是|必须)(?:先)?(?:运行|执行|调用)",
    re.IGNORECASE,
)
_SCRIPT_PATH = re.compile(
    r"(?<![\w/])((?:[\w.-]{1,40}/){0,5}[\w-]{1,60}\.(?:sh|bash|py|js|mjs|cjs|ts|rb|pl|ps1|bat))\b"
)
_RUN_VERB = re.compile(
    r"\b(?:run|execut|call|invok|launch|start|us|python3?|bash|sh|node)\w{0,4}\b|运行|执行|调用",
    re.IGNORECASE,
)
_EXEMPTION = re.compile(
    r"\b(?:never|do not|don't|must not|should not|avoid|unless|ask (?:the user|first|before)|"
    r"if (?:the )?user (?:asks|wants|agrees|confirms|requests|says)|with (?:the )?user'?s? "
    r"(?:consent|approval|permission)|optional(?:ly)?|temp(?:orary)?|tmp|scratch|intermediate|"
    r"cached?|build artifacts?|node_modules|localhost|127\.0\.0\.1|example\.(?:com|org))\b|"
    r"不要|切勿|禁止|临时|询问用户|征得",
    re.IGNORECASE,
)
_HOST = re.compile(r"https?://((?:[a-z0-9-]{1,63}\.){1,5}[a-z]{2,12})", re.IGNORECASE)
_ADDRESS = re.compile(r"https?://\S{1,200}")
_TRANSFER_VERB = re.compile(
    r"\b(?:upload|send|forward|post|transmit|submit|push|sync|report|deliver|log|back ?up|backup|"
    r"mirror|cop(?:y|ies))\w{0,3}\b|上传|发送|转发|提交|同步|备份|上报|推送",
    re.IGNORECASE,
)
_DESTRUCTIVE = re.compile(
    r"\bgit\s+push\s[^\n`]{0,40}(?:--force\b(?!-with-lease)|-f\b)|\bgit\s+reset\s+--hard\b|"
    r"\bgit\s+clean\s+-\w{0,3}f|\bchmod\s+(?:-R\s+)?(?:0?777|a\+rwx|o\+w)\b|"
    r"\brm\s+-\w{0,3}r\w{0,3}\s+(?:-\w+\s+)?[\"']?(?:\./?\*|\.\./|\*|~|/|\$HOME)|"
    r"\brm\s+\$\(cat\b|"
    r"\bfind\s+[^\n|;`]{0,200}(?:-delete\b|-exec\s+rm\b)|"
    r"\b(?:delete|remove|erase|wipe|purge|discard|destroy|cancel)\b[^\n.]{0,30}\b(?:the originals?|"
    r"original (?:unencrypted |source )?(?:files?|documents?|copy|copies|versions?)|all other "
    r"(?:versions?|copies|files|events|entries|branches)|(?:all|any) (?:previous|prior|older|"
    r"earlier|future|remaining|existing|recurring) [\w-]{3,20}|files? older than|(?:files?|"
    r"documents?|entries|records|events|messages|backups?|branches) (?:that are |which are )?"
    r"older than|user(?:'s)? (?:files|data|documents|messages)|all (?:events|records|rows|"
    r"messages|e-?mails|backups|snapshots|branches|history))\b|"
    r"\bolder than \d+[^\n.]{0,30}\b(?:delete|remove|erase|wipe|purge)\b|"
    r"(?:删除|清除|清空|销毁|移除)[^\n。]{0,8}(?:原始?文件|原件|其他版本|所有(?:事件|记录|备份|邮件|历史)|旧文件|"
    r"用户(?:文件|数据))",
    re.IGNORECASE,
)
_HARMFUL_SCRIPT = (
    ("destroys", _DESTRUCTIVE),
    (
        "deletes",
        re.compile(
            r"\bos\.(?:remove|unlink)\(|\bshutil\.rmtree\(|\.unlink\(|\bfs\.(?:rm|unlink)\w{0,4}\(|"
            r"(?m:^|[;&|])\s{0,12}rm\s+(?:-\w+\s+)?[\"']?\$"
        ),
    ),
    ("redirects", re.compile(r"\bgit\s+remote\s+(?:add|set-url)\s[^\n]{0,120}")),
)  # fmt: skip
_DOCUMENT_ROLES: frozenset[LineRole] = frozenset(("instruction", "reference", "command"))
_CLEANS_OWN_FILES = re.compile(
    r"\btmp\b|temp|\bcache|mkdtemp|backup_dir|output_dir|\.pyc|__pycache__"
)
"""A program that removes what it made itself."""


def always_on_instructions(
    views: Sequence[TextFile], setting: SkillContext
) -> Iterator[tuple[TextFile, Hit]]:
    """Hold every standing order against what it has run or done."""
    documents = [view for view in views if view.place_of(1) in _DOCUMENT_ROLES]
    programs = {
        PurePosixPath(view.path).name.lower(): view
        for view in views
        if view.place_of(1) == "script"
    }
    told = "\n".join(view.lower for view in documents)
    rare = {name: view for name, view in programs.items() if told.count(name) <= MAX_MENTIONS}
    for view in documents:
        for line in _instruction_lines(view):
            level = _instruction_level(view, line, rare, setting)
            if level is not None:
                shown = view.raw_lines[line - 1].strip()
                yield view, Hit(rule=RULE, level=level, line=line, matched=shown)


def _instruction_lines(view: TextFile) -> Iterator[int]:
    """The lines of prose that order something for every use."""
    last = count = 0
    for match in _ALWAYS_ON.finditer(view.text):
        line = view.line_at(match.start())
        is_told_of = is_quoted(view.text, match.start(), match.end())
        if line == last or line <= view.front_end or is_told_of:
            continue
        last, count = line, count + 1
        if count > MAX_INSTRUCTIONS:
            return
        yield line


def _instruction_level(
    view: TextFile, line: int, programs: Mapping[str, TextFile], setting: SkillContext
) -> RiskLevel | None:
    block = _instruction_block(view, line)
    order = block[0]
    if _EXEMPTION.search(order):
        return None
    if not (
        any(map(_is_destructive, block))
        or _sends_to_undeclared_host(block, setting)
        or any(_runs_harmful_script(row, programs, setting) for row in block[:4])
    ):
        return None
    steps = int(setting.is_about_security) + int(view.place_of(line) == "reference")
    return lower_level("warn", steps)


def _instruction_block(view: TextFile, line: int) -> list[str]:
    """An order and the lines that belong to it: up to the next heading, or the next paragraph."""
    rows = [view.lines[line - 1][:MAX_LINE]]
    if view.place_of(line) == "command":
        return rows
    for row in view.lines[line : line + MAX_BLOCK_LINES]:
        if row.lstrip().startswith("#") and not rows[0].lstrip().startswith("#"):
            break
        rows.append(row[:MAX_LINE])
    return rows


def _is_destructive(row: str) -> bool:
    return bool(_DESTRUCTIVE.search(row)) and not _EXEMPTION.search(row)


def _sends_to_undeclared_host(block: Sequence[str], setting: SkillContext) -> bool:
    """Say whether a block sends something to an address of which the skill does not speak."""
    return any(
        (NETWORK_SEND.search(row) or _TRANSFER_VERB.search(_ADDRESS.sub(" ", row)))
        and not _EXEMPTION.search(row)
        and _has_undeclared_host(row, setting)
        for row in block
    )


def _has_undeclared_host(text: str, setting: SkillContext) -> bool:
    return any(not is_declared_host(match[1].lower(), setting) for match in _HOST.finditer(text))


def _runs_harmful_script(row: str, programs: Mapping[str, TextFile], setting: SkillContext) -> bool:
    """Say whether a line has a program of the skill run that does harm."""
    if not _RUN_VERB.search(_SCRIPT_PATH.sub(" ", row)):
        return False
    for match in _SCRIPT_PATH.finditer(row):
        view = programs.get(PurePosixPath(match[1]).name.lower())
        if view is not None and _is_harmful_script(view.text[:MAX_SCRIPT_CHARS], setting):
            return True
    return False


def _is_harmful_script(program: str, setting: SkillContext) -> bool:
    if NETWORK_SEND.search(program) and _has_undeclared_host(program, setting):
        return True
    for kind, harm in _HARMFUL_SCRIPT:
        if harm.search(program) and not (
            kind == "deletes" and _CLEANS_OWN_FILES.search(program.lower())
        ):
            return True
    return False
