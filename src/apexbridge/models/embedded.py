"""Embedded model: a deterministic rule-based model client that needs no API key.

It detects intents for the built-in tools, searches skills for all other requests, runs the script
of a clearly fitting one, and says when it can do no more. It never poses as a language model.
"""

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from apexbridge import locales
from apexbridge.messages import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
    estimate_tokens,
)
from apexbridge.models import intent_rules
from apexbridge.models.base import ModelDelta, ModelRequest, Usage
from apexbridge.models.intent_rules import extract_file_names, is_chinese

MAX_OPTION_CHARS = 2_000
_DOCUMENTED_OPTION = re.compile(
    r"--(?P<name>[a-z][a-z0-9-]{1,30})[ =](?P<value>[A-Z][A-Z_-]*|[a-z0-9]+(?:\\?\|[a-z0-9]+)+)"
)
_CHINESE_CUES = {"by": r"按照?|根据", "top": r"前|最大的|最高的"}
"""Chinese words for the names of common options."""
_QUOTED = r"[`'\"“「](?P<quoted>[^`'\"“”「」\n]{1,60})[`'\"”」]"
_VALUE = rf"(?:{_QUOTED}|(?P<plain>[A-Za-z0-9][\w.-]{{0,59}}))"
_HAN_VALUE = (
    rf"(?:{_QUOTED}|(?P<plain>[A-Za-z0-9_]{{1,40}}|[\u4e00-\u9fff]{{1,8}}?))"
    r"(?=[\s,，。;；]|合计|统计|分组|汇总|求和|计算|排序|画|来|做|的|名|个|$)"
)
_FILLER_WORDS = frozenset({
    "a", "an", "the", "this", "that", "it", "each", "every", "all", "and", "or", "of", "me", "you",
    "using", "making", "default", "now", "then", "年", "月", "日", "天", "周", "季",
})  # fmt: skip
_NUMBER_METAVARS = frozenset({"N", "NUMBER", "COUNT", "INT"})
_LANGUAGE_OPTIONS = frozenset({"lang", "language", "locale"})


def script_options(
    request: str, skill_text: str, files: Collection[str] = (), *, is_sure: bool = False
) -> tuple[str, ...]:
    """Extract the options of a script from a request, as command-line arguments.

    Values that are `files` are left out. With `is_sure`, only values that the skill lists count.

    >>> script_options("Totals of a.csv by region", "`--by COLUMN`  `--top N`", ["a.csv"])
    ('--by', 'region')
    >>> script_options("前5名", "`--by COLUMN`  `--top N`")
    ('--top', '5')
    """
    found = dict[str, str]()
    for option in _DOCUMENTED_OPTION.finditer(skill_text):
        value = _requested_value(option["name"], option["value"], request[:MAX_OPTION_CHARS])
        is_listed = "|" in option["value"]
        if value and value not in files and (is_listed or not is_sure):
            found.setdefault(option["name"], value)
    return tuple(word for name, value in found.items() for word in (f"--{name}", value))


def _requested_value(name: str, value: str, request: str) -> str:
    choices = re.split(r"\\?\|", value) if "|" in value else []
    if name in _LANGUAGE_OPTIONS:
        return "zh" if "zh" in choices and is_chinese(request) else ""
    if choices:
        return next((c for c in choices if _is_beside_name(c, name, request)), "")
    values = _candidate_values(name, request)
    return next((v for v in values if value not in _NUMBER_METAVARS or v.isdecimal()), "")


def _is_beside_name(choice: str, name: str, request: str) -> bool:
    """Match `line` of `--chart` in "a line chart" and "chart: line", not in "the last line"."""
    one, other = re.escape(choice), re.escape(name)
    pattern = rf"\b(?:{one}[ -]{other}|{other}(?:[ :=]+| as (?:an? )?){one})\b"
    return re.search(pattern, request, re.IGNORECASE) is not None


def _candidate_values(name: str, request: str) -> Iterator[str]:
    spoken = re.escape(name).replace(r"\-", "[ -]")
    patterns = [rf"(?<![\w-]){spoken}[ :=]+(?:the )?{_VALUE}"]
    if name in _CHINESE_CUES:
        patterns.append(rf"(?:{_CHINESE_CUES[name]}) ?{_HAN_VALUE}")
    for pattern in patterns:
        for match in re.finditer(pattern, request, re.IGNORECASE):
            value = match["quoted"] or match["plain"].rstrip(".-")
            if value.lower() not in _FILLER_WORDS:
                yield value


MIN_CLEAR_SCORE = 0.5
"""Confidence from which a skill is used without asking back."""
MIN_LEAD = 0.1
"""Minimum lead over the next skill."""
MAX_WEAK_NAMES = 3
"""Weak matches that are named as possible ones."""

