"""BM25 index: scores after any sequence of additions, deletions and merges."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apexbridge.retrieval import bm25
from apexbridge.retrieval.bm25 import K1, B, Bm25Index
from apexbridge.retrieval.tokenizer import count_terms, hash_terms, term_hash

WORDS = "abcdefgh"
TEXTS = st.lists(st.sampled_from(WORDS), max_size=12)
BATCHES = st.lists(TEXTS, max_size=5)
REQUESTS = [[], ["a"], ["a", "b", "c"], ["h", "unseen"], ["unseen"], ["a", "a", "d"], [*WORDS]]


@dataclass
class Plain:
    """The same in plain Python, over the living texts."""

    texts: dict[int, list[str]] = field(default_factory=dict[int, list[str]])

    def scores(self, words: Sequence[str]) -> dict[int, float]:
        return {row: sum(self.gains(words, row).values()) for row in self.texts}

    def gains(self, words: Sequence[str], row: int) -> Mapping[str, float]:
        text, unique = self.texts[row], list(dict.fromkeys(words))
        perfect = sum(self._rarity(word) * (K1 + 1) for word in unique)
        average = sum(map(len, self.texts.values())) / len(self.texts) or 1
        held_back = K1 * (1 - B + B * len(text) / average)
        return {
            word: self._rarity(word) * (K1 + 1) * n / (n + held_back) / perfect
            for word in unique
            if (n := text.count(word))
        }

    def rarity(self, words: Sequence[str]) -> float:
        """Inverse document frequencies, where that of an unseen word is 1."""
        if not self.texts:
            return 0.0
        return sum(self._rarity(word) for word in words) / math.log(1 + len(self.texts))

    def _rarity(self, word: str) -> float:
        having = sum(word in text for text in self.texts.values())
        if not having:
            return math.log(1 + len(self.texts))
        return math.log(1 + (len(self.texts) - having + 0.5) / (having + 0.5))


def _add(index: Bm25Index, first: int, texts: Sequence[Sequence[str]]) -> None:
    counted = [count_terms(text) for text in texts]
    index.add(first, [terms for terms, _ in counted], [counts for _, counts in counted])


def _filled(*texts: str) -> Bm25Index:
    index = Bm25Index()
    _add(index, 0, [text.split() for text in texts])
    return index


def _expect_equal(index: Bm25Index, plain: Plain, size: int) -> None:
    for words in REQUESTS:
        matches = index.match(words)
        expected = plain.scores(words)
        assert matches.scores.shape == (size,)
        assert matches.scores.dtype == np.float32
        for row in range(size):
            assert matches.scores[row] == pytest.approx(expected.get(row, 0), abs=1e-5)
            assert 0 <= matches.scores[row] <= 1
        rows = list(plain.texts)
        for row, found in zip(rows, matches.matched_words(rows), strict=True):
            assert found == pytest.approx(plain.gains(words, row), abs=1e-5)
            assert list(found.values()) == sorted(found.values(), reverse=True)


@given(st.lists(TEXTS, max_size=12))
def test_scores_are_those_of_plain_bm25(texts: list[list[str]]) -> None:
    index = Bm25Index()
    _add(index, 0, texts)
    _expect_equal(index, Plain(dict(enumerate(texts))), len(texts))


STEPS = st.lists(
    st.one_of(
        BATCHES.map(lambda texts: ("add", texts)),
        st.integers(0, 30).map(lambda row: ("remove", row)),
        st.just(("sweep", 0)),
        st.just(("search", 0)),
    ),
    max_size=25,
)


@given(STEPS)
def test_scores_equal_those_of_a_rebuilt_index(
    steps: list[tuple[str, list[list[str]] | int]],
) -> None:
    index, plain, size = Bm25Index(), Plain(), 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bm25, "_MAX_SEGMENTS", 2)
        for step, what in steps:
            if isinstance(what, list):
                _add(index, size, what)
                plain.texts |= dict(enumerate(what, size))
                size += len(what)
            elif step == "remove" and what < size:
                index.remove(what)
                plain.texts.pop(what, None)
            elif step == "sweep":
                index = index.compacted()
                plain = Plain(dict(enumerate(plain.texts.values())))
                size = len(plain.texts)
            elif step == "search":  # caches between searches must not outlive a change
                index.match(["a", "b"])
    _expect_equal(index, plain, size)
    fresh = Bm25Index()
    _add(fresh, 0, list(plain.texts.values()))
    rows = list(plain.texts)
    for words in REQUESTS:
        assert np.array_equal(index.match(words).scores[rows], fresh.match(words).scores)


def test_many_small_additions_are_merged_and_nothing_is_lost() -> None:
    index, plain = Bm25Index(), Plain()
    for number in range(70):
        text = [f"w{number}", f"w{number // 7}", "all"]
        _add(index, number, [text])
        plain.texts[number] = text
    for words in (["all"], ["w3"], ["w69", "w9", "none"]):
        expected = plain.scores(words)
        found = index.match(words).scores
        assert found == pytest.approx(np.array([expected[row] for row in range(70)]), abs=1e-5)


@given(st.lists(BATCHES, max_size=12), st.sets(st.integers(0, 40)))
def test_rows_too_far_apart_for_one_segment_are_kept_in_several(
    batches: list[list[list[str]]], dead: set[int]
) -> None:
    index, plain, size = Bm25Index(), Plain(), 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bm25, "_MAX_SEGMENTS", 2)
        patch.setattr(bm25, "_MAX_SEGMENT_ROWS", 3)
        patch.setattr(bm25, "_CHUNK_KEYS", 2)
        for texts in batches:
            _add(index, size, texts)
            plain.texts |= dict(enumerate(texts, size))
            size += len(texts)
        for row in dead:
            if row < size:
                index.remove(row)
                plain.texts.pop(row)
        _expect_equal(index, plain, size)
        swept = Plain(dict(enumerate(plain.texts.values())))
        _expect_equal(index.compacted(), swept, len(swept.texts))


def test_more_rows_than_16_bits_are_split_into_segments() -> None:
    size = 70_000
    index = Bm25Index()
    terms, counts = count_terms(["all"])
    rare, often = count_terms(["rare", "all"])
    index.add(0, [terms] * (size - 1) + [rare], [counts] * (size - 1) + [often])
    index.add(size, [rare], [often])
    assert np.flatnonzero(index.match(["rare"]).scores).tolist() == [size - 1, size]
    assert (index.match(["all"]).scores > 0).all()
    index.remove(0)
    assert np.flatnonzero(index.compacted().match(["rare"]).scores).tolist() == [size - 2, size - 1]


def test_nothing_matches_nothing() -> None:
    empty = Bm25Index()
    assert empty.match(["a"]).scores.shape == (0,)
    assert empty.compacted().match(["a"]).scores.shape == (0,)
    index = _filled("a b", "")
    assert index.match([]).scores.tolist() == [0, 0]
    assert index.match([]).matched_words([0, 1]) == [{}, {}]
    assert index.match(["a"]).matched_words([]) == []


def test_a_document_without_terms_is_never_found() -> None:
    for texts in (("", "a", ""), ("", "")):
        scores = _filled(*texts).match(["a"]).scores
        assert [score > 0 for score in scores] == [bool(text) for text in texts]


def test_an_emptied_index_finds_nothing_and_accepts_entries() -> None:
    index = _filled("a", "a b")
    for row in (0, 1, 1):
        index.remove(row)
    assert index.match(["a"]).scores.tolist() == [0, 0]
    assert index.match(["a"]).matched_words([0, 1]) == [{}, {}]
    assert index.compacted().match(["a"]).scores.tolist() == []
    _add(index, 2, [["a"]])
    assert np.flatnonzero(index.match(["a"]).scores).tolist() == [2]


def test_an_unknown_term_lowers_every_match() -> None:
    index = _filled("a b", "c d", "e f")
    sure, unsure = index.match(["a"]), index.match(["a", "unseen"])
    assert 0 < unsure.scores[0] < sure.scores[0]
    assert index.match(["unseen"]).scores.tolist() == [0, 0, 0]
    assert unsure.matched_words([0, 1]) == [{"a": pytest.approx(unsure.scores[0])}, {}]


def test_a_rare_word_weighs_more_and_a_repeated_one_of_the_request_no_more() -> None:
    index = _filled("common rare", "common", "common", "common")
    (found,) = index.match(["common", "rare", "common"]).matched_words([0])
    assert list(found) == ["rare", "common"]
    once = index.match(["common", "rare"]).scores
    assert np.array_equal(index.match(["common", "rare", "common"]).scores, once)


def test_rows_may_be_asked_for_in_any_order_and_twice() -> None:
    matches = _filled("a", "b", "a b").match(["a", "b"])
    one = matches.matched_words([0, 1, 2])
    assert matches.matched_words([2, 0, 2, 1]) == [one[2], one[0], one[2], one[1]]


def test_colliding_term_hashes_count_as_one_document() -> None:
    index = Bm25Index()
    _add(index, 0, [["plumless", "buckeroo"]])
    assert term_hash("plumless") == term_hash("buckeroo")
    assert 0 < index.match(["plumless"]).scores[0] <= 1
    assert index.match(["plumless", "buckeroo"]).matched_words([0])[0].keys() == {
        "plumless",
        "buckeroo",
    }


@given(st.lists(TEXTS, max_size=12))
def test_the_weight_is_the_root_of_the_number_of_rare_words(texts: list[list[str]]) -> None:
    index, plain = Bm25Index(), Plain(dict(enumerate(texts)))
    _add(index, 0, texts)
    for words in REQUESTS:
        matches = index.match(words)
        unique = list(dict.fromkeys(words))
        assert matches.weight**2 == pytest.approx(plain.rarity(unique), abs=1e-5)
        assert index.rarity(unique) == pytest.approx(plain.rarity(unique), abs=1e-5)
        seen = {word for text in texts for word in text}
        assert matches.unknown == tuple(w for w in unique if w not in seen and texts)


def test_more_words_and_rarer_ones_are_more_evidence() -> None:
    index = _filled("common rare odd", "common", "common", "common")
    common, rare, unseen, both = (
        index.match(words).weight for words in (["common"], ["rare"], ["x"], ["rare", "odd"])
    )
    assert 0 < common < rare <= unseen == pytest.approx(1)
    assert both == pytest.approx(math.sqrt(2) * rare)


def test_the_frequencies_are_numbers_of_documents() -> None:
    index = _filled("a a b", "a", "c")
    _add(index, 3, [["a", "d"]])
    wanted = hash_terms(["a", "b", "unseen", "d", "a"])
    assert index.frequencies(wanted).tolist() == [3, 1, 0, 1, 3]
    assert index.frequencies(hash_terms([])).tolist() == []
    assert Bm25Index().frequencies(wanted).tolist() == [0] * 5
    index.remove(0)
    assert index.compacted().frequencies(wanted).tolist() == [2, 0, 0, 1, 2]


def test_the_rarity_of_deleted_and_of_no_documents_is_a_number() -> None:
    index = _filled("a", "a b")
    for row in (0, 1):
        index.remove(row)
        assert 0 <= index.rarity(["a", "unseen"]) <= 2
    assert Bm25Index().rarity(["a"]) == 0
    assert _filled("a").rarity([]) == 0
