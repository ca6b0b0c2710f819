"""Parse YAML frontmatter within bounds, and repair values whose quotes are missing.

Scalars stay strings: `name: no` is "no" and `version: 1.0` is "1.0"; the manifest gives them types.
Aliases (billion laughs), merge keys and custom tags (object deserialization) are rejected, and
size, depth and node count are limited while events are read.

The repair is for `description: Build for AWS: ECS` and `paths: **/*.ts`: a value is quoted only if
it cannot be parsed alone, and each repair records its offsets, so that spans map back to the file.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from apexbridge.skills.document import SKILL_MD, line_location
from apexbridge.skills.model import Problem, YamlValue

_ENTRY = re.compile(r"(?P<indent> *)(?P<dash>- +)?(?:(?P<key>[\w.-]+):[ \t]+)?(?P<value>\S.*)")
_COMMENT = re.compile(r"[ \t]+#.*$")
_NEVER_QUOTED = ("|", ">", "#")
_UNFINISHED = re.compile(r"[\[{][^\]}:]*$")
"""A list or mapping that never closes: a mistake that quotes would only hide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """One value that was parsed as if quoted; offsets count in the author's text."""

    key: str
    is_top_level: bool
    line: int
    start: int
    end: int
    added: int
    quoted: str


def quote_values(text: str, needs_quotes: Callable[[str], bool]) -> tuple[str, tuple[Repair, ...]]:
    """Quote every value that needs it; return the repaired text and the repairs."""
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    pieces, repairs, done, number = list[str](), list[Repair](), 0, 0
    while number < len(lines):
        entry = _ENTRY.match(lines[number])
        if entry is None or not (entry["key"] or entry["dash"]):
            number += 1
            continue
        last = _last_line(lines, number, entry)
        start = starts[number] + entry.start("value")
        end = starts[last] + len(_COMMENT.sub("", lines[last]).rstrip())
        quoted = _quoted(text[start:end], needs_quotes) if end > start else ""
        if quoted:
            pieces += [text[done:start], quoted]
            repairs.append(_repair(entry, number, start, end, quoted))
            done = end
        number = last + 1
    return "".join((*pieces, text[done:])), tuple(repairs)


def _last_line(lines: list[str], first: int, entry: re.Match[str]) -> int:
    """Find the last line of a plain multi-line scalar: lines deeper than its key belong to it."""
    indent = len(entry["indent"]) + (len(entry["dash"] or "") if entry["key"] else 0)
    last = first
    for number in range(first + 1, len(lines)):
        line = lines[number]
        if line.strip() and len(line) - len(line.lstrip(" ")) <= indent:
            break
        last = number if line.strip() else last
    return last


def _quoted(value: str, needs_quotes: Callable[[str], bool]) -> str:
    """Quote a value, or the items of a list; return an empty text if it is valid as it is."""
    if value.startswith(_NEVER_QUOTED) or _UNFINISHED.match(value) or not needs_quotes(value):
        return ""
    if value.startswith("[") and value.endswith("]"):
        items = [item.strip() for item in _split_items(value[1:-1])]
        parts = [_quote(item) if needs_quotes(item) else item for item in items]
        listed = f"[{', '.join(parts)}]"
        if not needs_quotes(listed):
            return listed
    return _quote(value)


