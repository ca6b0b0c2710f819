"""Intent detection by regular expressions: requests that map to exactly one built-in tool.

Pure functions for English and Chinese, without a language model.
"""

import json
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

MAX_FILE_TEXT_CHARS = 2_000
_ENDS = re.compile(r"\.[A-Za-z0-9]{1,8}(?![A-Za-z0-9_.-]*[A-Za-z0-9_-])")
_HAN_THEN_WORD = re.compile(r"[\u4e00-\u9fff]+(?=[A-Za-z_~./][\w./~-]*\.[A-Za-z0-9]+$)")
_ABBREVIATIONS = frozenset({"e.g", "i.e", "a.m", "p.m", "u.s", "no.", "vs.", "etc."})
_SIGNS = str.maketrans("（）×✕÷＋－＊／−·", "()**/+-*/-*")
_SPECIAL = re.compile(r"[\\.^$*+?{}\[\]|()]")
_FOLDERS = ("/", "./", "../", "~/")


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


@cache
def _patterns(name: str) -> tuple[re.Pattern[str], ...]:
    """Compile the patterns of a name in `intent_rules.toml`, which is read by the first request."""
    return tuple(
        re.compile(_expand(pattern), re.IGNORECASE) for pattern in _tables()["patterns"][name]
    )


def _expand(pattern: str) -> str:
    """Join the lines of a pattern and replace the names of fragments by their patterns."""
    joined = "".join(line.strip() for line in pattern.splitlines())
    return re.sub(r"\{([a-z_]+)\}", lambda found: _expand(_fragments()[found[1]]), joined)


@cache
def _fragments() -> Mapping[str, str]:
    tables = _tables()
    names = {"city_names": tables["time_zones"], "kind_names": tables["file_kinds"]}
    # Longer names first: an alternation takes the first that matches.
    alternations = {
        name: "|".join(sorted(words, key=len, reverse=True)) for name, words in names.items()
    }
    return {**tables["fragments"], **alternations}


@cache
def _operators() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Compile the operators in words; they stand between two operands."""
    return tuple(
        (re.compile(rf"(?<=[\d)%])\s*{word}\s*(?=[\d(-])", re.IGNORECASE), f" {sign} ")
        for word, sign in _tables()["operators"].items()
    )


def _pattern(name: str) -> re.Pattern[str]:
    return _patterns(name)[0]


def is_file_name(name: str) -> bool:
    """Say whether a text looks like a file name: no version, host or abbreviation.

    >>> [is_file_name(name) for name in ("a.csv", "v1.2", "example.com", "e.g")]
    [True, False, False, False]
    """
    has_suffix = _pattern("file_suffix").search(name) is not None
    return (
        has_suffix and not _pattern("host_name").match(name) and name.lower() not in _ABBREVIATIONS
    )


def extract_file_names(text: str) -> tuple[str, ...]:
    """Extract the file names in a request, without duplicates."""
    return tuple(dict.fromkeys(_find_file_names(text[:MAX_FILE_TEXT_CHARS])))


def _find_file_names(text: str) -> Iterator[str]:
    for match in _pattern("file_token").finditer(text):
        if match["quoted"]:
            yield from filter(is_file_name, [match["quoted"].strip()])
        elif "//" not in match["plain"]:
            yield from _file_names_in_token(match["plain"])


def _file_names_in_token(token: str) -> Iterator[str]:
    """Yield the file names in a token; Chinese text may surround them without a space."""
    start = 0
    for end in _ENDS.finditer(token):
        name = _pattern("file_prefix").sub("", token[start : end.end()], count=1)
        start = end.end()
        if before := _HAN_THEN_WORD.match(name):
            name = name[before.end() :]
        if is_file_name(name):
            yield name


def arithmetic_expression(text: str) -> str:
    """Extract the expression that a request consists of; empty if it is anything else.

    >>> arithmetic_expression("what is 3 plus 4")
    '3 + 4'
    >>> arithmetic_expression("what is 24/7 support")
    ''
    """
    rest = _pattern("question_suffix").sub("", text.translate(_SIGNS)).strip()
    while found := _pattern("question_prefix").match(rest):
        rest = rest[found.end() :]
    for pattern, sign in _operators():
        rest = pattern.sub(sign, rest)
    rest = _pattern("percent_of").sub(r"\1 / 100 * ", rest.strip())
    rest = _pattern("percent_of_chinese").sub(r"\1 * \2 / 100", rest)
    rest = _pattern("square_root").sub(lambda found: f"sqrt({found[1] or found[2]})", rest)
    rest = _pattern("square").sub(r"\1 ** 2", rest).strip()
    is_sum = _full_match("whole_expression", rest) and _pattern("operator").search(rest)
    if not is_sum or rest.count("(") != rest.count(")"):
        return ""
    return "" if any(other.search(rest) for other in _patterns("not_arithmetic")) else rest


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolIntent:
    """Tool call that a request asks for."""

    tool: str
    arguments: Mapping[str, Any]


MAX_INTENT_CHARS = 300
"""A longer request asks for more than one tool call."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillRun:
    """A skill that a request names to be run, with the arguments for its script."""

    name: str
    arguments: tuple[str, ...] = ()
    is_exact: bool = False
    """True if the arguments are a list, and not words that may also be a sentence."""


