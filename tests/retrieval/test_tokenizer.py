"""Tokenizer: stems, CJK bigrams and stop words."""

import sys
import threading
import tracemalloc
import zlib
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
import Stemmer
from hypothesis import given
from hypothesis import strategies as st

from apexbridge.retrieval.base import TextKind
from apexbridge.retrieval.tokenizer import (
    TRADITIONAL_TO_SIMPLIFIED,
    count_terms,
    count_text_terms,
    hash_terms,
    is_chinese,
    normalize,
    phrase_runs,
    stems,
    term_hash,
    tokenize,
)

ANY_TEXT = st.text(st.characters(), max_size=60)  # lone surrogates among them
COLLIDING = ("plumless", "buckeroo")


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads that take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def _stem(word: str) -> str:
    stemmer = Stemmer.Stemmer("english")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return str(stemmer.stemWord(word))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]


def _document(text: str) -> list[str]:
    return tokenize(text, kind="document")


def _query(text: str) -> list[str]:
    return tokenize(text, kind="query")


def test_full_width_and_other_forms_are_folded() -> None:
    assert _query("ＰＤＦ　ｆｏｒｍｓ") == _query("PDF forms") == ["pdf", "form"]
    assert _document("ﬁnding Ⅳ ①") == _document("finding IV 1")
    assert _document("café") == _document("cafe\u0301") == ["café"]
    assert _document("STRASSE") == _document("straße")


def test_traditional_characters_are_simplified_on_both_sides() -> None:
    assert _query("數據庫遷移") == _query("数据库迁移") == ["数据", "据库", "库迁", "迁移"]
    assert _document("圖片壓縮") == _document("图片压缩")
    assert all(
        len(chr(old)) == 1 and len(chr(new)) == 1 for old, new in TRADITIONAL_TO_SIMPLIFIED.items()
    )
    # What is simplified stays as it is: folding twice changes nothing.
    assert not {chr(new) for new in TRADITIONAL_TO_SIMPLIFIED.values()} & {
        chr(old) for old in TRADITIONAL_TO_SIMPLIFIED
    }


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("readPDFFile", ["read", "pdf", "file", "readpdffile"]),
        ("getHTTPResponse2Text", ["get", "http", "response2", "text", "gethttpresponse2text"]),
        ("iOS", ["i", "os", "ios"]),
        ("GitHub YouTube", ["git", "hub", "github", "you", "tube", "youtube"]),
        ("snake_case_name", ["snake", "case", "name"]),
        ("kebab-case.py", ["kebab", "case", "py"]),
        ("ABC", ["abc"]),
    ],
)
def test_camel_case_is_split_into_words_and_kept_whole(written: str, expected: list[str]) -> None:
    assert _document(written) == [_stem(word) for word in expected]


@pytest.mark.parametrize("name", ["GitHub", "YouTube", "PowerPoint", "JavaScript"])
def test_a_name_in_camel_case_matches_its_lower_case(name: str) -> None:
    assert set(_query(name.lower())) <= set(_document(f"about {name} only"))
    assert set(_query(name)) & set(_document(f"about {name.lower()} only"))


def test_words_are_stemmed() -> None:
    assert set(_document("convert converts converted converting")) == {"convert"}
    assert _query("running tests") == _document("run test")


def test_a_document_has_characters_and_bigrams_a_query_bigrams_only() -> None:
    assert _document("数据库") == ["数", "据", "库", "数据", "据库"]
    assert _query("数据库") == ["数据", "据库"]
    assert _query("库") == ["库"]
    assert _document("库") == ["库"]
    assert _query("用 Python 写") == ["用", "python", "写"]
    assert set(_query("图")) <= set(_document("压缩图片"))


def test_adjacent_scripts_are_split() -> None:
    assert _query("用pandas分析CSV文件") == ["用", "panda", "分析", "csv", "文件"]
    assert _query("报表2024年") == ["报表", "2024", "年"]
    assert set(_query("PDF解析")) <= set(_document("解析PDF：PDF解析器"))


