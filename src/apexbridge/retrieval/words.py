"""Words as search compares them: folded, English ones stemmed, Chinese ones as pairs.

No dictionary is needed: a run of Chinese characters is cut into overlapping pairs. A document also
gives its single characters, so that a request of one character finds something.
"""

import re
import threading
import unicodedata
import zlib
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain
from operator import add
from typing import Protocol

import numpy as np
import Stemmer
from numpy.typing import NDArray

from apexbridge.retrieval.base import Kind
from apexbridge.retrieval.hanzi import SIMPLIFIED
from apexbridge.retrieval.signs import sign_terms

_HAN = "\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_RUN = re.compile(rf"[{_HAN}]+|[^\W_{_HAN}]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_IS_HAN = re.compile(rf"[{_HAN}]")
_IS_RARE = re.compile("[\U00020000-\U0003ffff]")
_NOT_HAN = re.compile(rf"[^\W_{_HAN}]+")
_LONGEST = 64
_MOST = 255
_REMEMBERED = 65_536

Counted = tuple[NDArray[np.uint32], NDArray[np.uint8]]
"""Terms in rising order, and how often each is there."""


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...  # noqa: N802  # the library's own spelling


_stemmer: _Stemmer = Stemmer.Stemmer("english")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
_stemming = threading.Lock()  # it keeps the word it is at; skills are read while others search

# What every request has, whatever it is for. Left in, it would find skills that speak like people.
_SAID = """
a an the and or but if then than so as of at by for from in into on onto off out over to up down
with without about after before between during through under again once here there when where why
how what which who whom whose this that these those i me my mine we us our ours you your yours he
him his she her hers it its they them their is am are was were be been being do does did doing done
have has had having can could will would shall should may might must not no nor only own same too
very just also any all each every both few more most some such other another one ones get got gets
getting want wants wanted need needs needed like let lets make makes please help give gives put
know tell show see something anything everything thing things way ways really still now because
while until since ve ll re don doesn didn isn aren wasn weren won wouldn couldn shouldn hasn haven
hadn
帮我 我们 我的 我要 我想 一个 一下 怎么 什么 这个 那个 可以 能不 不能 需要 给我 请帮 一些 有没 没有
是不 哪些 如何 他们 你们 自己 现在 已经 然后 但是 因为 所以 如果 就是 还是 或者 以及 这些 那些 一份
一张 一段 几个 每个 所有 想要
"""
_SAID_ANYWAY = frozenset(_SAID.split())


def is_chinese(text: str) -> bool:
    """Say whether a text is written in Chinese: as many of its characters as words of others."""
    han = 0 if text.isascii() else len(_IS_HAN.findall(text))
    return han > 0 and han >= sum(1 for run in _RUN.findall(text) if not _IS_HAN.match(run))


def words(text: str, *, kind: Kind) -> list[str]:
    """The words of a text in order, as they are compared."""
    runs = _runs(text)
    if kind == "document":
        return [
            word
            for run in runs
            for word in (_stems(run) if run.isascii() and len(run) <= _LONGEST else _cut(run))
        ]
    found = [word for run in runs for word in _cut_query(run)]
    telling = [word for word in found if word not in _SAID_ANYWAY]
    return [_stem(word) for word in telling or found]


def _runs(text: str) -> list[str]:
    return _RUN.findall(_folded(text))


def _folded(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


@lru_cache(maxsize=_REMEMBERED)
def _stems(run: str) -> tuple[str, ...]:
    """Kept for short runs only: a long one, or one of Chinese, is seldom met again."""
    return _cut(run)


def _cut(run: str) -> tuple[str, ...]:
    if not _IS_HAN.match(run):
        return tuple(_stem(word) for word in _parts(run))
    simple = run.translate(SIMPLIFIED)
    return (*simple, *_pairs(simple))


def _cut_query(run: str) -> tuple[str, ...]:
    if not _IS_HAN.match(run):
        return tuple(_parts(run))
    simple = run.translate(SIMPLIFIED)
    return tuple(_pairs(simple)) if len(simple) > 1 else (simple,)


def _parts(run: str) -> list[str]:
    """`readPDFFile` is three words."""
    return [part.casefold()[:_LONGEST] for part in _CAMEL.split(run)]


def _pairs(run: str) -> list[str]:
    return list(map(add, run, run[1:]))


@lru_cache(maxsize=_REMEMBERED)
def _stem(word: str) -> str:
    if not word.isascii():
        return word
    with _stemming:
        return _stemmer.stemWord(word)


@lru_cache(maxsize=131_072)
def term(word: str) -> int:
    """A word as a number that is the same in every process, so that no vocabulary is kept."""
    return zlib.crc32(word.encode("utf-8", "surrogatepass"))


def count(found: Iterable[str]) -> Counted:
    """The terms in rising order, and how often each is there (at most 255 times)."""
    return _counted(np.fromiter(map(term, found), np.uint32))


def count_words(text: str, *, title: str = "", weight: int = 1) -> Counted:
    """The same for the words of a document; its title's count `weight` times."""
    read = _folded("\n".join((title,) * weight + (text,)))
    if read.isascii() or not _IS_HAN.search(read) or _IS_RARE.search(read):
        return _counted(_terms(_RUN.findall(read)))
    return _counted(np.concatenate((_terms(_NOT_HAN.findall(read)), sign_terms(read))))


def _terms(runs: Iterable[str]) -> NDArray[np.uint32]:
    return np.fromiter(chain.from_iterable(map(_numbers.__getitem__, runs)), np.uint32)


class _Numbers(dict[str, tuple[int, ...]]):
    """The terms of a run of letters; what was cut before is found without a call.

    Kept for short runs only: a long one is seldom met again.
    """

    def __missing__(self, run: str) -> tuple[int, ...]:
        numbers = tuple(map(term, _cut(run)))
        if len(run) <= _LONGEST:
            if len(self) >= _REMEMBERED:
                self.clear()
            self[run] = numbers
        return numbers


_numbers = _Numbers()


def _counted(numbers: NDArray[np.uint32]) -> Counted:
    # Two words may be one number; what is there twice would count as two texts that have it.
    terms, counts = np.unique(numbers, return_counts=True)
    return terms, np.minimum(counts, _MOST).astype(np.uint8)