def _quote(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _split_items(text: str) -> list[str]:
    """Split at commas outside of brackets."""
    parts, depth = [""], 0
    for char in text:
        depth += (char in "([{") - (char in ")]}" and depth > 0)
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts


def _repair(entry: re.Match[str], line: int, start: int, end: int, quoted: str) -> Repair:
    return Repair(
        key=entry["key"] or "-",
        is_top_level=entry["key"] is not None and not entry["indent"] and not entry["dash"],
        line=line,
        start=start,
        end=end,
        added=len(quoted) - (end - start),
        quoted=" ".join(quoted.split()),
    )


MAX_BYTES = 64 * 1024
MAX_DEPTH = 32
MAX_NODES = 1_000

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_CORE_TAGS = frozenset(
    f"tag:yaml.org,2002:{kind}"
    for kind in ("str", "int", "float", "bool", "null", "timestamp", "seq", "map")
)
_UNICODE_LINE_BREAKS = dict.fromkeys(map(ord, "\x85\u2028\u2029"), " ")
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Span of a top-level scalar in the text; a block scalar's ends at the next entry."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontmatter:
    """Parsed values, their positions, and the repairs that were needed."""

    values: Mapping[str, YamlValue]
    lines: Mapping[str, int]
    spans: Mapping[str, Span]
    is_flow: bool = False
    repairs: tuple[Repair, ...] = ()
    has_unicode_line_breaks: bool = False


def read(text: str) -> Frontmatter | Problem:
    """Parse the text between the `---` lines; missing quotes are added and reported."""
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        return Problem.error("frontmatter_too_large", SKILL_MD, limit=MAX_BYTES)
    # YAML takes these for line breaks, so a value could hide a key. Blanks keep the offsets.
    text, author_text = text.translate(_UNICODE_LINE_BREAKS), text
    has_unicode_line_breaks = text != author_text
    first = _build(text)
    if isinstance(first, Frontmatter):
        return replace(first, has_unicode_line_breaks=has_unicode_line_breaks)
    if not first.details.get("repairable"):
        return first
    repaired, repairs = quote_values(text, _needs_quotes)
    second = _build(repaired) if repairs else first
    if isinstance(second, Problem):
        return first
    spans = _original_spans(second.spans, repairs)
    return replace(
        second, repairs=repairs, spans=spans, has_unicode_line_breaks=has_unicode_line_breaks
    )


def _needs_quotes(value: str) -> bool:
    """Return whether a value cannot be parsed alone and quotes would help."""
    problem = _build(f"k: {value}")
    return isinstance(problem, Problem) and bool(problem.details.get("repairable"))


def _original_spans(spans: Mapping[str, Span], repairs: tuple[Repair, ...]) -> dict[str, Span]:
    """Map spans of the repaired text back to the author's text."""
    repaired = {r.key: Span(start=r.start, end=r.end) for r in repairs if r.is_top_level}
    return {
        key: repaired.get(key)
        or Span(
            start=_original_offset(span.start, repairs), end=_original_offset(span.end, repairs)
        )
        for key, span in spans.items()
    }


def _original_offset(place: int, repairs: tuple[Repair, ...]) -> int:
    shift = 0
    for repair in repairs:
        if repair.end + shift + repair.added > place:
            break
        shift += repair.added
    return place - shift


@dataclass(slots=True)
class _Frame:
    """A list or mapping that is still open."""

    node: "list[YamlValue] | dict[str, YamlValue]"
    key: str | None = None


@dataclass(slots=True)
class _Builder:
    """Build the value from YAML events without recursion; stop at the first violation."""

    stack: list[_Frame] = field(default_factory=list["_Frame"])
    root: YamlValue = None
    lines: dict[str, int] = field(default_factory=dict[str, int])
    spans: dict[str, Span] = field(default_factory=dict[str, Span])
    nodes: int = 0
    is_flow: bool = False

    def take(self, event: yaml.Event) -> Problem | None:
        """Consume one event."""
        if isinstance(event, yaml.CollectionEndEvent):
            self.stack.pop()
            return None
        if not isinstance(event, yaml.NodeEvent):
            return None
        if broken := self._refuse(event):
            return broken
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)
        node: list[YamlValue] | dict[str, YamlValue] = (
            {} if isinstance(event, yaml.MappingStartEvent) else []
        )
        if not self.stack:
            self.is_flow = bool(getattr(event, "flow_style", False))
        broken = self._add(node, event)
        self.stack.append(_Frame(node))
        return broken

    def _refuse(self, event: yaml.NodeEvent) -> Problem | None:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            return _problem("frontmatter_too_many_nodes", event, limit=MAX_NODES)
        if len(self.stack) >= MAX_DEPTH and isinstance(event, yaml.CollectionStartEvent):
            return _problem("frontmatter_too_deep", event, limit=MAX_DEPTH)
        if isinstance(event, yaml.AliasEvent):
            # Anchors are not allowed, so this is a glob or emphasis without its quotes.
            return _problem("frontmatter_alias", event, name=f"*{event.anchor}", repairable=True)
        if event.anchor:
            return _problem("frontmatter_alias", event, name=f"&{event.anchor}")
        tag = getattr(event, "tag", None)
        if tag and tag != "!" and tag not in _CORE_TAGS:
            # `!important` is a word without its quotes; `!!python/…` would construct an object.
            is_word = not tag.startswith("tag:")
            return _problem("frontmatter_tag", event, name=tag, repairable=is_word)
        return None

    def _scalar(self, event: yaml.ScalarEvent) -> Problem | None:
        frame = self.stack[-1] if self.stack else None
        if frame is not None and isinstance(frame.node, dict) and frame.key is None:
            return self._key(frame, frame.node, event)
        is_null = event.style in (None, "") and event.value in _NULLS
        return self._add(None if is_null else event.value, event)

    def _key(
        self, frame: _Frame, mapping: dict[str, YamlValue], event: yaml.ScalarEvent
    ) -> Problem | None:
        key = str(event.value)
        if key == "<<":
            return _problem("frontmatter_alias", event, name="<<")
        if key in mapping:
            return _problem("duplicate_key", event, key=key)
        if len(self.stack) == 1:
            self.lines[key] = _line(event)
        frame.key = key
        return None

    def _add(self, value: YamlValue, event: yaml.NodeEvent) -> Problem | None:
        if not self.stack:
            if self.nodes > 1:
                return _problem("yaml_invalid", event, detail="there is a second document")
            self.root = value
            return None
        frame = self.stack[-1]
        if isinstance(frame.node, list):
            frame.node.append(value)
            return None
        if frame.key is None:
            return _problem("key_not_text", event)
        frame.node[frame.key] = value
        if len(self.stack) == 1 and isinstance(event, yaml.ScalarEvent):
            self.spans[frame.key] = _span(event)
        frame.key = None
        return None


