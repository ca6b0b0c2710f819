"""Sentences that send somebody's data elsewhere and give a reason, or ask for silence.

No single word of theirs is bad. What counts is what stands together in one line: a way of moving
things, what is moved or where it goes, and a pretext, or the wish that nobody hears of it.
"""

import re
from collections.abc import Iterator

from apexbridge.vetting.patterns import Hit, Setting, is_quoted
from apexbridge.vetting.rulebook import Level, lowered
from apexbridge.vetting.view import View

MAX_LINE = 700
MAX_LINES = 2_000
"""How many lines of one file are weighed."""

_MOVES = re.compile(
    r"\b(?:sends?|sending|sent|upload\w{0,3}|post(?:s|ed|ing)?|transmit\w{0,4}|"
    r"forward(?:s|ed|ing)?|submit\w{0,4}|exfiltrat\w{1,4}|sync(?:s|ed|ing|hroni[sz]\w{1,4})?|"
    r"push(?:es|ed|ing)?|relay\w{0,3}|deliver\w{0,3}|back(?:s|ed|ing)?[ -]?up|backups?|"
    r"mirror(?:s|ed|ing)?|stream(?:s|ed|ing)?|publish\w{0,3}|report(?:s|ed|ing)? (?:to|back)|"
    r"log(?:s|ged|ging)? to|cop(?:y|ies|ied) to|route[sd]?|routing|register(?:s|ed|ing)?|"
    r"beacon|phone home|ping(?:s|ed)?)\b|发送|上传|提交|传送|转发|上报|回传|同步|备份|推送",
    re.IGNORECASE,
)
_SECRETS = re.compile(
    r"\b(?:credentials?|(?:access|auth|oauth|session|refresh|api|bearer|login)[ _-]?tokens?|"
    r"secrets?|(?:api|ssh|private|access|encryption|signing)[ _-]?keys?|passwords?|"
    r"passphrases?|seed phrases?|mnemonics?|cookies?|environment variables?|env vars?|wallet|"
    r"keychain)\b|\.env\b|\.ssh\b|\.aws\b|密钥|密码|凭据|凭证|令牌|环境变量|私钥|助记词",
    re.IGNORECASE,
)
_DATA = re.compile(
    r"\b(?:conversations?|chat (?:history|logs?)|prompts?|user(?:'s)? (?:input|data|messages?|"
    r"quer(?:y|ies)|information|files?|code|documents?|content|requests?|details|profile)|"
    r"(?:document|file|message|e-?mail|page) (?:contents?|text|summar(?:y|ies)|bod(?:y|ies)|"
    r"data)|source code|codebase|transcripts?|summar(?:y|ies)|(?:project|session|usage|"
    r"document|system|workspace|repository|environment|device|host|machine) (?:metadata|data|"
    r"info(?:rmation)?|context|details|state|files?)|"
    r"screenshots?|clipboard|deliverables|search queries|extracted (?:text|data|content)|"
    r"personal(?:ly)? (?:data|info\w{0,10})|customer (?:data|records)|financial (?:data|"
    r"records)|browsing history|git (?:history|config|remotes?))\b|"
    r"对话|聊天记录|用户(?:数据|输入|文件|信息)|源代码|文件内容|系统信息",
    re.IGNORECASE,
)
_ELSEWHERE = re.compile(
    r"https?://(?!localhost|127\.|0\.0\.0\.0)|\b(?:endpoint|webhook|remote (?:server|host|url|"
    r"service)|external (?:server|service|api|endpoint|url|host)|third[- ]party|collector|"
    r"proxy|gateway|relay|cloud (?:storage|backup|endpoint|service)|bucket|public (?:page|url|"
    r"gist)|(?:backup|recovery|compliance|validation|verification|audit|logging|analytics|"
    r"monitoring|telemetry|tracking|reporting|status) (?:server|service|api|endpoint|url|host|"
    r"proxy|page|portal|dashboard|system))\b|远程服务器|外部(?:服务|接口|地址)|第三方|端点",
    re.IGNORECASE,
)
_PRETEXT = re.compile(
    r"\bfor (?:[\w-]{1,20} ){0,3}(?:transparency|compliance|audit\w{0,8}|quality|continuity|"
    r"backups?|redundancy|recovery|monitoring|observability|analytics|telemetry|diagnostics?|"
    r"debugging|verification|validation|completeness|fidelity|compatibility|"
    r"optimi[sz]ation|tracking|billing|attribution|traceability|improvement|reliability|"
    r"logging|synchroni[sz]ation|personali[sz]ation|licens\w{1,4}|reproducib\w{1,5}|"
    r"consistency|convenience)\b|\b(?:disaster[- ]recovery|business continuity|"
    r"quality assurance|regulatory|soc ?2|gdpr|hipaa|nist|defen[sc]e-in-depth|"
    r"audit (?:trail|purposes|tracking)|usage analytics|improve (?:the |our )?(?:service|"
    r"quality|skill|model|experience|accuracy))\b|合规|审计|遥测|为了(?:改进|提升|确保|保证)",
    re.IGNORECASE,
)
_SILENCE = re.compile(
    r"\b(?:silent(?:ly)?|quietly|covertly|secretly|discreetly|invisibly|stealthily|"
    r"in the background|behind the scenes|without (?:asking|telling|informing|notifying|"
    r"prompting|the user|user|confirmation|any output|interrupting|alerting)|"
    r"no (?:output|notification|user interaction|confirmation)|(?:do not|don't) (?:mention|"
    r"tell|inform|notify|alert|reveal)|transparent to the user|not visible)\b|"
    r"悄悄|静默|暗中|不要(?:告诉|提及|显示|通知)|无需(?:告知|确认)",
    re.IGNORECASE,
)
_URGED = re.compile(
    r"\b(?:always|must|mandatory|required|automatically|every time|each time|before (?:any|"
    r"every|each|starting|responding|proceeding)|after (?:each|every|any|completing|finishing|"
    r"processing)|on (?:startup|completion|every)|do not skip|never skip)\b|"
    r"必须|务必|自动|每次|始终",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"\b(?:never|must not|should not|shouldn't|avoid|refuse|prevent|unless|(?:do not|don't) "
    r"(?!mention|tell|inform|notify|alert|reveal|ask)|to (?:your |the )?(?:human|"
    r"user))\b|不要(?!告诉|提及|显示|通知)|禁止|切勿|避免",
    re.IGNORECASE,
)


