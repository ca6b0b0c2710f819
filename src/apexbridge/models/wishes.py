"""What a request plainly asks for, told by its words, in English and Chinese. Pure.

Only what cannot be meant otherwise counts: a wish that is missed is looked for among the skills.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A call of a tool that a request asks for."""

    tool: str
    arguments: Mapping[str, Any]


_MAX_CHARS = 2_000
_CHINESE_OPERATORS = {
    "加上": "+", "加": "+", "减去": "-", "减": "-", "乘以": "*", "乘": "*", "除以": "/",
    "×": "*", "✕": "*", "÷": "/", "＋": "+", "－": "-", "＊": "*", "／": "/", "（": "(", "）": ")",
    "−": "-", "·": "*",
}  # fmt: skip
_WORD_OPERATORS = {
    "divided by": "/", "multiplied by": "*", "times": "*", "plus": "+", "minus": "-",
    "to the power of": "**", "mod": "%",
}  # fmt: skip
_NUMBER = r"\d[\d,]*(?:\.\d+)?%?"
_FUNCTION = r"(?:sqrt|abs|log10|log2|log|ln|exp|sin|cos|tan|round|factorial|min|max)"
_OPEN = rf"(?:{_FUNCTION}\s?)?\(\s*"
_OPERAND = rf"(?:{_OPEN}){{0,8}}[-+]?{_NUMBER}\s*(?:\)\s*){{0,8}}"
_EXPRESSION = re.compile(
    rf"{_OPERAND}(?:(?:\*\*|//|[-+*/%^,])\s*{_OPERAND})+|{_FUNCTION}\s?\([^()\n]*\)"
)
_DATE_LIKE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}|\d{1,2}/\d{1,2}/\d{2,4}|\d+(?:\.\d+){2,}")
_ASKS_SUM = re.compile(
    r"计算|算一下|算算|等于|结果|多少|calculate|compute|what(?:'s| is)|how much|evaluate|solve|"
    r"=\s*\??\s*$",
    re.IGNORECASE,
)
_TIME = re.compile(
    r"几点|什么时间|现在.{0,4}时间|当前.{0,4}时间|今天.{0,4}(?:几号|日期|星期|周几|几月)|现在.{0,3}日期|"
    r"当前日期|星期几|\bwhat(?:'s| is)? (?:the )?(?:current )?(?:time|date|day)\b|"
    r"\bcurrent (?:time|date)\b|\btime is it\b|\bwhat day\b|\btoday'?s date\b|\btime in\b",
    re.IGNORECASE,
)
_PLATFORM = re.compile(
    r"操作系统|什么系统|系统信息|运行平台|平台信息|什么平台|python ?版本|几核|多少核|"
    r"\bwhat (?:os|operating system|platform|system)\b|\bplatform (?:info|information|details)\b|"
    r"\boperating system\b|\bsystem info|\bpython version\b|\bhow many (?:cpus?|cores)\b",
    re.IGNORECASE,
)
_PATH = r"[\w\-./~\u4e00-\u9fff]*[\w\-\u4e00-\u9fff]\.[A-Za-z0-9]{1,8}"
_READ = re.compile(
    rf"(?:\b(?:read|show|open|print|cat|display)\b(?: me)?(?: the)?(?: file| contents? of)?|"
    rf"读取|读一下|查看|打开|显示)\s*(?:文件)?\s*[`'\"“「]?(?P<path>{_PATH})[`'\"”」]?",
    re.IGNORECASE,
)
_GLOB = re.compile(
    r"\b(?:list|show|find|which)\b[^.\n]{0,30}\bfiles?\b|列出.{0,10}文件|有哪些文件|查找.{0,12}文件",
    re.IGNORECASE,
)
_PATTERN = re.compile(r"(?<![\w*])(\*\*?[\w./*-]*\.[A-Za-z0-9*]{1,8})|\.([A-Za-z0-9]{1,6})\b 文件")
_KIND = re.compile(
    r"\b(python|markdown|csv|json|yaml|toml|text|javascript|typescript|html|css)\b", re.IGNORECASE
)
_SUFFIXES = {
    "python": "py", "markdown": "md", "text": "txt", "javascript": "js", "typescript": "ts",
}  # fmt: skip
_GREP = re.compile(
    r"(?:\b(?:grep|search)(?: the files| the code)? for\b|\bwhich files (?:contain|mention)\b|"
    r"搜索(?:文件(?:内容|中)?)?|查找包含|哪些文件(?:包含|提到))\s*[`'\"“「](?P<text>[^`'\"”」\n]{1,200})",
    re.IGNORECASE,
)
_ZONES = {
    "北京": "Asia/Shanghai", "上海": "Asia/Shanghai", "beijing": "Asia/Shanghai",
    "shanghai": "Asia/Shanghai", "东京": "Asia/Tokyo", "tokyo": "Asia/Tokyo",
    "纽约": "America/New_York", "new york": "America/New_York", "伦敦": "Europe/London",
    "london": "Europe/London", "巴黎": "Europe/Paris", "paris": "Europe/Paris",
    "柏林": "Europe/Berlin", "berlin": "Europe/Berlin", "utc": "UTC", "悉尼": "Australia/Sydney",
    "sydney": "Australia/Sydney", "旧金山": "America/Los_Angeles", "san francisco":
    "America/Los_Angeles", "los angeles": "America/Los_Angeles", "洛杉矶": "America/Los_Angeles",
    "新加坡": "Asia/Singapore", "singapore": "Asia/Singapore", "首尔": "Asia/Seoul",
    "seoul": "Asia/Seoul", "莫斯科": "Europe/Moscow", "moscow": "Europe/Moscow",
}  # fmt: skip


