"""Options of a skill's script that a request plainly asks for. Pure.

An option counts where the skill's text writes it with a value (`--by COLUMN`, `--chart bar|line`)
and the request says its name: "by region", "top 5", "a line chart".
"""

import re
from collections.abc import Collection, Iterator

from apexbridge.models.wishes import is_chinese

MAX_CHARS = 2_000
_DOCUMENTED = re.compile(
    r"--(?P<name>[a-z][a-z0-9-]{1,30})[ =](?P<value>[A-Z][A-Z_-]*|[a-z0-9]+(?:\\?\|[a-z0-9]+)+)"
)
_CUES = {"by": r"按照?|根据", "top": r"前|最大的|最高的"}
"""How the names of common options are said in Chinese."""
_QUOTED = r"[`'\"“「](?P<quoted>[^`'\"“”「」\n]{1,60})[`'\"”」]"
_VALUE = rf"(?:{_QUOTED}|(?P<plain>[A-Za-z0-9][\w.-]{{0,59}}))"
_HAN_VALUE = (
    rf"(?:{_QUOTED}|(?P<plain>[A-Za-z0-9_]{{1,40}}|[\u4e00-\u9fff]{{1,8}}?))"
    r"(?=[\s,，。;；]|合计|统计|分组|汇总|求和|计算|排序|画|来|做|的|名|个|$)"
)
_EMPTY_WORDS = frozenset({
    "a", "an", "the", "this", "that", "it", "each", "every", "all", "and", "or", "of", "me", "you",
    "using", "making", "default", "now", "then", "年", "月", "日", "天", "周", "季",
})  # fmt: skip
_NUMBERS = frozenset({"N", "NUMBER", "COUNT", "INT"})
_LANGUAGES = frozenset({"lang", "language", "locale"})


def script_options(
    request: str, skill_text: str, files: Collection[str] = (), *, is_sure: bool = False
) -> tuple[str, ...]:
    """The options as arguments of the script; nothing that is one of the files.

    Where it must be sure, only those whose values the skill itself lists.

    >>> script_options("Totals of a.csv by region", "`--by COLUMN`  `--top N`", ["a.csv"])
    ('--by', 'region')
    >>> script_options("前5名", "`--by COLUMN`  `--top N`")
    ('--top', '5')
    """
    found = dict[str, str]()
    for option in _DOCUMENTED.finditer(skill_text):
        value = _wanted(option["name"], option["value"], request[:MAX_CHARS])
        is_listed = "|" in option["value"]
        if value and value not in files and (is_listed or not is_sure):
            found.setdefault(option["name"], value)
    return tuple(word for name, value in found.items() for word in (f"--{name}", value))


def _wanted(name: str, value: str, request: str) -> str:
    choices = re.split(r"\\?\|", value) if "|" in value else []
    if name in _LANGUAGES:
        return "zh" if "zh" in choices and is_chinese(request) else ""
    if choices:
        return next((c for c in choices if _said_beside(c, name, request)), "")
    values = _values(name, request)
    return next((v for v in values if value not in _NUMBERS or v.isdecimal()), "")


def _said_beside(choice: str, name: str, request: str) -> bool:
    """`line` of `--chart` counts in "a line chart" and in "chart: line", not in "the last line"."""
    one, other = re.escape(choice), re.escape(name)
    pattern = rf"\b(?:{one}[ -]{other}|{other}(?:[ :=]+| as (?:an? )?){one})\b"
    return re.search(pattern, request, re.IGNORECASE) is not None


def _values(name: str, request: str) -> Iterator[str]:
    spoken = re.escape(name).replace(r"\-", "[ -]")
    patterns = [rf"(?<![\w-]){spoken}[ :=]+(?:the )?{_VALUE}"]
    if name in _CUES:
        patterns.append(rf"(?:{_CUES[name]}) ?{_HAN_VALUE}")
    for pattern in patterns:
        for match in re.finditer(pattern, request, re.IGNORECASE):
            value = match["quoted"] or match["plain"].rstrip(".-")
            if value.lower() not in _EMPTY_WORDS:
                yield value
