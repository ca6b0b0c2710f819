"""What belongs together in one block or program: secrets read here, and sent there. Pure."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from apexbridge.scanner.pattern_matcher import Hit, SkillContext, is_quoted
from apexbridge.scanner.rules import RiskLevel, lower_level, regex
from apexbridge.scanner.scan_input import CodeBlock, TextFile

MAX_LINE_DISTANCE = 40
"""In a program, how many lines may lie between reading and sending."""

_SECRET_PATHS = (
    "{{credential_paths}}",
    "{{credential_stores}}",
    r"(?<![\w.])\.env(?:\.\w{1,12})?(?=[\"'\s),;|]|$)(?!\s{0,3}(?:file|example))",
    r"\*\.pem\b",
    r"\*\.key\b",
    r"\bcredentials\*",
    r"\.mykey\b",
)
_READS = re.compile(
    r"\b(?:cat|cp|tar|zip|find|grep|head|tail|base64|xxd|rsync|scp|Get-Content|type|less|awk|"
    r"sed)\b|open\(|read_text|read_bytes|readFile|createReadStream|\.read\(|copyfile|sqlite3|"
    r"glob|walk\(|@~|@\$HOME|-d\s{0,2}@|-F\s",
    re.IGNORECASE,
)
_FULL_ENVIRONMENT = re.compile(
    r"(?:json\.dumps|dict)\s{0,2}\(\s{0,2}(?:dict\()?os\.environ\b|"
    r"JSON\.stringify\s{0,2}\(\s{0,2}process\.env\s{0,2}[,)]|(?:^|[;&|(`$])\s{0,4}(?:env|"
    r"printenv)\s{0,3}(?:\||>|\))|/proc/self/environ|Get-ChildItem\s+env:",
    re.IGNORECASE,
)
NETWORK_SEND = re.compile(
    r"\b(?:curl|wget)\b[^\n]{0,300}(?:\s-d\b|--data\b|--data-\w{3,10}|\s-F\b|--form|\s-T\b|"
    r"--upload-file|--post-\w{4}|-X\s?P(?:OS|U)T)|"
    r"\b(?:requests|httpx|session|client|axios|http|urllib3?)\.(?:post|put)\s{0,2}\(|"
    r"\burlopen\s{0,2}\([^\n]{0,80}data|\burllib\.request\.Request\s{0,2}\([^\n]{0,160}(?:data|"
    r"POST)|method\s{0,2}[:=]\s{0,2}[\"']P(?:OS|U)T[\"']|"
    r"\.send(?:all|to)?\s{0,2}\(|\bsendmail\b|\bsmtplib\b|\bInvoke-(?:WebRequest|"
    r"RestMethod)\b[^\n]{0,160}-(?:Body|Method\s+Post)|\b(?:nc|"
    r"ncat)\s+(?:-\w{1,4}\s+)?[\w.-]{4,60}\s+\d{2,5}|\bscp\s[^\n]{0,120}\w@[\w.]|"
    r"\bhttps?\.request\s{0,2}\(|\bsendBeacon\(",
    re.IGNORECASE,
)
_LOOPBACK = re.compile(r"localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\]", re.IGNORECASE)
_OBFUSCATION = re.compile(
    r"\bbase64\b|b64encode|btoa\(|toString\(['\"]base64|\bxor\b|\bgzip\b|openssl enc|"
    r">\s{0,2}/dev/null\s+2>&1",
    re.IGNORECASE,
)


SEND_HINTS = (
    "curl",
    "wget",
    "post",
    "put",
    "send",
    "smtp",
    "invoke-",
    "nc ",
    "ncat",
    "scp ",
    "request",
)
_SOURCE_HINTS = (
    ".ssh", "id_rsa", "id_ed25519", "id_ecdsa", "id_dsa", ".aws", ".netrc", ".npmrc", ".pypirc",
    "git-credentials", ".docker", ".kube", "gcloud", "application_default", ".azure", ".gnupg",
    ".pgpass", "vault-token", "hosts", "/etc/shadow", "/etc/passwd", "password-store",
    "credentials", ".openclaw", "auth.json", "login data", "cookies", "logins.json", "key4",
    "local state", "chrome", "application support", "firefox", "brave", "keychain", "find-generic",
    "find-internet", "secretstorage", "win32crypt", "cryptunprotect", "browser cookie3",
    "wallet.dat", "electrum", "bitcoin", "ethereum", "exodus", "atomic", "metamask", "phantom",
    "nkbih", "solana", "keystore",
    ".env", "*.pem", "*.key", "credentials", ".mykey", "environ", "process.env", "printenv",
    "env ", "env|", "env>", "env)", "env:",
)  # fmt: skip
"""Without one of these nothing secret is read; a quick look saves a slow one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _CodeLine:
    """A line of a unit that is no comment."""

    number: int
    text: str