def test_bigrams_do_not_cross_punctuation() -> None:
    assert "库表" not in _document("数据库，表格")
    assert "库表" not in _document("数据库 表格")


def test_emoji_and_signs_are_no_words() -> None:
    for nothing in ("", " \n\t", "🎉👩‍👩‍👧‍👦", "!!! --- ___ ***", "，。！？", "\ud83d", "\0\x1b"):
        assert _document(nothing) == []
        assert _query(nothing) == []
    assert _query("🎉pdf🎉") == ["pdf"]
    assert _query("read\ud800pdf") == ["read", "pdf"]


def test_japanese_and_korean_are_tokenized() -> None:
    assert set(_query("翻訳")) <= set(_document("文書を翻訳する"))
    assert set(_query("カメラ")) <= set(_document("カメラ"))
    assert _query("ｶﾒﾗ") == _query("カメラ")
    assert set(_query("번역")) <= set(_document("번역 도구"))


def test_a_word_of_any_length_is_cut_the_same_on_both_sides() -> None:
    huge = "x" * 100_000
    assert _document(huge) == _query(huge)
    assert len(_document(huge)[0]) <= 64
    assert len(_document("字" * 10_000)) == 19_999
    assert len(_query("字" * 10_000)) == 9_999


def test_stop_words_are_removed_unless_there_are_no_others() -> None:
    assert _query("can you please help me with the invoices") == ["invoic"]
    assert _query("帮我做一个报表") == ["我做", "做一", "个报", "报表"]
    assert _query("what is it") == ["what", "is", "it"]
    assert _query("帮我") == ["帮我"]
    assert _query("a the") == ["a", "the"]
    assert "the" in _document("the invoices")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", False),
        ("   ", False),
        ("🎉", False),
        ("Read PDF files", False),
        ("读取文件", True),
        ("读", True),
        ("用 Python 和 pandas 分析数据", True),
        ("把 React 组件迁移到 TypeScript", True),
        ("Translate 你好 into French, German and Spanish", False),
        ("數據庫", True),
        ("번역", False),
        ("カメラ", False),
        ("\ud800", False),
    ],
)
def test_chinese_is_detected(text: str, expected: bool) -> None:
    assert is_chinese(text) is expected


@given(ANY_TEXT)
def test_any_text_has_words_that_can_be_stored(text: str) -> None:
    is_chinese(text)
    for kind in ("document", "query"):
        found = _of(text, kind)
        assert all(found)
        assert all(0 <= term_hash(word) < 2**32 for word in found)
        assert found == _of(text, kind)


def _of(text: str, kind: TextKind) -> list[str]:
    return tokenize(text, kind=kind)


@given(ANY_TEXT)
def test_a_text_has_every_word_of_itself_as_a_request(text: str) -> None:
    assert set(_query(text)) <= set(_document(text))


@given(st.lists(st.text(max_size=6), max_size=80))
def test_terms_rise_and_are_counted(found: list[str]) -> None:
    terms, counts = count_terms(found)
    assert (terms.dtype, counts.dtype) == (np.uint32, np.uint8)
    assert terms.tolist() == sorted({zlib.crc32(w.encode("utf-8")) for w in found})
    expected = Counter(term_hash(word) for word in found)
    assert dict(zip(terms.tolist(), counts.tolist(), strict=True)) == expected


def test_counting_stops_at_255() -> None:
    terms, counts = count_terms(["a"] * 300 + ["b"] * 255 + ["c"] * 254)
    named = dict(zip(terms.tolist(), counts.tolist(), strict=True))
    assert [named[term_hash(word)] for word in "abc"] == [255, 255, 254]
    terms, counts = count_terms([])
    assert (terms.tolist(), counts.tolist()) == ([], [])
    assert (terms.dtype, counts.dtype) == (np.uint32, np.uint8)


def test_colliding_term_hashes_are_counted_as_one() -> None:
    one, other = COLLIDING
    assert term_hash(one) == term_hash(other)
    terms, counts = count_terms([one, other, one, "else"])
    assert np.all(terms[1:] > terms[:-1])
    assert counts[terms.tolist().index(term_hash(one))] == 3
    assert count_terms([one] * 200 + [other] * 200)[1].tolist() == [255]


