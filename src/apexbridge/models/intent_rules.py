"""Intent detection by regular expressions: requests that map to exactly one built-in tool.

Pure functions for English and Chinese, without a language model.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apexbridge.models import intent_patterns

MAX_FILE_TEXT_CHARS = 2_000
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


def is_file_name(name: str) -> bool:
    """Say whether a text looks like a file name: no version, host or abbreviation.

    >>> [is_file_name(name) for name in ("a.csv", "v1.2", "example.com", "e.g")]
    [True, False, False, False]
    """
    has_suffix = _SUFFIX.search(name) is not None
    return has_suffix and not _HOST.match(name) and name.lower() not in _ABBREVIATIONS


def extract_file_names(text: str) -> tuple[str, ...]:
    """Extract the file names in a request, without duplicates."""
    return tuple(dict.fromkeys(_find_file_names(text[:MAX_FILE_TEXT_CHARS])))


def _find_file_names(text: str) -> Iterator[str]:
    for match in _TOKEN.finditer(text):
        if match["quoted"]:
            yield from filter(is_file_name, [match["quoted"].strip()])
        elif "//" not in match["plain"]:
            yield from _file_names_in_token(match["plain"])


def _file_names_in_token(token: str) -> Iterator[str]:
    """Yield the file names in a token; Chinese text may surround them without a space."""
    start = 0
    for end in _ENDS.finditer(token):
        name = _LEADING.sub("", token[start : end.end()], count=1)
        start = end.end()
        if before := _HAN_THEN_WORD.match(name):
            name = name[before.end() :]
        if is_file_name(name):
            yield name


_QUESTION_PREFIX = re.compile(
    r"(?:what(?:'s| is| does)|how much (?:is|are)|calculate|compute|evaluate|work out|solve|"
    r"the result of|result of|tell me|show me|计算一下|计算|算一下|算算|算|求|等于)\s*[:：]?\s*",
    re.IGNORECASE,
)
_QUESTION_SUFFIX = re.compile(
    r"\s*(?:equals?|equal to|make|等于多少|等于几|是多少|得多少|的结果是多少|"
    r"的结果是什么|的结果|得几|等于|=)$",
    re.IGNORECASE,
)
_WORDS = (
    ("divided by", "/"), ("multiplied by", "*"), ("to the power of", "**"), ("times", "*"),
    ("plus", "+"), ("minus", "-"), ("mod", "%"), ("over", "/"), ("加上", "+"), ("加", "+"),
    ("减去", "-"), ("减", "-"), ("乘以", "*"), ("乘", "*"), ("除以", "/"),
)  # fmt: skip
_OPERATORS = tuple(
    (re.compile(rf"(?<=[\d)%])\s*{word}\s*(?=[\d(-])", re.IGNORECASE), f" {sign} ")
    for word, sign in _WORDS
)
_SIGNS = str.maketrans("（）×✕÷＋－＊／−·", "()**/+-*/-*")
_PERCENT_OF = re.compile(r"(\d[\d,.]*)\s?%\s*(?:of|的|\*)\s*(?=[\d(])", re.IGNORECASE)
_PERCENT_OF_CHINESE = re.compile(r"^(\d[\d,.]*)\s?的\s?(?:百分之)?(\d[\d.]*)\s?%?$")
_ROOT = re.compile(
    r"^(?:the )?square root of\s+(\d[\d,.]*)$|^(\d[\d.]*)\s?的(?:算术)?平方根$", re.IGNORECASE
)
_SQUARE = re.compile(r"^(\d[\d.]*)\s?(?:squared|的平方)$", re.IGNORECASE)
_FUNCTION = r"(?:sqrt|abs|log10|log2|log|ln|exp|sin|cos|tan|round|factorial|min|max|mean|gcd)"
_WHOLE_EXPRESSION = re.compile(rf"(?:{_FUNCTION}(?=\s?\()|[\d\s.,+*/%^()!-])+", re.IGNORECASE)
_HAS_OPERATOR = re.compile(rf"\d\s?[)!%]*\s?[-+*/%^]|\d\s?!|{_FUNCTION}\s?\(", re.IGNORECASE)
_NOT_ARITHMETIC = re.compile(
    r"\d{4}-\d{1,2}-\d{1,2}|\d{1,4}/\d{1,2}/\d{1,4}|\d+(?:\.\d+){2,}|"  # dates and versions
    r"\b\d{3,4}-\d{4,8}\b|\b\d{1,3}-\d{3}-\d{3,4}|\d-\d+-\d|"  # telephone numbers
    r"^(?:24/7|7/24|50/50|9/11|80/20)$|[\d.]\s+[\d.]|[-+*/%^(,]\s*$"  # idioms
)


def arithmetic_expression(text: str) -> str:
    """Extract the expression that a request consists of; empty if it is anything else.

    >>> arithmetic_expression("what is 3 plus 4")
    '3 + 4'
    >>> arithmetic_expression("what is 24/7 support")
    ''
    """
    rest = _QUESTION_SUFFIX.sub("", text.translate(_SIGNS)).strip()
    while found := _QUESTION_PREFIX.match(rest):
        rest = rest[found.end() :]
    for pattern, sign in _OPERATORS:
        rest = pattern.sub(sign, rest)
    rest = _PERCENT_OF.sub(r"\1 / 100 * ", rest.strip())
    rest = _PERCENT_OF_CHINESE.sub(r"\1 * \2 / 100", rest)
    rest = _ROOT.sub(lambda found: f"sqrt({found[1] or found[2]})", rest)
    rest = _SQUARE.sub(r"\1 ** 2", rest).strip()
    is_sum = _WHOLE_EXPRESSION.fullmatch(rest) and _HAS_OPERATOR.search(rest)
    if not is_sum or _NOT_ARITHMETIC.search(rest) or rest.count("(") != rest.count(")"):
        return ""
    return rest


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolIntent:
    """Tool call that a request asks for."""

    tool: str
    arguments: Mapping[str, Any]


MAX_INTENT_CHARS = 300
"""A longer request asks for more than one tool call."""

_POLITE, _ENDING = intent_patterns.compile_patterns(intent_patterns.POLITE, intent_patterns.ENDING)
_NOW = intent_patterns.compile_patterns(*intent_patterns.NOW)
_PLATFORM = intent_patterns.compile_patterns(*intent_patterns.PLATFORM)
_READ = intent_patterns.compile_patterns(*intent_patterns.READ)
_GLOB = intent_patterns.compile_patterns(*intent_patterns.GLOB)
_GREP = intent_patterns.compile_patterns(*intent_patterns.GREP)
_SMALL_TALK = intent_patterns.compile_patterns(*intent_patterns.SMALL_TALK)
_DESTRUCTION = intent_patterns.compile_patterns(*intent_patterns.DESTRUCTIVE_REQUEST)
_SPECIAL = re.compile(r"[\\.^$*+?{}\[\]|()]")
_FOLDERS = ("/", "./", "../", "~/")


def detect_intent(text: str) -> ToolIntent | None:
    """Detect the one built-in tool call that a request asks for.

    >>> detect_intent("What is 17 * 23?")
    ToolIntent(tool='Calculate', arguments={'expression': '17 * 23'})
    >>> detect_intent("现在几点") == ToolIntent(tool="Now", arguments={})
    True
    >>> detect_intent("What time does it begin?") is None
    True
    """
    request = _strip_politeness(text)
    intents = (detect(request) for detect in _DETECTORS)
    return next((intent for intent in intents if intent is not None), None) if request else None


def is_small_talk(text: str) -> bool:
    """Say whether a request is small talk: a greeting, thanks, "who are you".

    >>> is_small_talk("Hello!"), is_small_talk("Hello world in Rust")
    (True, False)
    """
    return _full_match(_SMALL_TALK, _strip_politeness(text)) is not None


def is_destructive_request(text: str) -> bool:
    """Say whether a request is to delete files or folders, and nothing else.

    >>> [is_destructive_request(text) for text in ("Delete everything in /etc.", "Remove rows")]
    [True, False]
    """
    return _full_match(_DESTRUCTION, _strip_politeness(text)) is not None


def is_chinese(text: str) -> bool:
    """Say whether a request is written in Chinese."""
    return len(re.findall(r"[\u4e00-\u9fff]", text)) * 3 >= len(re.findall(r"[A-Za-z]+", text)) + 1


def _strip_politeness(text: str) -> str:
    """Strip polite phrases from a request; empty if it is long."""
    request = " ".join(text[: 2 * MAX_INTENT_CHARS].replace("’", "'").split())
    if len(text) > MAX_INTENT_CHARS:
        return ""
    while (found := _POLITE.match(request)) and found.end() < len(request):
        request = request[found.end() :]
    while (found := _ENDING.search(request)) and found.start() > 0:
        request = request[: found.start()]
    return request.strip()


def _full_match(looks: Sequence[re.Pattern[str]], text: str) -> re.Match[str] | None:
    found = (look.fullmatch(text) for look in looks)
    return next((match for match in found if match is not None), None)


def _first_group(match: re.Match[str], *names: str) -> str:
    """Return the text of the first of these named groups that matched."""
    groups = match.groupdict()
    return next((groups[name] for name in names if groups.get(name)), "")


def _arithmetic_intent(text: str) -> ToolIntent | None:
    found = arithmetic_expression(text)
    return ToolIntent(tool="Calculate", arguments={"expression": found}) if found else None


def _time_intent(text: str) -> ToolIntent | None:
    match = _full_match(_NOW, text)
    if match is None:
        return None
    place = _first_group(match, "place")
    zone = intent_patterns.CITY_TIME_ZONES.get(place.lower(), place.replace(" ", ""))
    return ToolIntent(tool="Now", arguments={"timezone": zone} if zone else {})


def _platform_intent(text: str) -> ToolIntent | None:
    return ToolIntent(tool="Platform", arguments={}) if _full_match(_PLATFORM, text) else None


def _grep_intent(text: str) -> ToolIntent | None:
    match = _full_match(_GREP, text)
    if match is None:
        return None
    literal = _SPECIAL.sub(r"\\\g<0>", _first_group(match, "quoted", "word"))
    return ToolIntent(tool="Grep", arguments={"pattern": literal})


def _glob_intent(text: str) -> ToolIntent | None:
    match = _full_match(_GLOB, text)
    if match is None:
        return None
    kind = intent_patterns.FILE_KINDS.get(_first_group(match, "kind").lower(), "")
    pattern = _first_group(match, "pattern") or (f"**/*.{kind}" if kind else "**/*")
    return ToolIntent(tool="Glob", arguments={"pattern": pattern})


def _read_intent(text: str) -> ToolIntent | None:
    match = _full_match(_READ, text)
    if match is None:
        return None
    path = match["path"].strip("`'\"“”「」")
    is_named = (
        is_file_name(path)
        or path.lower() in intent_patterns.DOTLESS_FILE_NAMES
        or path.startswith(_FOLDERS)
    )
    is_address = "://" in path
    return (
        ToolIntent(tool="Read", arguments={"file_path": path})
        if is_named and not is_address
        else None
    )


_DETECTORS: tuple[Callable[[str], ToolIntent | None], ...] = (
    _grep_intent, _arithmetic_intent, _time_intent, _platform_intent, _glob_intent, _read_intent,
)  # fmt: skip