def secret_exfiltration(view: TextFile, setting: SkillContext) -> Iterator[Hit]:
    """Look for reading and sending in every block and program."""
    for unit in view.units:
        whole = view.lower[view.starts[unit.first - 1] : view.end_of(unit.last)]
        if not any(word in whole for word in SEND_HINTS):
            continue
        if not any(word in whole for word in _SOURCE_HINTS):
            continue
        rows = _code_lines(view, unit)
        sends = _line_numbers(row for row in rows if _is_sending(row.text))
        near = [
            row
            for row in rows
            if sends and _nearest_distance(row.number, sends) <= MAX_LINE_DISTANCE
        ]
        sources = _line_numbers(row for row in near if _FULL_ENVIRONMENT.search(row.text))
        secret_path = regex(*_SECRET_PATHS)
        secrets = _line_numbers(row for row in near if secret_path.search(row.text))
        if secrets and any(_READS.search(row.text) for row in rows):
            sources += secrets
        if not sources:
            continue
        distance, line = min((_nearest_distance(source, sends), source) for source in sources)
        is_close = distance <= 12 or any(map(_is_obfuscated, rows))
        level: RiskLevel = "block" if is_close else "warn"
        if unit.place == "reference":
            level = lower_level(level)
        if setting.is_about_security and unit.place != "script":
            level = lower_level(level, 2)
        yield Hit(rule="AB021", level=level, line=line, matched=view.lines[line - 1].strip())


def _code_lines(view: TextFile, unit: CodeBlock) -> list[_CodeLine]:
    lines = enumerate(view.lines[unit.first - 1 : unit.last], unit.first)
    return [
        _CodeLine(number=number, text=line[:2_000])
        for number, line in lines
        if line.strip() and not _is_comment(line, unit.language)
    ]


def _line_numbers(rows: Iterable[_CodeLine]) -> list[int]:
    return [row.number for row in rows]


def _is_sending(line: str) -> bool:
    small = line.lower()
    if not any(word in small for word in SEND_HINTS):
        return False
    return bool(NETWORK_SEND.search(line)) and not _LOOPBACK.search(line)


def _is_obfuscated(row: _CodeLine) -> bool:
    """Say whether a line hides what is sent, or names a place where anybody can drop things."""
    return bool(_OBFUSCATION.search(row.text) or regex("{{drop_sites}}").search(row.text))


def _nearest_distance(line: int, others: Sequence[int]) -> int:
    """How far the nearest of some lines is away; they stand in order."""
    at = bisect_left(others, line)
    return min(abs(line - other) for other in others[max(0, at - 1) : at + 1])


def _is_comment(line: str, language: str) -> bool:
    start = line.lstrip()[:2]
    return start == "//" if language == "javascript" else start.startswith("#")


HOST_WINDOW = 6
"""In how many lines before sending the address may stand."""

MAX_SENDS = 200