CHINESE_AND_OTHERS = st.text(
    # Traditional ones, the first and the last of each range and their neighbours, and rare ones.
    st.sampled_from("中文技能臺灣書籍龜㐀㏿鿿ꀀ豈﫿\ue000𠀀𪛖aZ9é_ \n，。ｱ①e\u0301"),
    max_size=40,
)


@given(CHINESE_AND_OTHERS, CHINESE_AND_OTHERS)
def test_vectorized_cjk_terms_equal_those_of_each_run(text: str, title: str) -> None:
    cut = [*tokenize(title, kind="document") * 2, *tokenize(text, kind="document")]
    found, expected = count_text_terms(text, title=title, weight=2), count_terms(cut)
    assert [part.tolist() for part in found] == [part.tolist() for part in expected]


@given(st.text(max_size=80), st.text(max_size=20), st.integers(1, 3))
def test_words_are_counted_as_if_each_were_cut_alone(text: str, title: str, weight: int) -> None:
    cut = [*tokenize(title, kind="document") * weight, *tokenize(text, kind="document")]
    found, expected = count_text_terms(text, title=title, weight=weight), count_terms(cut)
    assert [part.tolist() for part in found] == [part.tolist() for part in expected]


@pytest.mark.usefixtures("hasty")
def test_threads_that_read_at_once_get_the_right_words() -> None:
    made = [
        f"{start}{letter}{end}"
        for letter in "bcdfghklmnprst"
        for start in ("nation", "happi", "generous", "relation", "organis", "condition", "analy")
        for end in ("ization", "fulness", "ingly", "ements", "ies", "ational")
    ]
    expected = {word: _stem(word) for word in made}
    wrong = list[str]()

    def read(some: list[str], kind: TextKind) -> None:
        for word in some:
            try:
                if tokenize(word, kind=kind) != [expected[word]]:
                    wrong.append(word)
            except IndexError:  # what a stemmer disturbed in the middle may raise
                wrong.append(word)

    parts: list[tuple[list[str], TextKind]] = [
        (made[::2], "document"),
        (made[1::2], "document"),
        (made[::-1], "query"),
    ]
    threads = [threading.Thread(target=read, args=part) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.unmeasured
def test_the_stem_cache_is_bounded() -> None:
    texts = [chr(0x4E00 + number) * 2_000 for number in range(100)]
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for text in (*texts, *(f"{number}" * 1_000 for number in range(1_000))):
            tokenize(text, kind="document")
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 1_000_000  # the texts alone would be more


@pytest.mark.unmeasured
def test_the_term_cache_is_bounded() -> None:
    runs = [chr(0x4E00 + number) * 2_000 for number in range(100)]
    runs += [f"{number:03}" * 10_000 for number in range(100)]
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for run in runs:
            count_text_terms(run.lower(), title=run.upper())
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 1_000_000  # the runs alone would be more than three times that


@given(ANY_TEXT)
def test_phrase_runs_have_the_positions_of_their_letters(text: str) -> None:
    text = normalize(text)
    end = 0
    for run, start, stop in phrase_runs(text):
        assert end <= start < stop <= len(text)
        assert text[start:stop].casefold().translate(TRADITIONAL_TO_SIMPLIFIED) == run
        end = stop


def test_phrase_runs_are_lower_case_and_simplified_and_split_scripts() -> None:
    assert [run for run, _, _ in phrase_runs("用PDF-Creator轉換_文件")] == [
        "用",
        "pdf",
        "creator",
        "转换",
        "文件",
    ]


@given(st.lists(st.text(st.characters(codec="ascii", categories=["Ll"]), min_size=1), max_size=20))
def test_stems_and_hashes_of_many_words_are_those_of_each(words: list[str]) -> None:
    assert stems(words) == [_stem(word) for word in words]
    assert hash_terms(words).tolist() == [term_hash(word) for word in words]