def errands(view: View, setting: Setting) -> Iterator[Hit]:
    """Lines of prose that give an errand to which nobody agreed."""
    if view.place_of(1) == "script":
        return
    for line, reason in _reasoned(view):
        text = _line(view, line)
        if view.place_of(line) not in {"instruction", "reference"} or _is_front(text):
            continue
        level = _weight(text, reason)
        if level is None or _DENIED.search(text):
            continue
        start = view.starts[line - 1]
        steps = int(setting.is_about_security) + int(is_quoted(view.text, start, start + len(text)))
        yield Hit(rule="AB065", level=lowered(level, steps), line=line, matched=text.strip())


def _reasoned(view: View) -> Iterator[tuple[int, re.Pattern[str]]]:
    """The lines that give a reason, ask for silence or name another place, once for each."""
    for reason in (_PRETEXT, _SILENCE, _ELSEWHERE):
        last = 0
        for count, match in enumerate(reason.finditer(view.text)):
            if count >= MAX_LINES:
                break
            line = view.line_at(match.start())
            if line != last:
                yield line, reason
            last = line


def _line(view: View, line: int) -> str:
    return view.text[view.starts[line - 1] : view.end_of(line)][:MAX_LINE]


def _is_front(text: str) -> bool:
    """Say whether a line describes a skill; what it says openly is no errand."""
    return text.startswith("description:")


def _weight(text: str, reason: re.Pattern[str]) -> Level | None:
    moves, elsewhere = _MOVES.search(text), _ELSEWHERE.search(text)
    secrets = _SECRETS.search(text)
    if reason is _ELSEWHERE:
        return "review" if moves and (secrets or _DATA.search(text)) else None
    if moves and (elsewhere or secrets or _DATA.search(text)):
        return "warn"
    if reason is _PRETEXT and elsewhere and (secrets or _URGED.search(text)):
        return "warn"
    return None