def detect_skill_run(text: str) -> SkillRun | None:
    """Detect the request to run one skill by its name.

    >>> detect_skill_run('executeSkill("greet", ["Ada"])')
    SkillRun(name='greet', arguments=('Ada',), is_exact=True)
    >>> detect_skill_run("Please run the skill greet with Ada").arguments
    ('Ada',)
    """
    match = _full_match("run_skill", _strip_politeness(text))
    if match is None:
        return None
    listed = _first_group(match, "list")
    if not listed:
        words = _split_words(_first_group(match, "words"))
        return SkillRun(name=match["name"], arguments=words)
    try:
        parsed = json.loads(listed)
    except ValueError:
        return None
    items = [parsed] if isinstance(parsed, str) else parsed
    return SkillRun(name=match["name"], arguments=tuple(map(str, items)), is_exact=True)


def _split_words(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError:  # an apostrophe that opens no quotation
        return tuple(text.split())


def is_small_talk(text: str) -> bool:
    """Say whether a request is small talk: a greeting, thanks, "who are you".

    >>> is_small_talk("Hello!"), is_small_talk("Hello world in Rust")
    (True, False)
    """
    return _full_match("small_talk", _strip_politeness(text)) is not None


def is_destructive_request(text: str) -> bool:
    """Say whether a request is to delete files or folders, and nothing else.

    >>> [is_destructive_request(text) for text in ("Delete everything in /etc.", "Remove rows")]
    [True, False]
    """
    return _full_match("destructive_request", _strip_politeness(text)) is not None


def is_chinese(text: str) -> bool:
    """Say whether a request is written in Chinese."""
    return len(re.findall(r"[\u4e00-\u9fff]", text)) * 3 >= len(re.findall(r"[A-Za-z]+", text)) + 1


def _strip_politeness(text: str) -> str:
    """Strip polite phrases from a request; empty if it is long."""
    request = " ".join(text[: 2 * MAX_INTENT_CHARS].replace("’", "'").split())
    if len(text) > MAX_INTENT_CHARS:
        return ""
    while (found := _pattern("polite").match(request)) and found.end() < len(request):
        request = request[found.end() :]
    while (found := _pattern("ending").search(request)) and found.start() > 0:
        request = request[: found.start()]
    return request.strip()


def _full_match(name: str, text: str) -> re.Match[str] | None:
    found = (pattern.fullmatch(text) for pattern in _patterns(name))
    return next((match for match in found if match is not None), None)


def _first_group(match: re.Match[str], *names: str) -> str:
    """Return the text of the first of these named groups that matched."""
    groups = match.groupdict()
    return next((groups[name] for name in names if groups.get(name)), "")


def _arithmetic_intent(text: str) -> ToolIntent | None:
    found = arithmetic_expression(text)
    return ToolIntent(tool="Calculate", arguments={"expression": found}) if found else None


def _time_intent(text: str) -> ToolIntent | None:
    match = _full_match("now", text)
    if match is None:
        return None
    place = _first_group(match, "place")
    zone = _tables()["time_zones"].get(place.lower(), place.replace(" ", ""))
    return ToolIntent(tool="Now", arguments={"timezone": zone} if zone else {})


def _platform_intent(text: str) -> ToolIntent | None:
    return ToolIntent(tool="Platform", arguments={}) if _full_match("platform", text) else None


def _grep_intent(text: str) -> ToolIntent | None:
    match = _full_match("grep", text)
    if match is None:
        return None
    literal = _SPECIAL.sub(r"\\\g<0>", _first_group(match, "quoted", "word"))
    return ToolIntent(tool="Grep", arguments={"pattern": literal})


def _glob_intent(text: str) -> ToolIntent | None:
    match = _full_match("glob", text)
    if match is None:
        return None
    kind = _tables()["file_kinds"].get(_first_group(match, "kind").lower(), "")
    pattern = _first_group(match, "pattern") or (f"**/*.{kind}" if kind else "**/*")
    return ToolIntent(tool="Glob", arguments={"pattern": pattern})


def _read_intent(text: str) -> ToolIntent | None:
    match = _full_match("read", text)
    if match is None:
        return None
    path = match["path"].strip("`'\"“”「」")
    is_named = (
        is_file_name(path)
        or path.lower() in _tables()["dotless_file_names"]
        or path.startswith(_FOLDERS)
    )
    is_read = is_named and "://" not in path
    return ToolIntent(tool="Read", arguments={"file_path": path}) if is_read else None


_DETECTORS: tuple[Callable[[str], ToolIntent | None], ...] = (
    _grep_intent, _arithmetic_intent, _time_intent, _platform_intent, _glob_intent, _read_intent,
)  # fmt: skip
