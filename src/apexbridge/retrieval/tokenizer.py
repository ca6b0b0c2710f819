"""Tokenizer for BM25: NFKC, English stems, and bigrams of Chinese (CJK) characters.

Chinese has no spaces between words; bigrams need no dictionary and find words that none lists.
"""

import re
import threading
import unicodedata
import zlib
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from itertools import chain
from operator import add
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import Stemmer
from numpy.typing import NDArray

from apexbridge.retrieval.base import TextKind

_DATA = Path(__file__).parent / "data"


def _lines(name: str) -> list[str]:
    return (_DATA / name).read_text(encoding="utf-8").splitlines()


_TRADITIONAL, _SIMPLIFIED = _lines("traditional_to_simplified.txt")
TRADITIONAL_TO_SIMPLIFIED = str.maketrans(_TRADITIONAL, _SIMPLIFIED)
"""Translation table of the characters of Big5 level one that have one simplified form."""
_STOP_WORDS = frozenset(" ".join(_lines("stop_words.txt")).split())
"""Words of any request, whatever it is about: they would find skills by their style."""

CJK_RANGES = ((0x3400, 0x9FFF), (0xF900, 0xFAFF))
"""Code points of three bytes in UTF-8; the rare ones of four bytes take the slower way."""
_TABLE_SIZE = 0x10000
_ZEROS = bytes(3)
"""As long as the second character of a bigram in UTF-8."""

TermHashes = NDArray[np.uint32]


class _CjkTables(NamedTuple):
    """CRC-32 of characters by code point; that of a bigram is the XOR of its two parts."""

    is_cjk: NDArray[np.bool_]
    simple: NDArray[np.uint16]
    alone: TermHashes
    """Term hash of each character."""
    first: TermHashes
    """Share of the first character in the hash of a bigram."""


@cache
def _cjk_tables() -> _CjkTables:
    is_cjk = np.zeros(_TABLE_SIZE, np.bool_)
    alone, first = np.zeros(_TABLE_SIZE, np.uint32), np.zeros(_TABLE_SIZE, np.uint32)
    of_zeros = zlib.crc32(_ZEROS)
    for low, high in CJK_RANGES:
        is_cjk[low : high + 1] = True
        for code in range(low, high + 1):
            alone[code] = term = zlib.crc32(chr(code).encode())
            first[code] = zlib.crc32(_ZEROS, term) ^ of_zeros
    simple = np.arange(_TABLE_SIZE, dtype=np.uint16)
    for before, after in TRADITIONAL_TO_SIMPLIFIED.items():
        simple[before] = after
    return _CjkTables(is_cjk, simple, alone, first)


def cjk_bigram_terms(text: str) -> TermHashes:
    """Hash all CJK characters and bigrams of a text without rare characters, vectorized.

    CRC-32 is linear, so that the hash of a bigram comes from two table lookups, without a loop.
    """
    tables = _cjk_tables()
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    codes = np.where(codes < _TABLE_SIZE, codes, 0)
    places = np.flatnonzero(tables.is_cjk[codes])
    simplified = tables.simple[codes[places]]
    pairs = np.flatnonzero(places[1:] - places[:-1] == 1)
    alone = tables.alone[simplified]
    return np.concatenate((alone, tables.first[simplified[pairs]] ^ alone[pairs + 1]))


_HAN = "\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_RUN_PATTERN = re.compile(rf"[{_HAN}]+|[^\W_{_HAN}]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_IS_HAN = re.compile(rf"[{_HAN}]")
_IS_RARE = re.compile("[\U00020000-\U0003ffff]")
_NOT_HAN = re.compile(rf"[^\W_{_HAN}]+")
_MAX_TOKEN_CHARS = 64
_MAX_COUNT = 255
_STEM_CACHE_SIZE = 65_536

TermCounts = tuple[NDArray[np.uint32], NDArray[np.uint8]]
"""Term hashes in ascending order, and the frequency of each."""


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...  # noqa: N802  # the library's spelling
    def stemWords(self, words: Sequence[str]) -> list[str]: ...  # noqa: N802


_stemmer: _Stemmer = Stemmer.Stemmer("english")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
_stemmer_lock = threading.Lock()  # PyStemmer is not thread-safe


def is_chinese(text: str) -> bool:
    """Say whether a text is Chinese: it has at least as many Han characters as other words."""
    han = 0 if text.isascii() else len(_IS_HAN.findall(text))
    return han > 0 and han >= sum(1 for run in _RUN_PATTERN.findall(text) if not _IS_HAN.match(run))


def is_han(run: str) -> bool:
    """Say whether a run of letters is Chinese."""
    return _IS_HAN.match(run) is not None


def tokenize(text: str, *, kind: TextKind) -> list[str]:
    """Split a text into normalized tokens; a query loses its stop words if it has others."""
    if kind == "query":
        return [_stem(word) for word in query_words(text)]
    return [
        word
        for run in _runs(text)
        for word in (
            _cached_stems(run)
            if run.isascii() and len(run) <= _MAX_TOKEN_CHARS
            else _tokenize_run(run)
        )
    ]


