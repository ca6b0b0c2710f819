"""What belongs together in one block or program: secrets read here, and sent there. Pure."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from apexbridge.vetting.leaks import DROPS, GUARDED_PATHS, GUARDED_WORDS, STORE_WORDS, STORES
from apexbridge.vetting.patterns import Hit, Setting
from apexbridge.vetting.rulebook import Level, lowered
from apexbridge.vetting.view import Unit, View

NEAR = 40
"""In a program, how many lines may lie between reading and sending."""

_SECRET = re.compile(
    rf"{GUARDED_PATHS}|{STORES}|(?<![\w.])\.env(?:\.\w{{1,12}})?(?=[\"'\s),;|]|"
    rf"$)(?!\s{{0,3}}(?:file|example))|\*\.pem\b|\*\.key\b|\bcredentials\*|\.mykey\b",
    re.IGNORECASE,
)
_READS = re.compile(
    r"\b(?:cat|cp|tar|zip|find|grep|head|tail|base64|xxd|rsync|scp|Get-Content|type|less|awk|"
    r"sed)\b|open\(|read_text|read_bytes|readFile|createReadStream|\.read\(|copyfile|sqlite3|"
    r"glob|walk\(|@~|@\$HOME|-d\s{0,2}@|-F\s",
    re.IGNORECASE,
)
_ALL_OF_IT = re.compile(
    r"(?:json\.dumps|dict)\s{0,2}\(\s{0,2}(?:dict\()?os\.environ\b|"
    r"JSON\.stringify\s{0,2}\(\s{0,2}process\.env\s{0,2}[,)]|(?:^|[;&|(`$])\s{0,4}(?:env|"
    r"printenv)\s{0,3}(?:\||>|\))|/proc/self/environ|Get-ChildItem\s+env:",
    re.IGNORECASE,
)
SENDS = re.compile(
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
_HOME = re.compile(r"localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\]", re.IGNORECASE)
_DROP = re.compile(DROPS, re.IGNORECASE)
_CLOAKS = re.compile(
    r"\bbase64\b|b64encode|btoa\(|toString\(['\"]base64|\bxor\b|\bgzip\b|openssl enc|"
    r">\s{0,2}/dev/null\s+2>&1",
    re.IGNORECASE,
)


WAYS_OUT = (
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
_SOURCE_WORDS = (
    *GUARDED_WORDS.split(),
    *(word.replace("_", " ") for word in STORE_WORDS.split()),
    ".env", "*.pem", "*.key", "credentials", ".mykey", "environ", "process.env", "printenv",
    "env ", "env|", "env>", "env)", "env:",
)  # fmt: skip
"""Without one of these nothing secret is read; a quick look saves a slow one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A line of a unit that is no comment."""

    number: int
    text: str


def units_of(view: View, setting: Setting) -> Iterator[Hit]:
    """Look for reading and sending in every block and program."""
    for unit in view.units:
        whole = view.lower[view.starts[unit.first - 1] : view.end_of(unit.last)]
        if not any(word in whole for word in WAYS_OUT):
            continue
        if not any(word in whole for word in _SOURCE_WORDS):
            continue
        rows = _rows(view, unit)
        sends = _numbers(row for row in rows if _is_sending(row.text))
        near = [row for row in rows if sends and _distance(row.number, sends) <= NEAR]
        sources = _numbers(row for row in near if _ALL_OF_IT.search(row.text))
        secrets = _numbers(row for row in near if _SECRET.search(row.text))
        if secrets and any(_READS.search(row.text) for row in rows):
            sources += secrets
        if not sources:
            continue
        distance, line = min((_distance(source, sends), source) for source in sources)
        is_close = distance <= 12 or any(map(_is_furtive, rows))
        level: Level = "block" if is_close else "warn"
        if unit.place == "reference":
            level = lowered(level)
        if setting.is_about_security and unit.place != "script":
            level = lowered(level, 2)
        yield Hit(rule="AB021", level=level, line=line, matched=view.lines[line - 1].strip())


def _rows(view: View, unit: Unit) -> list[_Row]:
    lines = enumerate(view.lines[unit.first - 1 : unit.last], unit.first)
    return [
        _Row(number=number, text=line[:2_000])
        for number, line in lines
        if line.strip() and not _is_comment(line, unit.language)
    ]


def _numbers(rows: Iterable[_Row]) -> list[int]:
    return [row.number for row in rows]


def _is_sending(line: str) -> bool:
    small = line.lower()
    if not any(word in small for word in WAYS_OUT):
        return False
    return bool(SENDS.search(line)) and not _HOME.search(line)


def _is_furtive(row: _Row) -> bool:
    """Say whether a line hides what is sent, or names a place where anybody can drop things."""
    return bool(_CLOAKS.search(row.text) or _DROP.search(row.text))


def _distance(line: int, others: Sequence[int]) -> int:
    """How far the nearest of some lines is away; they stand in order."""
    at = bisect_left(others, line)
    return min(abs(line - other) for other in others[max(0, at - 1) : at + 1])


def _is_comment(line: str, language: str) -> bool:
    start = line.lstrip()[:2]
    return start == "//" if language == "javascript" else start.startswith("#")
