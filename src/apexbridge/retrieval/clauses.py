"""Query splitting: the parts of a request that asks for several things, or hides its question.

Rules only, in English and Chinese. Each part is scored as a separate query, so that each need of a
request finds its skill, and so does the question under a pasted log, of which an encoder reads the
first lines only.
"""

import re

from apexbridge.retrieval.tokenizer import is_chinese

MAX_CLAUSES = 8
_MIN_WORDS, _MIN_HAN = 3, 4
"""A shorter part asks for nothing by itself."""
_MAX_PART_CHARS = 400
_SEPARATOR = re.compile(
    r"(?<=[.!?])\s+|[;。！？；\n]+"
    r"|,?\s+(?:and\s+then|then|after\s+that|afterwards|and\s+also|also|as\s+well\s+as"
    r"|in\s+addition|additionally|finally|lastly|plus|and)\s+"
    r"|[，,]\s*(?:然后|并且|并|再|同时|另外|接着|最后|还要|还有|也)|以及|，",
    re.IGNORECASE,
)
_QUESTION = re.compile(
    r"[?？吗呢]|\b(?:how|why|what|can you|could you|please|help)\b|怎么|如何|帮", re.IGNORECASE
)


def split_query(text: str) -> tuple[str, ...]:
    """Return the parts of a request; none if it has one part only."""
    parts = [part.strip(" \t,.;:，。、") for part in _SEPARATOR.split(text)]
    every = list(dict.fromkeys(part[:_MAX_PART_CHARS] for part in parts if _is_clause(part)))
    if len(every) < 2:
        return ()
    if len(every) > MAX_CLAUSES:
        every = _likeliest(every)
    return tuple(every)


def _is_clause(part: str) -> bool:
    return len(part) >= _MIN_HAN if is_chinese(part) else len(part.split()) >= _MIN_WORDS


def _likeliest(parts: list[str]) -> list[str]:
    """Keep questions first, then the end and the beginning: there the need is stated."""
    places = range(len(parts))
    asked = [at for at in places if _QUESTION.search(parts[at])]
    ends = [at for pair in zip(reversed(places), places, strict=True) for at in pair]
    chosen = list(dict.fromkeys([*asked[-MAX_CLAUSES // 2 :], *ends]))[:MAX_CLAUSES]
    return [parts[at] for at in sorted(chosen)]