_OFFERED_SKILL = re.compile(
    r"^- (?P<name>\S+) \((?:(?:fit )?(?P<score>[01]\.\d+)|weak match)\)", re.MULTILINE
)
_CHOSEN_SKILL = re.compile(
    r"^The user wants these skills used: (?P<name>[^,\n]+?)(?:,.*)?\.$", re.MULTILINE
)
_FORKED_SKILL = re.compile(r'<skill name="(?P<name>[^"]+)"')
_FILES = re.compile(r"^Files in its folder: (?P<files>.+)$", re.MULTILINE)
_ENTRIES = ("scripts/main", "scripts/index", "main", "index")
"""Entry scripts in the order in which a run without a script's name looks for them."""
_SCRIPT_SUFFIXES = {".py", ".js", ".mjs", ".cjs", ".sh", ".ts", ".mts"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A tool call and its result."""

    call: ToolCall
    result: ToolMessage


@dataclass(slots=True, kw_only=True)
class _Turn:
    """The conversation since the last user request."""

    request: str = ""
    offers: list[tuple[str, float]] = field(default_factory=list[tuple[str, float]])
    chosen: str = ""
    """Skill that the user invoked explicitly."""
    skill: UserMessage | None = None
    known: dict[str, UserMessage] = field(default_factory=dict[str, UserMessage])
    """Skills whose instructions are in the conversation, by name."""
    steps: list[_Step] = field(default_factory=list[_Step])
    tools: frozenset[str] = frozenset()

    @property
    def last(self) -> _Step | None:
        return self.steps[-1] if self.steps else None


class EmbeddedModel:
    """Model client that replies by rules."""

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[ModelDelta]]:
        """Open a stream of deltas, which are complete at once."""
        turn = _read_conversation(request.messages, frozenset(spec.name for spec in request.tools))
        reply = _next_reply(turn)
        spent = estimate_tokens(*(message.text for message in request.messages))

        async def pieces() -> AsyncIterator[ModelDelta]:
            if isinstance(reply, str):
                for line in reply.splitlines(keepends=True):
                    yield ModelDelta(text=line)
            else:
                yield ModelDelta(tool_calls=(reply,))
            said = reply if isinstance(reply, str) else reply.arguments
            yield ModelDelta(usage=Usage(input_tokens=spent, output_tokens=estimate_tokens(said)))

        yield pieces()


def _read_conversation(messages: Sequence[Message], tools: frozenset[str]) -> _Turn:
    """Extract the current turn from the messages."""
    prompts = [
        at
        for at, message in enumerate(messages)
        if isinstance(message, UserMessage) and message.kind == "prompt"
    ]
    turn, at = _Turn(tools=tools), prompts[-1] if prompts else len(messages)
    for message in messages[:at][::-1]:  # the announcements before the request
        if not (isinstance(message, UserMessage) and message.kind == "reminder"):
            break
        turn.offers += _offered_skills(message.text)
        if chosen := _CHOSEN_SKILL.search(message.text):
            turn.chosen = chosen["name"]
    skills = (m for m in messages if isinstance(m, UserMessage) and m.kind == "skill")
    turn.known = {message.skill: message for message in skills if message.skill}
    calls = dict[str, ToolCall]()
    for message in messages[at:]:
        match message:
            case UserMessage(kind="prompt"):
                turn.request = message.text
            case UserMessage(kind="skill"):
                turn.skill = message
            case AssistantMessage():
                calls |= {call.id: call for call in message.tool_calls}
            case ToolMessage() if message.call_id in calls:
                turn.steps.append(_Step(call=calls[message.call_id], result=message))
            case _:
                pass
    return turn


def _offered_skills(text: str) -> list[tuple[str, float]]:
    """Extract names and scores; a weak match has none, which is 0."""
    return [(found["name"], float(found["score"] or 0)) for found in _OFFERED_SKILL.finditer(text)]


def _render(key: str, request: str, **fields: str) -> str:
    """Render a reply text in the language of the request."""
    language = "zh" if is_chinese(request) else "en"
    connect = locales.text("embedded_model", "connect", language)
    return locales.text("embedded_model", key, language, connect=connect, **fields)


def _next_reply(turn: _Turn) -> str | ToolCall:
    last = turn.last
    if last and last.result.is_error and last.call.name != "SkillScript":
        return _after_error(turn, last)
    if forked := _FORKED_SKILL.match(turn.request):  # a skill that runs as a subagent task
        return _render("needs_model", turn.request, name=forked["name"])
    skill = turn.skill or _reusable_skill(turn, last)
    if skill is not None:
        return _with_skill(turn, skill)
    if last is None:
        return _first_step(turn)
    if last.call.name == "SkillSearch":
        return _after_search(turn, last)
    return _render("result", turn.request, text=last.result.text)


def _after_error(turn: _Turn, last: _Step) -> str | ToolCall:
    is_unknown = last.call.name == "Skill" and last.result.text.startswith("[skill_not_found]")
    if is_unknown and "SkillSearch" in turn.tools:  # what seemed to be a name may be a description
        return _call(turn, "SkillSearch", {"query": turn.request[:2_000]})
    return _render("failed", turn.request, tool=last.call.name, text=last.result.text)


def _reusable_skill(turn: _Turn, last: _Step | None) -> UserMessage | None:
    """Return the invoked skill whose instructions are in the conversation from before."""
    if last is None:
        name = turn.request.strip().partition(" ")[0]
        return turn.known.get(name[1:]) if name.startswith("/") else None
    invoked = next((step for step in turn.steps if step.call.name == "Skill"), None)
    return turn.known.get(json.loads(invoked.call.arguments)["skill"]) if invoked else None


def _first_step(turn: _Turn) -> str | ToolCall:
    intent = intent_rules.detect_intent(turn.request)
    if intent is not None and intent.tool in turn.tools and not turn.chosen:
        return _call(turn, intent.tool, intent.arguments)
    if intent_rules.is_small_talk(turn.request):
        return _render("no_model", turn.request)
    if intent_rules.is_destructive_request(turn.request):
        return _render("destroys_nothing", turn.request)
    named = intent_rules.detect_skill_run(turn.request)
    best = turn.chosen or (named.name if named else _clear_winner(turn.offers))
    if best and "Skill" in turn.tools:
        return _call(turn, "Skill", {"skill": best, "arguments": turn.request})
    if "SkillSearch" in turn.tools and turn.request.strip():
        return _call(turn, "SkillSearch", {"query": turn.request[:2_000]})
    return _render("no_model", turn.request)


def _after_search(turn: _Turn, last: _Step) -> str | ToolCall:
    found = _offered_skills(last.result.text)
    best = _clear_winner(found)
    if best and "Skill" in turn.tools:
        return _call(turn, "Skill", {"skill": best, "arguments": turn.request})
    if not found:
        return _render("nothing_found", turn.request)
    # Weak matches are named too: a person sees at once which is meant, or that none is.
    good = [f"- {name} ({score:.2f})" for name, score in found if score]
    weak = [f"- {name}" for name, score in found if not score]
    names = "\n".join((*good, *weak[:MAX_WEAK_NAMES]))
    return _render("found", turn.request, names=names)


def _clear_winner(found: Sequence[tuple[str, float]]) -> str:
    ranked = sorted(found, key=lambda pair: -pair[1])
    if not ranked or ranked[0][1] < MIN_CLEAR_SCORE:
        return ""
    is_ahead = len(ranked) == 1 or ranked[0][1] - ranked[1][1] >= MIN_LEAD
    return ranked[0][0] if is_ahead else ""


def _with_skill(turn: _Turn, skill: UserMessage) -> str | ToolCall:
    name = skill.skill or ""
    ran = [step for step in turn.steps if step.call.name == "SkillScript"]
    script, files = _script(skill.text), list(extract_file_names(turn.request))
    options = script_options(turn.request, skill.text, files)
    if not script or "SkillScript" not in turn.tools:
        return _render("needs_model", turn.request, name=name)
    sure = script_options(turn.request, skill.text, files, is_sure=True)
    result = ran[-1].result if ran else None
    if result is None or (result.is_error and options != sure and len(ran) == 1):
        # The arguments taken from the request may be wrong for the script: retry without them.
        words = _script_words(turn, [*files, *(sure if ran else options)])
        arguments = {"skill": name, "script": script, "arguments": words, "files": files}
        return _call(turn, "SkillScript", arguments)
    if result.is_error:
        return _render("script_failed", turn.request, name=name, text=result.text)
    lost = [word for word in options if word not in sure]
    key = "script_ran" if len(ran) == 1 else "script_ran_plainly"
    return _render(key, turn.request, name=name, text=result.text, options=" ".join(lost))


def _script_words(turn: _Turn, recognised: list[str]) -> list[str]:
    """Return the arguments of a script: a list in the request, else what was recognised in it."""
    named = intent_rules.detect_skill_run(turn.request)
    if named is not None and (named.is_exact or not recognised):
        return list(named.arguments)
    return recognised


def _script(text: str) -> str:
    """Choose the script of a skill: its entry, such as `index.js` at the root, or the only one."""
    match = _FILES.search(text)
    paths = [PurePosixPath(file) for file in match["files"].split(", ")] if match else []
    programs = [p for p in paths if p.suffix in _SCRIPT_SUFFIXES]
    for entry in _ENTRIES:
        for path in programs:
            if str(path.with_suffix("")) == entry:
                return str(path)
    scripts = [p for p in programs if p.parts[0] == "scripts"]
    return str(scripts[0]) if len(scripts) == 1 else ""


def _call(turn: _Turn, tool: str, arguments: Mapping[str, Any]) -> ToolCall:
    return ToolCall(
        id=f"embedded-{len(turn.steps)}",
        name=tool,
        arguments=json.dumps(arguments, ensure_ascii=False),
    )
