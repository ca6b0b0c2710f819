"""Indexed document of a skill: main text, views (trigger phrases) and term frequencies.

A view is a sentence that a user in need of the skill might type: a trigger the author quoted, or a
bullet under "when to use". Views are embedded separately, because the embedding of a long text is
close to nothing in particular. (Embedding all sentences gained nothing and doubled the work.)
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from apexbridge.retrieval.results import Kind
from apexbridge.retrieval.tokenizer import count_text_terms, is_chinese, split_words

DOCUMENT_VERSION = 2
"""Part of every fingerprint: a new version re-indexes all skills."""

MAX_VIEWS = 8
MAX_BODY_CHARS = 2_500
_MAX_HEADINGS = 40
_MAX_TAGS = 32
_VIEW_CHARACTERS = 200
_WHOLE_CHARACTERS = 1_600
_MIN_VIEW_CHARS = {True: 6, False: 15}
_NAME_WEIGHT = 3
_MAX_TOOL_NAME_CHARS = 128
_MAX_TOOL_CHARS = 1_024
_MAX_PARAMETERS = 64
_MAX_PARAMETER_DEPTH = 4
"""An object in an array takes two."""

# A single quote within a word is an apostrophe.
_QUOTED = re.compile(
    r"[\"“”「『]([^\"“”「」『』\n]{3,80})[\"“”」』]|(?<!\w)['‘]([^'‘’\n]{3,80})['’](?!\w)"
)
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|(?<=[。！？；])\s*|\n+")
_BULLET = re.compile(r"^[ \t]*(?:[-*•+]|\d{1,3}[.)、])[ \t]++(.{6,300})$", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6}[ \t]+(.+)$", re.MULTILINE)
_WHEN_HEADING = re.compile(
    r"when|usage|use case|trigger|example|使用场景|何时|适用|触发|场景|用途|示例|使用时机",
    re.IGNORECASE,
)
_FENCE = re.compile(r"^(?:```|~~~)", re.MULTILINE)
# Bounded repetitions against ReDoS: an unclosed bracket is not searched to the end of the text.
_CAMEL_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NOT_TEXT = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_MARKUP = re.compile(r"[*`_|]+|!?\[([^\]\n]{0,300}+)\]\([^)\n]{0,500}+\)|<[^>\n]{1,80}>")


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillText:
    """Searchable texts of a skill or of a tool."""

    name: str
    summary: str
    body: str = ""
    tags: tuple[str, ...] = ()
    other_language: str = ""
    """A summary in the other language of the two."""
    kind: Kind = "skill"

    @classmethod
    def from_tool(
        cls, name: str, description: str, input_schema: Mapping[str, Any] | None = None
    ) -> Self:
        """Describe a tool by its name, its description and the parameters of its JSON schema.

        Servers that nobody here wrote send these: every length, number and depth is bounded, and
        what is no text or no schema is left out.
        """
        words = _CAMEL_CASE.sub(" ", _clean(name, _MAX_TOOL_NAME_CHARS))
        parameters = islice(
            _parameters(_mapping(input_schema), _MAX_PARAMETER_DEPTH), _MAX_PARAMETERS
        )
        return cls(
            name=words,
            summary=_clean(description, _MAX_TOOL_CHARS),
            body="\n".join(parameters)[:MAX_BODY_CHARS],
            kind="tool",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillDocument:
    """Texts to embed and terms to count, extracted from a skill's texts."""

    whole: str
    views: tuple[str, ...]
    terms: NDArray[np.uint32]
    counts: NDArray[np.uint8]
    kind: Kind = "skill"


def build_document(text: SkillText, views: int = MAX_VIEWS) -> SkillDocument:
    """Build the document of a skill, with at most `views` views."""
    prose = _Prose(text.body)
    headings = islice(prose.headings(), _MAX_HEADINGS)
    read = (text.summary, *text.tags[:_MAX_TAGS], text.other_language, *headings)
    terms, counts = count_text_terms(
        "\n".join((*read, text.body[:MAX_BODY_CHARS])),
        title=name_as_words(text.name),
        weight=_NAME_WEIGHT,
    )
    return SkillDocument(
        whole=main_text(text),
        views=tuple(islice(_trigger_phrases(text, prose), views)),
        terms=terms,
        counts=counts,
        kind=text.kind,
    )