def query_words(text: str) -> list[str]:
    """Split a query into words before stemming, without stop words if it has others."""
    words = [word for run in _runs(text) for word in _tokenize_query_run(run)]
    return [word for word in words if word not in _STOP_WORDS] or words


def stems(words: Sequence[str]) -> list[str]:
    """Stem ASCII words, many at once and without the cache."""
    with _stemmer_lock:
        return _stemmer.stemWords(words)


def phrase_runs(text: str) -> list[tuple[str, int, int]]:
    """Split a normalized text into lower-case runs of letters, each with its position."""
    return [
        (found[0].casefold().translate(TRADITIONAL_TO_SIMPLIFIED), *found.span())
        for found in _RUN_PATTERN.finditer(text)
    ]


def _runs(text: str) -> list[str]:
    return _RUN_PATTERN.findall(normalize(text))


def normalize(text: str) -> str:
    """Apply NFKC, by which full-width letters become ordinary ones."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


@lru_cache(maxsize=_STEM_CACHE_SIZE)
def _cached_stems(run: str) -> tuple[str, ...]:
    """Cached for short ASCII runs only: a long one, or one of Chinese, seldom recurs."""
    return _tokenize_run(run)


def _tokenize_run(run: str) -> tuple[str, ...]:
    if not _IS_HAN.match(run):
        return tuple(_stem(word) for word in _split_camel_case(run))
    simple = run.translate(TRADITIONAL_TO_SIMPLIFIED)
    return (*simple, *_bigrams(simple))


def _tokenize_query_run(run: str) -> tuple[str, ...]:
    if not _IS_HAN.match(run):
        return tuple(_split_camel_case(run))
    simple = run.translate(TRADITIONAL_TO_SIMPLIFIED)
    return tuple(_bigrams(simple)) if len(simple) > 1 else (simple,)


def _split_camel_case(run: str) -> list[str]:
    """Split camelCase and keep the whole: `readPDFFile` is three words, `GitHub` also `github`."""
    parts = split_words(run)
    every = parts if len(parts) == 1 else [*parts, run]
    return [part.casefold()[:_MAX_TOKEN_CHARS] for part in every]


def split_words(run: str) -> list[str]:
    """Split an identifier in camelCase into its words."""
    return _CAMEL.split(run)


def _bigrams(run: str) -> list[str]:
    return list(map(add, run, run[1:]))


@lru_cache(maxsize=_STEM_CACHE_SIZE)
def _stem(word: str) -> str:
    if not word.isascii():
        return word
    with _stemmer_lock:
        return _stemmer.stemWord(word)


@lru_cache(maxsize=131_072)
def term_hash(word: str) -> int:
    """Hash a token with CRC-32, which is equal in all processes: no vocabulary is stored."""
    return zlib.crc32(word.encode("utf-8", "surrogatepass"))


def hash_terms(words: Sequence[str]) -> TermHashes:
    """Hash many tokens that are looked up once, without filling the cache."""
    hashes = (zlib.crc32(word.encode("utf-8", "surrogatepass")) for word in words)
    return np.fromiter(hashes, np.uint32, len(words))


def count_terms(tokens: Iterable[str]) -> TermCounts:
    """Count the term frequencies of tokens, up to 255 each."""
    return _count_hashes(np.fromiter(map(term_hash, tokens), np.uint32))


def count_text_terms(text: str, *, title: str = "", weight: int = 1) -> TermCounts:
    """Count the term frequencies of a document; its title counts `weight` times."""
    normalized = normalize("\n".join((title,) * weight + (text,)))
    if normalized.isascii() or not _IS_HAN.search(normalized) or _IS_RARE.search(normalized):
        return _count_hashes(_hash_runs(_RUN_PATTERN.findall(normalized)))
    others = _hash_runs(_NOT_HAN.findall(normalized))
    return _count_hashes(np.concatenate((others, cjk_bigram_terms(normalized))))


def _hash_runs(runs: Iterable[str]) -> NDArray[np.uint32]:
    return np.fromiter(chain.from_iterable(map(_run_terms.__getitem__, runs)), np.uint32)


class _RunTermCache(dict[str, tuple[int, ...]]):
    """Cache of the term hashes of a run; `dict.__missing__` makes a hit cost no Python call."""

    def __missing__(self, run: str) -> tuple[int, ...]:
        hashes = tuple(map(term_hash, _tokenize_run(run)))
        if len(run) <= _MAX_TOKEN_CHARS:
            if len(self) >= _STEM_CACHE_SIZE:
                self.clear()
            self[run] = hashes
        return hashes


_run_terms = _RunTermCache()


def _count_hashes(hashes: NDArray[np.uint32]) -> TermCounts:
    # Hashes may collide: a term listed twice would count as two documents in the IDF.
    terms, counts = np.unique(hashes, return_counts=True)
    return terms, np.minimum(counts, _MAX_COUNT).astype(np.uint8)