_HOST = re.compile(r"https?://((?:[a-z0-9-]{1,63}\.){1,5}[a-z]{2,12})", re.IGNORECASE)
_PLACEHOLDER_HOSTS = re.compile(r"example|localhost|your|placeholder|\.local$|\.test$|\.internal$")
_WELL_KNOWN_HOSTS = re.compile(
    r"github|gitlab|google|openai|anthropic|slack|microsoft|amazonaws|azure|telegram|discord|"
    r"notion|stripe|huggingface|cloudflare|atlassian|linear\.app|figma|twitter|x\.com|linkedin|"
    r"facebook|graph\.|paypal|squareup|twilio|sendgrid|mailgun|resend|hubapi|digitalocean|"
    r"jsonplaceholder|httpbin|brave\.com|feishu|dingtalk|aliyun|qq\.com|weixin|baidu"
)
_GENERIC_LABELS = frozenset(
    {"api", "www", "com", "app", "dev", "cloud", "org", "net", "hooks", "data"}
)


def undeclared_hosts(view: TextFile, setting: SkillContext) -> Iterator[Hit]:
    """Where data is sent to an address whose owner is not what the skill is about."""
    seen = set[str]()
    for unit in view.units:
        if unit.place not in {"command", "script"}:
            continue
        for line in _sending_lines(view, unit.first, unit.last):
            around = view.lines[max(unit.first, line - HOST_WINDOW) - 1 : line + 2]
            for match in _HOST.finditer("\n".join(row[:2_000] for row in around)):
                host = match[1].lower()
                if host in seen or len(seen) >= MAX_SENDS or is_declared_host(host, setting):
                    continue
                seen.add(host)
                yield Hit(rule="AB065", level="review", line=line, matched=host)


def _sending_lines(view: TextFile, first: int, last: int) -> Iterator[int]:
    count = 0
    for number in range(first, last + 1):
        line = view.lines[number - 1][:2_000]
        small = line.lower()
        if (
            count < MAX_SENDS
            and any(word in small for word in SEND_HINTS)
            and NETWORK_SEND.search(line)
        ):
            count += 1
            yield number


def is_declared_host(host: str, setting: SkillContext) -> bool:
    """Say whether a host is well known, made up, or one of whose words the skill tells."""
    if _PLACEHOLDER_HOSTS.search(host) or _WELL_KNOWN_HOSTS.search(host):
        return True
    words = set(re.split(r"[.-]", host)[:-1]) - _GENERIC_LABELS
    return any(len(word) > 2 and word in setting.subject for word in words)


MAX_PROSE_LINE = 700
MAX_PROSE_LINES = 2_000
"""How many lines of one file are weighed."""