def _parameters(schema: Mapping[str, Any], depth: int) -> Iterator[str]:
    """Yield a line for each parameter of a JSON schema, those of nested objects included."""
    if not depth:
        return
    for name, value in _mapping(schema.get("properties")).items():
        facts, words = _mapping(value), name_as_words(_clean(name, _MAX_TOOL_NAME_CHARS))
        description = _clean(facts.get("description"), _VIEW_CHARACTERS)
        yield f"{words}: {description}" if description else words
        yield from _parameters(facts, depth - 1)
    yield from _parameters(_mapping(schema.get("items")), depth - 1)


def _mapping(value: Any) -> Mapping[str, Any]:
    """Return a JSON object, or an empty one in place of anything else."""
    return value if isinstance(value, Mapping) else {}  # pyright: ignore[reportUnknownVariableType]


def _clean(text: Any, length: int) -> str:
    """Return a text without control characters and lone surrogates, on one line."""
    if not isinstance(text, str):
        return ""
    return " ".join(_NOT_TEXT.sub(" ", text[:length]).split())


def main_text(text: SkillText) -> str:
    """Return the main text, which represents the whole skill."""
    return f"{name_as_words(text.name)}. {text.summary}"[:_WHOLE_CHARACTERS]


def title_of(main_text: str) -> str:
    """Return the name that a main text begins with, as words."""
    return main_text.partition(". ")[0]


def name_as_words(name: str) -> str:
    """Split a skill name into words; one in camelCase, as tools have them, at its capitals.

    >>> name_as_words("pdf-form_filler:v2")
    'pdf form filler v2'
    >>> name_as_words("getOrderStatus")
    'get Order Status'
    """
    words = re.sub(r"[-_:./]+", " ", name).strip()
    return words if " " in words else " ".join(split_words(words))


def trigger_phrases(text: SkillText) -> Iterator[str]:
    """Yield the views: phrases that users of the skill might type, the likeliest first."""
    return _trigger_phrases(text, _Prose(text.body))


def _trigger_phrases(text: SkillText, prose: "_Prose") -> Iterator[str]:
    candidates = chain(
        # Made for queries in the other language; mined tags would add nothing.
        (text.other_language, ", ".join(text.tags)) if text.other_language else (),
        (quoted[1] or quoted[2] for quoted in _QUOTED.finditer(text.summary)),
        prose.when_bullets(),
    )
    seen = {strip_markup(text.summary)}
    for candidate in candidates:
        view = strip_markup(candidate)[:_VIEW_CHARACTERS]
        if view not in seen and len(view) >= _MIN_VIEW_CHARS[is_chinese(view)]:
            seen.add(view)
            yield view


def stated_purposes(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the purposes that an indexed skill states: its views, then sentences of the main text.

    The first of these sentences is the name, which is no purpose.
    """
    if not texts:
        return ()
    sentences = (strip_markup(part) for part in _SENTENCE_END.split(texts[0])[1:])
    long = (said for said in sentences if len(said) >= _MIN_VIEW_CHARS[is_chinese(said)])
    return tuple(dict.fromkeys((*texts[1:], *long))) or (texts[0],)


def strip_markup(markdown: str) -> str:
    """Strip Markdown from a line."""
    return " ".join(_MARKUP.sub(r"\1 ", markdown).split()).strip(" -:;,，；：")


class _Prose:
    """Markdown body without code blocks, and its headings."""

    def __init__(self, body: str) -> None:
        self._text = _strip_code_blocks(body)
        self._headings = list(_HEADING.finditer(self._text))

    def headings(self) -> Iterator[str]:
        """Yield the headings as plain text."""
        for heading in self._headings:
            yield strip_markup(heading[1][:_WHOLE_CHARACTERS])[:_VIEW_CHARACTERS]

    def when_bullets(self) -> Iterator[str]:
        """Yield the bullets below "when to use" headings."""
        end = len(self._text)
        below = list[tuple[int, int]]()
        for heading in reversed(self._headings):
            if _WHEN_HEADING.search(heading[1]):
                below.append((heading.end(), end))
            end = heading.start()
        for start, end in reversed(below):
            yield from _BULLET.findall(self._text, start, end)


def _strip_code_blocks(body: str) -> str:
    """Strip fenced code blocks; an unclosed fence extends to the end."""
    kept, start, opened = list[str](), 0, ""
    for fence in _FENCE.finditer(body):
        if not opened:
            kept.append(body[start : fence.start()])
            opened = fence[0]
        elif fence[0] == opened:
            start, opened = fence.end(), ""
    if not opened:
        kept.append(body[start:])
    return "".join(kept)
