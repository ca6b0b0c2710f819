"""Spelling correction: one edit, by the words of the index, of unknown words only."""

import string

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from apexbridge.retrieval.base import IndexEntry
from apexbridge.retrieval.memory_index import MemoryIndex
from apexbridge.retrieval.ranking import match_words, no_word
from apexbridge.retrieval.spelling import correct, correct_text, is_correctable, single_edits
from apexbridge.retrieval.tokenizer import (
    TermHashes,
    count_text_terms,
    hash_terms,
    query_words,
    stems,
)

LETTERS = string.ascii_lowercase
WORDS = st.text(LETTERS, min_size=6, max_size=19)


class Vocabulary:
    """Document frequencies of some words, and the number of lookups."""

    def __init__(self, **counts: int) -> None:
        terms = hash_terms(stems(list(counts))).tolist()
        self._counts = dict(zip(terms, counts.values(), strict=True))
        self.lookups = 0

    def __call__(self, terms: TermHashes) -> NDArray[np.int64]:
        self.lookups += 1
        return np.array([self._counts.get(term, 0) for term in terms.tolist()], np.int64)


def _memory(*texts: str) -> MemoryIndex:
    memory = MemoryIndex()
    entries = list[IndexEntry]()
    for number, text in enumerate(texts):
        terms, counts = count_text_terms(text)
        entries.append(
            IndexEntry(
                name=f"n{number}",
                fingerprint="1",
                texts=(f"n{number}. {text}",),
                vectors=np.eye(1, 4, dtype=np.float32),
                terms=terms,
                counts=counts,
            )
        )
    memory.put(entries)
    return memory


@st.composite
def _slips(draw: st.DrawFn) -> tuple[str, str]:
    """Draw a word and the same with one slip of the keyboard."""
    word = draw(WORDS)
    at = draw(st.integers(0, len(word) - 1))
    letter = draw(st.sampled_from(LETTERS))
    slips = [word[:at] + word[at + 1 :], word[:at] + letter + word[at:], word + letter]
    slips += [word[:at] + letter + word[at + 1 :]]
    if at + 1 < len(word):
        slips += [word[:at] + word[at + 1] + word[at] + word[at + 2 :]]
    return word, draw(st.sampled_from(slips).filter(lambda slip: slip != word))


@given(_slips())
def test_every_word_at_one_edit_is_found(pair: tuple[str, str]) -> None:
    word, slip = pair
    assert word in set(single_edits(slip))
    found = correct([slip], Vocabulary(**{word: 3}))
    assert found == {slip: stems([word])[0]}


@given(WORDS)
def test_all_edits_are_at_distance_one(word: str) -> None:
    for other in set(single_edits(word)) - {word}:
        assert _is_one_edit(word, other)


def _is_one_edit(word: str, other: str) -> bool:
    """Compare by what is left between the common beginning and the common end."""
    start = 0
    while start < min(len(word), len(other)) and word[start] == other[start]:
        start += 1
    end = 0
    while end < min(len(word), len(other)) - start and word[-1 - end] == other[-1 - end]:
        end += 1
    left, right = word[start : len(word) - end], other[start : len(other) - end]
    is_swap = len(left) == len(right) == 2 and left == right[::-1]
    return max(len(left), len(right)) == 1 or is_swap


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("slip", False),
        ("slips", True),
        ("x" * 20, True),
        ("x" * 21, False),
        ("word2vec", False),
        ("naïvely", False),
        ("计算圆周率", False),
        ("", False),
    ],
)
def test_short_long_and_other_words_are_left_alone(word: str, expected: bool) -> None:
    assert is_correctable(word) is expected
    neighbours = {one: 1 for one in [f"{word[:-1]}q", f"{word}q"] if one}
    assert bool(correct([word], Vocabulary(**neighbours))) is expected


def test_the_word_of_most_documents_wins() -> None:
    for counts, best in (({"invoice": 2, "invoiced": 9}, "invoic"), ({"charts": 1}, "chart")):
        slip = "invoicee" if best == "invoic" else "chartx"
        assert correct([slip], Vocabulary(**counts)) == {slip: best}
    common = Vocabulary(marked=3, market=5)
    assert correct(["marke"], common) == {"marke": stems(["market"])[0]}


def test_a_word_without_neighbours_stays_unknown() -> None:
    assert correct(["zzzzzzz", "pyhton"], Vocabulary(python=1)) == {"pyhton": "python"}
    assert correct([], Vocabulary(python=1)) == {}
    assert correct(["pyhton"], Vocabulary()) == {}


def test_at_most_six_words_are_corrected() -> None:
    vocabulary = Vocabulary(**{f"python{letter}": 1 for letter in "abcdefghijkl"})
    slips = [f"pythn{letter}" for letter in "abcdefghijkl"]
    found = correct(["ok", *slips], vocabulary)
    assert list(found) == slips[:6]
    assert vocabulary.lookups == 6


def test_a_slip_of_a_query_matches_the_word_that_is_meant() -> None:
    memory = _memory("translate documents", "bake bread at home", "repair a bicycle")
    for slip in ("transalte documnets", "tranlsate documets"):
        matches = match_words(memory, slip, no_word)
        assert matches.unknown == ()
        assert matches.scores == pytest.approx(
            match_words(memory, "translate documents", no_word).scores
        )
        (words,) = matches.matched_words([0])
        assert set(words) == set(stems(["translate", "documents"]))


