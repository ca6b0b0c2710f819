"""Files that a request names, also where Chinese stands close about them. Pure."""

import re
from collections.abc import Iterator

MAX_CHARS = 2_000
_HAN = "\u4e00-\u9fff"
_TOKEN = re.compile(
    rf"[`'\"“「](?P<quoted>[^`'\"“”「」\n]{{1,200}})[`'\"”」]|(?P<plain>[\w./~{_HAN}-]{{1,200}})"
)
_ENDS = re.compile(r"\.[A-Za-z0-9]{1,8}(?![A-Za-z0-9_.-]*[A-Za-z0-9_-])")
_SUFFIX = re.compile(r"\.(?=[a-z0-9]{0,7}[a-z])[a-z0-9]{1,8}$", re.IGNORECASE)
_LEADING = re.compile(
    r"^(?:请|麻烦|帮忙|帮我|给我|把|将|用|对|给|从|和|与|及|跟|分析|汇总|总结|统计|处理|整理|读取|读|打开|查看|"
    r"显示|看看|看|检查|转换|运行|画|为|根据|一下|文件|表格|这个|关于|里|中|的|成|做)+"
)
_HAN_THEN_WORD = re.compile(rf"[{_HAN}]+(?=[A-Za-z_~./][\w./~-]*\.[A-Za-z0-9]+$)")
_HOST = re.compile(r"(?:www\.|[\w-]+\.(?:com|org|net|io|cn|gov|edu|dev|ai)$)", re.IGNORECASE)
_ABBREVIATIONS = frozenset({"e.g", "i.e", "a.m", "p.m", "u.s", "no.", "vs.", "etc."})


def is_file(name: str) -> bool:
    """Say whether this looks like the name of a file: no version, host or abbreviation.

    >>> [is_file(name) for name in ("a.csv", "v1.2", "example.com", "e.g")]
    [True, False, False, False]
    """
    has_suffix = _SUFFIX.search(name) is not None
    return has_suffix and not _HOST.match(name) and name.lower() not in _ABBREVIATIONS


def named_files(text: str) -> tuple[str, ...]:
    """Files that a request names, each once."""
    return tuple(dict.fromkeys(_named(text[:MAX_CHARS])))


def _named(text: str) -> Iterator[str]:
    for match in _TOKEN.finditer(text):
        if match["quoted"]:
            yield from filter(is_file, [match["quoted"].strip()])
        elif "//" not in match["plain"]:
            yield from _in_token(match["plain"])


def _in_token(token: str) -> Iterator[str]:
    """Names in what is written without a space; each ends with its suffix."""
    start = 0
    for end in _ENDS.finditer(token):
        name = _LEADING.sub("", token[start : end.end()], count=1)
        start = end.end()
        if before := _HAN_THEN_WORD.match(name):
            name = name[before.end() :]
        if is_file(name):
            yield name