_TRANSFER_VERBS = re.compile(
    r"\b(?:sends?|sending|sent|upload\w{0,3}|post(?:s|ed|ing)?|transmit\w{0,4}|"
    r"forward(?:s|ed|ing)?|submit\w{0,4}|exfiltrat\w{1,4}|sync(?:s|ed|ing|hroni[sz]\w{1,4})?|"
    r"push(?:es|ed|ing)?|relay\w{0,3}|deliver\w{0,3}|back(?:s|ed|ing)?[ -]?up|backups?|"
    r"mirror(?:s|ed|ing)?|stream(?:s|ed|ing)?|publish\w{0,3}|report(?:s|ed|ing)? (?:to|back)|"
    r"log(?:s|ged|ging)? to|cop(?:y|ies|ied) to|route[sd]?|routing|register(?:s|ed|ing)?|"
    r"beacon|phone home|ping(?:s|ed)?)\b|发送|上传|提交|传送|转发|上报|回传|同步|备份|推送",
    re.IGNORECASE,
)
_SECRET_NOUNS = re.compile(
    r"\b(?:credentials?|(?:access|auth|oauth|session|refresh|api|bearer|login)[ _-]?tokens?|"
    r"secrets?|(?:api|ssh|private|access|encryption|signing)[ _-]?keys?|passwords?|"
    r"passphrases?|seed phrases?|mnemonics?|cookies?|environment variables?|env vars?|wallet|"
    r"keychain)\b|\.env\b|\.ssh\b|\.aws\b|密钥|密码|凭据|凭证|令牌|环境变量|私钥|助记词",
    re.IGNORECASE,
)
_DATA_NOUNS = re.compile(
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
_EXTERNAL_DESTINATION = re.compile(
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
_SECRECY = re.compile(
    r"\b(?:silent(?:ly)?|quietly|covertly|secretly|discreetly|invisibly|stealthily|"
    r"in the background|behind the scenes|without (?:asking|telling|informing|notifying|"
    r"prompting|the user|user|confirmation|any output|interrupting|alerting)|"
    r"no (?:output|notification|user interaction|confirmation)|(?:do not|don't) (?:mention|"
    r"tell|inform|notify|alert|reveal)|transparent to the user|not visible)\b|"
    r"悄悄|静默|暗中|不要(?:告诉|提及|显示|通知)|无需(?:告知|确认)",
    re.IGNORECASE,
)
_MANDATORY = re.compile(
    r"\b(?:always|must|mandatory|required|automatically|every time|each time|before (?:any|"
    r"every|each|starting|responding|proceeding)|after (?:each|every|any|completing|finishing|"
    r"processing)|on (?:startup|completion|every)|do not skip|never skip)\b|"
    r"必须|务必|自动|每次|始终",
    re.IGNORECASE,
)
_NEGATION = re.compile(
    r"\b(?:never|must not|should not|shouldn't|avoid|refuse|prevent|unless|(?:do not|don't) "
    r"(?!mention|tell|inform|notify|alert|reveal|ask)|to (?:your |the )?(?:human|"
    r"user))\b|不要(?!告诉|提及|显示|通知)|禁止|切勿|避免",
    re.IGNORECASE,
)


def exfiltration_requests(view: TextFile, setting: SkillContext) -> Iterator[Hit]:
    """Lines of prose that give an errand to which nobody agreed."""
    if view.place_of(1) == "script":
        return
    for line, reason in _suspicious_lines(view):
        text = _line_text(view, line)
        if view.place_of(line) not in {"instruction", "reference"} or _is_description(text):
            continue
        level = _request_level(text, reason)
        if level is None or _NEGATION.search(text):
            continue
        start = view.starts[line - 1]
        steps = int(setting.is_about_security) + int(is_quoted(view.text, start, start + len(text)))
        yield Hit(rule="AB065", level=lower_level(level, steps), line=line, matched=text.strip())


def _suspicious_lines(view: TextFile) -> Iterator[tuple[int, re.Pattern[str]]]:
    """The lines that give a reason, ask for silence or name another place, once for each."""
    for reason in (_PRETEXT, _SECRECY, _EXTERNAL_DESTINATION):
        last = 0
        for count, match in enumerate(reason.finditer(view.text)):
            if count >= MAX_PROSE_LINES:
                break
            line = view.line_at(match.start())
            if line != last:
                yield line, reason
            last = line


def _line_text(view: TextFile, line: int) -> str:
    return view.text[view.starts[line - 1] : view.end_of(line)][:MAX_PROSE_LINE]


def _is_description(text: str) -> bool:
    """Say whether a line describes a skill; what it says openly is no errand."""
    return text.startswith("description:")


def _request_level(text: str, reason: re.Pattern[str]) -> RiskLevel | None:
    moves, elsewhere = _TRANSFER_VERBS.search(text), _EXTERNAL_DESTINATION.search(text)
    secrets = _SECRET_NOUNS.search(text)
    if reason is _EXTERNAL_DESTINATION:
        return "review" if moves and (secrets or _DATA_NOUNS.search(text)) else None
    if moves and (elsewhere or secrets or _DATA_NOUNS.search(text)):
        return "warn"
    if reason is _PRETEXT and elsewhere and (secrets or _MANDATORY.search(text)):
        return "warn"
    return None
