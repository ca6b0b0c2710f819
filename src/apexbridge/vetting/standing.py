"""Standing orders: what is to be done at every use, whatever was asked for, and does harm.

A line that says "after any change, run this program" is harmless by its words. What counts is what
is run: a program that hands files to an address the skill does not speak of, deletes what it did
not make, opens rights to everybody or pushes by force does not belong to every use of a skill.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from apexbridge.vetting.hosts import is_spoken_of
from apexbridge.vetting.patterns import Hit, Setting, is_quoted
from apexbridge.vetting.rulebook import Level, lowered
from apexbridge.vetting.units import SENDS
from apexbridge.vetting.view import Place, View

RULE = "AB076"
REACH = 8
"""How many lines after a standing order belong to it."""

MAX_ORDERS = 200
"""How many standing orders of one file are weighed."""

OFTEN = 2
"""A program that the documents name more often than this is what the skill is made for."""

MAX_LINE = 700
MAX_PROGRAM = 200_000
"""How many characters of a program are looked at."""

_OBJECTS = (
    r"(?:tasks?|operations?|changes?|edits?|documents?|files?|commits?|requests?|sessions?|"
    r"responses?|answers?|runs?|steps?|jobs?|messages?|quer(?:y|ies)|use|uses|invocations?|"
    r"actions?|deletions?|updates?|conversations?|turns?|work|outputs?|results?|calls?|"
    r"datasets?|data|entr(?:y|ies)|events?|reports?|projects?)"
)
_DONE = (
    r"(?:finish|complet|edit|mak|creat|modif|process|updat|commit|sav|writ|chang|review|submit|"
    r"generat|handl|perform|answer|respond|add|gather|clos|merg|deploy|us)(?:ing|ying)"
)
_STANDING = re.compile(
    rf"\b(?:after|before|upon|following|on|with|for|during) (?:[\w-]{{1,16}} ){{0,3}}(?:any|each|"
    rf"every|all) (?:[\w/-]{{1,24}} ){{0,4}}{_OBJECTS}\b|"
    rf"\b(?:after|before|once|upon|when|whenever) (?:you )?(?:are done |have )?{_DONE} "
    rf"(?:[\w/-]{{1,24}} ){{0,5}}{_OBJECTS}\b|"
    r"\b(?:each|every) time\b|\bwhenever\b|\bat the end of (?:each|every|any|the) (?:task|session|"
    r"run|conversation)\b|\b(?:always|must|make sure to|be sure to|remember to) (?:run|execute|"
    r"call|invoke|launch)\b|"
    r"(?:每次|任何|所有|每个|每当|一旦)[^\n。]{0,12}(?:任务|操作|编辑|修改|提交|请求|会话|文档|文件|更新)"
    r"[^\n。]{0,8}(?:后|前|时|完成|结束)|(?:务必|始终|总是|必须)(?:先)?(?:运行|执行|调用)",
    re.IGNORECASE,
)
_PROGRAM = re.compile(
    r"(?<![\w/])((?:[\w.-]{1,40}/){0,5}[\w-]{1,60}\.(?:sh|bash|py|js|mjs|cjs|ts|rb|pl|ps1|bat))\b"
)
_RUNS = re.compile(
    r"\b(?:run|execut|call|invok|launch|start|us|python3?|bash|sh|node)\w{0,4}\b|运行|执行|调用",
    re.IGNORECASE,
)
_REFUSED = re.compile(
    r"\b(?:never|do not|don't|must not|should not|avoid|unless|ask (?:the user|first|before)|"
    r"if (?:the )?user (?:asks|wants|agrees|confirms|requests|says)|with (?:the )?user'?s? "
    r"(?:consent|approval|permission)|optional(?:ly)?|temp(?:orary)?|tmp|scratch|intermediate|"
    r"cached?|build artifacts?|node_modules|localhost|127\.0\.0\.1|example\.(?:com|org))\b|"
    r"不要|切勿|禁止|临时|询问用户|征得",
    re.IGNORECASE,
)
_HOST = re.compile(r"https?://((?:[a-z0-9-]{1,63}\.){1,5}[a-z]{2,12})", re.IGNORECASE)
_ADDRESS = re.compile(r"https?://\S{1,200}")
_HANDS_OVER = re.compile(
    r"\b(?:upload|send|forward|post|transmit|submit|push|sync|report|deliver|log|back ?up|backup|"
    r"mirror|cop(?:y|ies))\w{0,3}\b|上传|发送|转发|提交|同步|备份|上报|推送",
    re.IGNORECASE,
)
_DESTROYS = re.compile(
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
_HARMFUL_PROGRAM = (
    ("destroys", _DESTROYS),
    (
        "deletes",
        re.compile(
            r"\bos\.(?:remove|unlink)\(|\bshutil\.rmtree\(|\.unlink\(|\bfs\.(?:rm|unlink)\w{0,4}\(|"
            r"(?m:^|[;&|])\s{0,12}rm\s+(?:-\w+\s+)?[\"']?\$"
        ),
    ),
    ("redirects", re.compile(r"\bgit\s+remote\s+(?:add|set-url)\s[^\n]{0,120}")),
)  # fmt: skip
_SPOKEN: frozenset[Place] = frozenset(("instruction", "reference", "command"))
_TIDIES = re.compile(r"\btmp\b|temp|\bcache|mkdtemp|backup_dir|output_dir|\.pyc|__pycache__")
"""A program that removes what it made itself."""


def standing_orders(views: Sequence[View], setting: Setting) -> Iterator[tuple[View, Hit]]:
    """Hold every standing order against what it has run or done."""
    documents = [view for view in views if view.place_of(1) in _SPOKEN]
    programs = {
        PurePosixPath(view.path).name.lower(): view
        for view in views
        if view.place_of(1) == "script"
    }
    told = "\n".join(view.lower for view in documents)
    rare = {name: view for name, view in programs.items() if told.count(name) <= OFTEN}
    for view in documents:
        for line in _orders(view):
            level = _weight(view, line, rare, setting)
            if level is not None:
                shown = view.raw_lines[line - 1].strip()
                yield view, Hit(rule=RULE, level=level, line=line, matched=shown)


def _orders(view: View) -> Iterator[int]:
    """The lines of prose that order something for every use."""
    last = count = 0
    for match in _STANDING.finditer(view.text):
        line = view.line_at(match.start())
        is_told_of = is_quoted(view.text, match.start(), match.end())
        if line == last or line <= view.front_end or is_told_of:
            continue
        last, count = line, count + 1
        if count > MAX_ORDERS:
            return
        yield line


def _weight(view: View, line: int, programs: Mapping[str, View], setting: Setting) -> Level | None:
    block = _block(view, line)
    order = block[0]
    if _REFUSED.search(order):
        return None
    if not (
        any(map(_is_harmful_act, block))
        or _hands_over(block, setting)
        or any(_runs_harm(row, programs, setting) for row in block[:4])
    ):
        return None
    steps = int(setting.is_about_security) + int(view.place_of(line) == "reference")
    return lowered("warn", steps)


def _block(view: View, line: int) -> list[str]:
    """An order and the lines that belong to it: up to the next heading, or the next paragraph."""
    rows = [view.lines[line - 1][:MAX_LINE]]
    if view.place_of(line) == "command":
        return rows
    for row in view.lines[line : line + REACH]:
        if row.lstrip().startswith("#") and not rows[0].lstrip().startswith("#"):
            break
        rows.append(row[:MAX_LINE])
    return rows


def _is_harmful_act(row: str) -> bool:
    return bool(_DESTROYS.search(row)) and not _REFUSED.search(row)


def _hands_over(block: Sequence[str], setting: Setting) -> bool:
    """Say whether a block sends something to an address of which the skill does not speak."""
    return any(
        (SENDS.search(row) or _HANDS_OVER.search(_ADDRESS.sub(" ", row)))
        and not _REFUSED.search(row)
        and _foreign_host(row, setting)
        for row in block
    )


def _foreign_host(text: str, setting: Setting) -> bool:
    return any(not is_spoken_of(match[1].lower(), setting) for match in _HOST.finditer(text))


def _runs_harm(row: str, programs: Mapping[str, View], setting: Setting) -> bool:
    """Say whether a line has a program of the skill run that does harm."""
    if not _RUNS.search(_PROGRAM.sub(" ", row)):
        return False
    for match in _PROGRAM.finditer(row):
        view = programs.get(PurePosixPath(match[1]).name.lower())
        if view is not None and _does_harm(view.text[:MAX_PROGRAM], setting):
            return True
    return False


def _does_harm(program: str, setting: Setting) -> bool:
    if SENDS.search(program) and _foreign_host(program, setting):
        return True
    for kind, harm in _HARMFUL_PROGRAM:
        if harm.search(program) and not (kind == "deletes" and _TIDIES.search(program.lower())):
            return True
    return False