def _build(text: str) -> Frontmatter | Problem:
    builder = _Builder()
    events: Iterator[yaml.Event] = yaml.parse(text, Loader=_LOADER)
    try:
        for event in events:
            if broken := builder.take(event):
                return broken
    except (yaml.YAMLError, UnicodeError) as error:
        return _invalid(error)
    if builder.root is None:
        builder.root = {}
    if not isinstance(builder.root, dict):
        return Problem(code="frontmatter_not_mapping", where=line_location(2))
    return Frontmatter(
        values=builder.root, lines=builder.lines, spans=builder.spans, is_flow=builder.is_flow
    )


def _span(event: yaml.NodeEvent) -> Span:
    start: Any = event.start_mark
    end: Any = event.end_mark
    return Span(start=start.index, end=end.index)


def _line(event: yaml.NodeEvent) -> int:
    """Line number in SKILL.md, whose first line is the opening `---`."""
    mark: Any = event.start_mark
    return int(mark.line) + 2


def _problem(code: str, event: yaml.NodeEvent, **details: object) -> Problem:
    return Problem(code=code, where=line_location(_line(event)), details=details)


def _invalid(error: Exception) -> Problem:
    mark: Any = getattr(error, "problem_mark", None)
    detail = getattr(error, "problem", None) or str(error).split("\n", 1)[0]
    where = line_location(mark.line + 2) if mark else SKILL_MD
    return Problem.error("yaml_invalid", where, detail=detail, repairable=True)


def is_compiled() -> bool:
    """Return whether libyaml's C parser is installed; the Python one parses the same."""
    return _LOADER is not yaml.SafeLoader