def test_a_word_of_the_vocabulary_is_no_slip() -> None:
    memory = _memory("marked trees", "bread")
    assert match_words(memory, "market", no_word).unknown == ()
    kept = match_words(memory, "market trees", lambda word: word == "market")
    assert kept.unknown == tuple(stems(["market"]))
    (words,) = kept.matched_words([0])
    assert set(words) == set(stems(["trees"]))


def test_a_known_word_is_not_changed() -> None:
    memory = _memory("marked trees", *["market prices"] * 5)
    matches = match_words(memory, "marked", no_word)
    (words,) = matches.matched_words([0])
    assert set(words) == set(stems(["marked"]))
    assert matches.scores[1:].tolist() == [0] * 5


@given(st.lists(st.sampled_from(["market", "marked", "prices", "trees", "图表", "qqqqqq"])))
def test_without_a_slip_matching_is_plain(words: list[str]) -> None:
    memory, text = _memory("marked trees 图表", "market prices"), " ".join(words)
    plain = memory.bm25.match(stems(query_words(text)))
    found = match_words(memory, text, no_word)
    assert found.scores.tolist() == plain.scores.tolist()
    assert (found.unknown, found.weight) == (plain.unknown, plain.weight)


def test_a_word_of_another_form_is_known_by_its_stem() -> None:
    memory = _memory("translating documents", "translator of bread")
    matches = match_words(memory, "translates", no_word)
    assert matches.unknown == ()
    assert matches.scores[0] > 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pleese transalte this", "please translate this"),
        ("transalteIt", "transalteIt"),  # an identifier
        ("translate it", "translate it"),
        ("shoppers", "shoppers"),  # no form of the known word `shop`
        ("帮我 transalte 一下", "帮我 translate 一下"),
    ],
)
def test_a_query_is_corrected_by_the_vocabulary_and_the_index(text: str, expected: str) -> None:
    index = Vocabulary(translate=3, please=1, shop=9)
    words = {"please", "translate", "this"}
    assert correct_text(text, index, words.__contains__) == expected


def test_a_product_that_no_vocabulary_has_is_corrected_if_several_documents_name_it() -> None:
    assert correct_text("on Whatsap", Vocabulary(whatsapp=5), no_word) == "on whatsapp"
    assert correct_text("on Whatsap", Vocabulary(whatsapp=4), no_word) == "on Whatsap"


def _bigrams(**counts: int) -> Vocabulary:
    return Vocabulary(**counts)


@pytest.mark.parametrize(
    ("given_text", "expected"),
    [
        ("做一个表哥", "做一个表格"),  # at the end of a run
        ("伦文排版", "论文排版"),  # at its beginning
        ("请把表哥排版好", "请把表格排版好"),  # within it
        ("merge 表哥 and 伦文", "merge 表格 and 论文"),  # in a mixed text
        ("表格排版", "表格排版"),
        ("哥", "哥"),
        ("no Chinese at all", "no Chinese at all"),
    ],
)
def test_a_homophone_that_makes_a_known_bigram_replaces_a_character(
    given_text: str, expected: str
) -> None:
    documents = _bigrams(表格=40, 格排=2, 排版=30, 论文=25, 文排=1)
    assert correct_text(given_text, documents, no_word) == expected


@pytest.mark.parametrize(("count", "is_corrected"), [(7, False), (19, False), (20, True)])
def test_a_bigram_of_few_documents_corrects_nothing(count: int, *, is_corrected: bool) -> None:
    found = correct_text("做一个表哥吧", _bigrams(表格=count), no_word)
    assert (found == "做一个表格吧") == is_corrected


def test_fewer_documents_are_enough_if_both_bigrams_are_known() -> None:
    assert correct_text("表哥排版", _bigrams(表格=8, 格排=1, 排版=3), no_word) == "表格排版"
    assert correct_text("表哥排版", _bigrams(表格=7, 格排=1, 排版=3), no_word) == "表哥排版"


def test_a_character_beside_a_known_bigram_stays() -> None:
    documents = _bigrams(表哥=1, 表格=500)  # some document has a cousin
    assert correct_text("我的表哥来了", documents, no_word) == "我的表哥来了"


@given(st.text("表格哥伦论文排版的好", min_size=0, max_size=400))
def test_a_correction_has_the_length_of_the_text_and_bounded_work(text: str) -> None:
    documents = _bigrams(表格=40, 论文=25)
    found = correct_text(text, documents, no_word)
    assert len(found) == len(text)
    assert documents.lookups <= 2 * 2


@pytest.mark.parametrize("separator", ["", "，"], ids=["one run", "short runs"])
def test_a_long_text_of_which_no_document_has_a_word_costs_a_bounded_number_of_lookups(
    separator: str,
) -> None:
    looked_up = 0

    def count(terms: TermHashes) -> NDArray[np.int64]:
        nonlocal looked_up
        looked_up += len(terms)
        return np.zeros(len(terms), np.int64)

    text = separator.join(["事实上我们需要一点时间"] * 700)
    assert correct_text(text, count, no_word) == text
    assert looked_up < len(text) + 24 * 2 * 150  # its own bigrams, and edits of 24 characters
