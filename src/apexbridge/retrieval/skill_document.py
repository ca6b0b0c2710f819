"""What of a skill is indexed: one text for the whole, a few views of it, and its words.

A view is a sentence someone might well say who needs the skill: a trigger the author quoted, or a
bullet under "when to use". Each gets a vector of its own, because the vector of a long description
is near nothing in particular. (Its sentences alone brought nothing and doubled the work.)
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from apexbridge.retrieval.tokenizer import count_text_terms, is_chinese

DOCUMENT_VERSION = 1
"""Part of every entry's fingerprint: another way of cutting texts makes all entries anew."""

MAX_VIEWS = 8
MAX_BODY_CHARS = 2_500
_MAX_HEADINGS = 40
_MAX_TAGS = 32
_VIEW_CHARACTERS = 200
_WHOLE_CHARACTERS = 1_600
_MIN_VIEW_CHARS = {True: 6, False: 15}
_NAME_WEIGHT = 3

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
# Bounded, so that what is opened a million times and never closed is not searched a million times.
_MARKUP = re.compile(r"[*`_|]+|!?\[([^\]\n]{0,300}+)\]\([^)\n]{0,500}+\)|<[^>\n]{1,80}>")


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillText:
    """The texts of a skill that search may read."""

    name: str
    summary: str
    body: str = ""
    tags: tuple[str, ...] = ()
    other_language: str = ""
    """A line in the language the skill is not written in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillDocument:
    """What is made of a skill's texts: to be embedded, and to be matched word by word."""

    whole: str
    views: tuple[str, ...]
    terms: NDArray[np.uint32]
    counts: NDArray[np.uint8]


def build_document(text: SkillText, *, views: int = MAX_VIEWS) -> SkillDocument:
    """Cut a skill's texts up for the index, with at most so many views."""
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
    )


def main_text(text: SkillText) -> str:
    """The one text that stands for the skill."""
    return f"{name_as_words(text.name)}. {text.summary}"[:_WHOLE_CHARACTERS]


def name_as_words(name: str) -> str:
    """A name as words.

    >>> name_as_words("pdf-form_filler:v2")
    'pdf form filler v2'
    """
    return re.sub(r"[-_:./]+", " ", name).strip()


def trigger_phrases(text: SkillText) -> Iterator[str]:
    """Sentences people might say who need this skill, the likeliest first, each once."""
    return _trigger_phrases(text, _Prose(text.body))


def _trigger_phrases(text: SkillText, prose: "_Prose") -> Iterator[str]:
    candidates = chain(
        # Made for those who ask in the other language; mined tags would say nothing new.
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
    """What an indexed skill itself says it is for: its views, then the sentences of its whole text.

    The first of these sentences is its name, and no claim.
    """
    if not texts:
        return ()
    sentences = (strip_markup(part) for part in _SENTENCE_END.split(texts[0])[1:])
    long = (said for said in sentences if len(said) >= _MIN_VIEW_CHARS[is_chinese(said)])
    return tuple(dict.fromkeys((*texts[1:], *long))) or (texts[0],)


def strip_markup(markdown: str) -> str:
    """A line without its markup."""
    return " ".join(_MARKUP.sub(r"\1 ", markdown).split()).strip(" -:;,，；：")


class _Prose:
    """A body without its code, and where its headings are."""

    def __init__(self, body: str) -> None:
        self._text = _strip_code_blocks(body)
        self._headings = list(_HEADING.finditer(self._text))

    def headings(self) -> Iterator[str]:
        """The headings as they are read."""
        for heading in self._headings:
            yield strip_markup(heading[1][:_WHOLE_CHARACTERS])[:_VIEW_CHARACTERS]

    def when_bullets(self) -> Iterator[str]:
        """The bullets below headings that speak of when to use the skill."""
        end = len(self._text)
        below = list[tuple[int, int]]()
        for heading in reversed(self._headings):
            if _WHEN_HEADING.search(heading[1]):
                below.append((heading.end(), end))
            end = heading.start()
        for start, end in reversed(below):
            yield from _BULLET.findall(self._text, start, end)


def _strip_code_blocks(body: str) -> str:
    """Without what stands between fences; one that is left open goes on to the end."""
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
