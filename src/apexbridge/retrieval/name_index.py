"""Name index: the skills that a query mentions by name, exactly or with one slip of the keyboard.

BM25 counts a name as a share of all words of a query, so that it fades in a long sentence, and an
embedding may not know it at all. Names are therefore looked up as phrases: `pdf-creator`, "PDF
creator" and `PdfCreator` have the same key.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from apexbridge.retrieval.bm25 import Bm25Index
from apexbridge.retrieval.spelling import single_edits
from apexbridge.retrieval.tokenizer import (
    hash_terms,
    is_chinese,
    is_han,
    normalize,
    phrase_runs,
    query_words,
    stems,
)

_MAX_WORDS = 6
"""Longest phrase that is looked up, in words."""
_MAX_HAN = 12
"""Longest Chinese phrase that is looked up, in characters."""
_MAX_RUNS = 200
"""Longer queries are looked up to this number of words: names of a pasted log are no request."""
_MIN_FUZZY_CHARS = 6
"""Shorter names have too many neighbours at one edit."""
_MAX_FUZZY_WORDS = 8
_QUOTES_OPEN, _QUOTES_CLOSE = "`\"'“「『", "`\"'”」』"
_CALLED_BEFORE = re.compile(
    rf"(?:^|[\s(（{_QUOTES_OPEN}])[/$@{_QUOTES_OPEN}]$"
    r"|\b(?:skills?|tools?|called|named|invoke|run|launch)[ :]+$"
    r"|(?:技能|工具)[:：]?\s?$|(?:名为|叫做?|调用|运行|启动)\s?$",
    re.IGNORECASE,
)
_CALLED_AFTER = re.compile(
    rf"^[{_QUOTES_CLOSE}]?\s?(?:skills?\b|tools?\b|(?:这个|的)?(?:技能|工具))", re.IGNORECASE
)
_USED_BEFORE = re.compile(r"\b(?:use|using|with|try|need|via)[ :]+$|[用试]\s?$", re.IGNORECASE)
_USED = 0.6
"""Strength of a name after `use` or the like, or of an English one in a Chinese sentence."""
_ONE_EDIT = 0.7
"""Factor for a name that is misspelt."""


_PART_OF_NAME = 0.5
"""Factor for a name that is a part of another one in the query."""


@dataclass(frozen=True, slots=True)
class Mention:
    """A phrase of a query that is the name of skills; `mark` rates how the sentence calls it."""

    rows: Sequence[int]
    words: tuple[str, ...]
    span: tuple[int, int] = (0, 0)
    """Place of the phrase in the normalized query."""
    mark: float = 0.0
    is_exact: bool = True


class NameIndex:
    """Phrase index of names; rows are numbered by the caller."""

    def __init__(self) -> None:
        self._rows = dict[str, int | tuple[int, ...]]()
        """Rows by key; nearly all keys have one, and a tuple would double their memory."""

    def add(self, row: int, names: Iterable[str]) -> None:
        """Add the names of a row."""
        for key in _keys(names):
            rows = self._find(key)
            self._rows[key] = row if rows is None else (*rows, row)

    def remove(self, row: int, names: Iterable[str]) -> None:
        """Remove the names of a row."""
        for key in _keys(names):
            rows = [other for other in self._find(key) or () if other != row]
            if rows:
                self._rows[key] = tuple(rows) if len(rows) > 1 else rows[0]
            else:
                self._rows.pop(key, None)

    def _find(self, key: str) -> tuple[int, ...] | None:
        rows = self._rows.get(key)
        return (rows,) if isinstance(rows, int) else rows

    def mentions(self, text: str, is_unknown: Callable[[str], bool]) -> list[Mention]:
        """Find the names in a query; a word that no document has may be one edit from a name."""
        text = normalize(text)
        runs = phrase_runs(text)[:_MAX_RUNS]
        found, fuzzy = list[Mention](), 0
        for first, (word, start, end) in enumerate(runs):
            key, length = "", 0
            for other, _, last in runs[first : first + _MAX_WORDS]:
                key, length = key + other, length + 1
                rows = self._find(key)
                if rows is not None:
                    words = tuple(run[0] for run in runs[first : first + length])
                    found.append(Mention(rows, words, (start, last), _mark(text, start, last)))
            if is_han(word):
                found += self._within_run(text, word, start)
            elif (
                len(word) >= _MIN_FUZZY_CHARS
                and word.isascii()
                and fuzzy < _MAX_FUZZY_WORDS
                and word not in self._rows
                and is_unknown(word)
            ):
                fuzzy += 1
                found += self._misspelt(word, (start, end), _mark(text, start, end))
        return found

    def _within_run(self, text: str, run: str, start: int) -> Iterator[Mention]:
        """Find names inside a Chinese run: no spaces delimit the words."""
        for first in range(len(run)):
            for last in range(first + 2, min(len(run), first + _MAX_HAN) + 1):
                part = run[first:last]
                rows = self._find(part) if last - first < len(run) else None
                if rows is not None:
                    span = (start + first, start + last)
                    yield Mention(rows, (part,), span, _mark(text, *span))

    def _misspelt(self, word: str, span: tuple[int, int], mark: float) -> Iterator[Mention]:
        for key in single_edits(word):
            rows = self._find(key)
            if rows is not None:
                yield Mention(rows, (key,), span, mark, is_exact=False)

    def strengths(
        self, text: str, bm25: Bm25Index, is_word: Callable[[str], bool]
    ) -> dict[int, float]:
        """Rate in 0..1 how clearly a query mentions each row by its name.

        A name that makes up the query, or is marked as one, counts 1; one inside a sentence as much
        as it is rare: `plan` is a word of many sentences, `terraform` of few.
        """

        def is_unknown(word: str) -> bool:
            return not is_word(word) and not bm25.frequencies(hash_terms(stems([word])))[0]

        mentions = self.mentions(text, is_unknown)
        if not mentions:
            return {}
        parts = parts_of_others(mention.span for mention in mentions if mention.is_exact)
        whole = bm25.rarity(stems(query_words(text)))
        found = dict[int, float]()
        rarities = dict[tuple[str, ...], float]()  # one name may be mentioned many times
        for mention in mentions:
            rarity = rarities.get(mention.words)
            if rarity is None:
                rarity = rarities[mention.words] = bm25.rarity(stems(mention.words))
            strength = max(mention.mark, min(1.0, rarity / max(whole, 1e-6)) ** 2, _rare(rarity))
            strength *= 1.0 if mention.is_exact else _ONE_EDIT
            strength *= _PART_OF_NAME if mention.span in parts else 1.0
            for row in mention.rows:
                found[row] = max(found.get(row, 0.0), strength)
        return found


def parts_of_others(spans: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
    """Return the spans within longer ones, as `red team` is within `red team tools`.

    In one pass over sorted spans: a pasted text may mention thousands of names.
    """
    found, reach = set[tuple[int, int]](), -1
    for start, end in sorted(set(spans), key=lambda span: (span[0], -span[1])):
        if end <= reach:
            found.add((start, end))
        reach = max(reach, end)
    return found


def _rare(rarity: float) -> float:
    """Map the rarity of a name inside a sentence to its strength."""
    return min(1.0, max(0.0, (rarity - 0.45) / 0.5))


def _keys(names: Iterable[str]) -> set[str]:
    every = ("".join(word for word, _, _ in phrase_runs(normalize(name))) for name in names)
    return {key for key in every if key}


def _mark(text: str, start: int, end: int) -> float:
    """Rate the words around a phrase: quoted, called a skill, used like one, or in between."""
    before, after = text[max(0, start - 12) : start], text[end : end + 12]
    if _CALLED_BEFORE.search(before) or _CALLED_AFTER.match(after):
        return 1.0
    is_foreign = text[start:end].isascii() and is_chinese(text)
    return _USED if is_foreign or _USED_BEFORE.search(before) else 0.0