def plain_wish(text: str) -> Wish | None:
    """The one thing that a request plainly asks a built-in tool for.

    >>> plain_wish("What is 17 * 23?")
    Wish(tool='Calculate', arguments={'expression': '17 * 23'})
    >>> plain_wish("现在几点") == Wish(tool="Now", arguments={})
    True
    >>> plain_wish("Write a poem") is None
    True
    """
    request = text.strip()[:_MAX_CHARS]
    for look in _LOOKS:
        wish = look(request)
        if wish is not None:
            return wish
    return None


def _calculate(text: str) -> Wish | None:
    sums = text
    for word, sign in _CHINESE_OPERATORS.items():
        sums = re.sub(rf"(?<=[\d)）])\s*{re.escape(word)}\s*(?=[\d(（-])", f" {sign} ", sums)
    for word, sign in _WORD_OPERATORS.items():
        sums = re.sub(rf"(?<=[\d)])\s+{word}\s+(?=[\d(-])", f" {sign} ", sums, flags=re.IGNORECASE)
    sums = re.sub(rf"({_NUMBER[:-2]})\s*%\s+of\s+", r"\1 / 100 * ", sums)
    sums = sums.translate(str.maketrans({"（": "(", "）": ")", "×": "*", "÷": "/"}))
    if _DATE_LIKE.search(sums):
        return None
    found = max((m[0].strip(" ,") for m in _EXPRESSION.finditer(sums)), key=len, default="")
    rest = sums.replace(found, "").strip(" ?？。.=！!：:")
    if not found or not (_ASKS_SUM.search(sums) or len(rest) <= 2):
        return None
    return Wish(tool="Calculate", arguments={"expression": found})


def _now(text: str) -> Wish | None:
    if not _TIME.search(text):
        return None
    zone = next((zone for place, zone in _ZONES.items() if place in text.lower()), "")
    return Wish(tool="Now", arguments={"timezone": zone} if zone else {})


def _platform(text: str) -> Wish | None:
    return Wish(tool="Platform", arguments={}) if _PLATFORM.search(text) else None


def _grep(text: str) -> Wish | None:
    match = _GREP.search(text)
    return Wish(tool="Grep", arguments={"pattern": re.escape(match["text"])}) if match else None


def _glob(text: str) -> Wish | None:
    if not _GLOB.search(text):
        return None
    match = _PATTERN.search(text)
    if match:
        return Wish(tool="Glob", arguments={"pattern": match[1] or f"**/*.{match[2]}"})
    kind = _KIND.search(text)
    suffix = _SUFFIXES.get(kind[1].lower(), kind[1].lower()) if kind else "*"
    return Wish(tool="Glob", arguments={"pattern": f"**/*.{suffix}" if kind else "**/*"})


def _read(text: str) -> Wish | None:
    match = _READ.search(text)
    rest = text.replace(match[0], "").strip(" ?？。.!！") if match else ""
    # More words than these ask for more than to see the file.
    return (
        Wish(tool="Read", arguments={"file_path": match["path"]})
        if match and len(rest) <= 12
        else None
    )


_LOOKS: tuple[Callable[[str], Wish | None], ...] = (
    _grep, _calculate, _now, _platform, _read, _glob,
)  # fmt: skip

_ARGUMENT = re.compile(rf"[`'\"“「](?P<quoted>[^`'\"”」\n]{{1,300}})[`'\"”」]|(?P<path>{_PATH})")


def named_files(text: str) -> tuple[str, ...]:
    """Files that a request names, each once."""
    return tuple(dict.fromkeys(_named(text[:_MAX_CHARS])))


def _named(text: str) -> Iterator[str]:
    for match in _ARGUMENT.finditer(text):
        found = match["quoted"] or match["path"]
        if re.fullmatch(_PATH, found):
            yield found


def is_chinese(text: str) -> bool:
    """Say whether a request is written in Chinese."""
    return len(re.findall(r"[\u4e00-\u9fff]", text)) * 3 >= len(re.findall(r"[A-Za-z]+", text)) + 1
