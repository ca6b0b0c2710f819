"""Name index: names that a query mentions, in any spelling, exactly or with one slip."""

from collections.abc import Iterable, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apexbridge.retrieval.bm25 import Bm25Index
from apexbridge.retrieval.name_index import Mention, NameIndex, parts_of_others
from apexbridge.retrieval.ranking import no_word
from apexbridge.retrieval.spelling import single_edits
from apexbridge.retrieval.tokenizer import count_text_terms, normalize, phrase_runs

NAMES = ["pdf-creator", "terraform", "会议纪要", "翻译", "pdf", "a", "我", "x:y:z", "naïve", "C++"]
PIECES = st.sampled_from(
    [*NAMES, "pdf", "creator", "/", "`", "技能", "use ", " ", "，", "terrafrom"]
)
ANY_TEXT = st.one_of(
    st.text(st.characters(), max_size=60),  # lone surrogates among them
    st.lists(PIECES, max_size=12).map("".join),
)


def _index(*names: str) -> NameIndex:
    index = NameIndex()
    for row, name in enumerate(names):
        index.add(row, [name])
    return index


def _bm25(texts: Iterable[str]) -> Bm25Index:
    counted = [count_text_terms(text) for text in texts]
    index = Bm25Index()
    index.add(0, [terms for terms, _ in counted], [counts for _, counts in counted])
    return index


def _mentions(index: NameIndex, text: str, *, known: Iterable[str] = ()) -> list[Mention]:
    words = frozenset(known)
    return index.mentions(text, lambda word: word not in words)


def _rows(index: NameIndex, text: str, *, known: Iterable[str] = ()) -> set[int]:
    return {row for mention in _mentions(index, text, known=known) for row in mention.rows}


def _strengths(texts: Mapping[str, str], query: str) -> dict[str, float]:
    """Rate the names of a small library; texts are the documents by name."""
    names = list(texts)
    bm25 = _bm25(f"{name} {text}" for name, text in texts.items())
    found = _index(*names).strengths(query, bm25, no_word)
    return {names[row]: strength for row, strength in found.items()}


LIBRARY = {
    "pdf-creator": "Create documents for printing.",
    "terraform": "Write infrastructure as code.",
    "plan": "Plan the week and the work of it.",
    "diary": "Write down the plan, the work and the week.",
    "notes": "Keep a plan of the work.",
    "会议纪要": "整理会议内容，列出决定和待办。",
}


@pytest.mark.parametrize("name", ["pdf-creator", "PDF creator", "PdfCreator", "pdf_creator"])
@pytest.mark.parametrize(
    "query",
    [
        "pdf-creator",
        "PDF creator",
        "PdfCreator",
        "pdf_creator",
        "pdf.creator",
        "ＰＤＦ　Ｃｒｅａｔｏｒ",
        "please open the pdf-creator, now",
        "(PdfCreator)",
        "用pdf creator转换",
    ],
)
def test_the_spellings_of_a_name_have_one_key(name: str, query: str) -> None:
    assert _rows(_index(name), query) == {0}


@pytest.mark.parametrize("query", ["pdf", "creator", "creator pdf", "pdf a creator", "xpdfcreator"])
def test_parts_of_a_name_are_no_mention(query: str) -> None:
    assert _rows(_index("pdf-creator"), query, known=["xpdfcreator"]) == set()


def test_a_name_within_a_longer_word_is_no_mention() -> None:
    index = _index("art", "sum", "ca")
    for query in ("start", "the party", "artful", "summary", "cans"):
        assert _rows(index, query) == set(), query


@pytest.mark.parametrize("query", ["résumé", "café", "Überartig", "артарт", "αβγδ"])
def test_a_word_of_other_letters_is_no_chinese_run(query: str) -> None:
    assert _rows(_index("sum", "ca", "art", "арт", "βγ"), query) == set()


def test_names_within_names_are_all_mentioned() -> None:
    index = _index("pdf", "pdf-creator", "creator")
    assert _rows(index, "run pdf-creator on it") == {0, 1, 2}
    assert _rows(index, "pdf") == {0}


@pytest.mark.parametrize(
    "query",
    [
        "会议纪要",
        "帮我写会议纪要吧",
        "会议纪要怎么写",
        "昨天的会议纪要",
        "會議紀要",
        "写，会议纪要。",
    ],
)
def test_a_chinese_name_is_found_inside_a_sentence(query: str) -> None:
    assert _rows(_index("会议纪要", "纪要员"), query) == {0}


def test_a_chinese_name_of_one_character_needs_to_stand_alone() -> None:
    index = _index("画")
    assert _rows(index, "画 一只猫") == {0}
    assert _rows(index, "漫画书") == set()


def test_rows_of_one_name_are_mentioned_together() -> None:
    index = NameIndex()
    index.add(0, ["office pdf", "pdf"])
    index.add(1, ["tools pdf", "pdf"])
    assert _rows(index, "pdf") == {0, 1}
    assert _rows(index, "office:pdf") == {0, 1}  # the last part is a name of both
    whole = [mention for mention in _mentions(index, "office:pdf") if len(mention.words) == 2]
    assert [list(mention.rows) for mention in whole] == [[0]]


def test_a_name_may_be_one_edit_away_if_no_document_has_the_word() -> None:
    index = _index("terraform", "kubernetes", "notes")
    for slip in ("terrafrom", "teraform", "terraforms", "terrafork", "Terrraform"):
        (mention,) = {(tuple(m.rows), m.is_exact) for m in _mentions(index, f"use {slip} here")}
        assert mention == ((0,), False)
    assert _rows(index, "use terrafrom here", known=["terrafrom"]) == set()
    assert _rows(index, "two edits: terafrom") == set()
    assert _rows(index, "short names: note, noted, votes") == set()


def test_few_words_of_a_long_text_are_looked_up_with_a_slip() -> None:
    index = _index("terraform")
    junk = " ".join(f"qwertz{chr(97 + n)}" for n in range(20))
    assert _rows(index, f"terrafrom {junk}") == {0}
    assert _rows(index, f"{junk} terrafrom") == set()
    assert _rows(index, f"{junk} terraform") == {0}


@pytest.mark.parametrize(
    "query",
    [
        "/pdf-creator report.md",
        "please /pdf-creator it",
        "do it with `pdf-creator` please",
        'open "PDF creator" for this',
        "打开「pdf-creator」",
        "$pdf-creator",
        "ask @pdf-creator about it",
        "take the pdf-creator skill for this",
        "the PDF creator tool does it",
        "the skill pdf-creator does it",
        "a skill called pdf-creator",
        "the one named PdfCreator",
        "Skill: pdf-creator",
        "invoke pdf-creator on this file",
        "pdf-creator技能",
        "用 pdf-creator 这个技能处理",
        "技能：pdf-creator",
        "调用pdf-creator",
        "名为 pdf-creator 的那个",
    ],
)
def test_a_name_that_is_marked_as_one_counts_in_full(query: str) -> None:
    assert _strengths(LIBRARY, query)["pdf-creator"] == 1.0


def test_a_name_that_is_used_or_foreign_counts_in_part() -> None:
    texts = {**LIBRARY, "pdf-creator": "a plan", "one": "pdf", "two": "creator", "three": "pdf"}
    for query in (
        "use the words and the pdf creator for the plan of the week and the work of it",
        "把这个计划和这一周的工作安排用pdf creator整理成一个文件给我看看",
    ):
        assert 0 < _strengths(texts, query)["pdf-creator"] <= 1
    (mention,) = _mentions(_index("plan"), "try: plan")
    assert 0 < mention.mark < 1
    (mention,) = _mentions(_index("plan"), "这个plan不行")
    assert 0 < mention.mark < 1
    (mention,) = _mentions(_index("plan"), "that is no plan of mine")
    assert mention.mark == 0


def test_a_name_that_is_the_whole_query_counts_in_full() -> None:
    for name in LIBRARY:
        assert _strengths(LIBRARY, name)[name] == pytest.approx(1.0)
        assert _strengths(LIBRARY, f"the {name}, please!")[name] >= 0.9


def test_inside_a_sentence_a_rare_name_counts_more_than_a_common_word() -> None:
    sentence = "the work of this week was to plan and to write terraform modules"
    found = _strengths(LIBRARY, sentence)
    assert found["terraform"] > found.get("plan", 0.0)
    assert found["terraform"] > 0.5


def test_a_slip_counts_less_than_the_name() -> None:
    exact, slip = (_strengths(LIBRARY, query)["terraform"] for query in ("terraform", "terrafrom"))
    assert 0.25 < slip < exact


def test_a_word_of_the_vocabulary_is_no_slip_of_a_name() -> None:
    index, bm25 = _index("planer"), _bm25(["planer of wood", "bread"])
    assert set(index.strengths("planes", bm25, no_word)) == {0}
    assert index.strengths("planes", bm25, lambda word: word == "planes") == {}
    assert set(index.strengths("planer", bm25, lambda _: True)) == {0}


def test_a_query_without_names_has_no_strengths() -> None:
    for query in ("", " ", "。", "🎉", "bake bread", "烤面包", "\ud800"):
        assert _strengths(LIBRARY, query) == {}


def test_names_without_letters_are_never_mentioned() -> None:
    index = _index("", "---", "。", "🎉")
    for query in ("", "---", "。", "🎉", "a --- b"):
        assert _rows(index, query) == set()


def test_removed_names_leave_nothing_behind() -> None:
    index = NameIndex()
    index.add(0, ["pdf creator", "pdf"])
    index.add(1, ["pdf"])
    index.remove(0, ["PDF-Creator", "pdf"])
    assert _rows(index, "pdf-creator pdf") == {1}
    index.remove(0, ["pdf"])  # once more is no error
    index.remove(1, ["pdf", "never added"])
    assert _mentions(index, "pdf-creator pdf") == []
    index.add(2, ["pdf"])
    assert _rows(index, "pdf") == {2}


def _key(name: str) -> str:
    return "".join(run for run, _, _ in phrase_runs(normalize(name)))


@given(ANY_TEXT, st.lists(st.one_of(st.sampled_from(NAMES), st.text(max_size=8)), max_size=12))
def test_only_rows_whose_key_occurs_are_mentioned(text: str, names: list[str]) -> None:
    index, keys = _index(*names), [_key(name) for name in names]
    joined = _key(text)
    runs = [run for run, _, _ in phrase_runs(normalize(text))]
    for mention in _mentions(index, text):
        key = "".join(mention.words)
        assert set(mention.rows) == {row for row, own in enumerate(keys) if own == key}
        assert 0 <= mention.mark <= 1
        if mention.is_exact:
            assert key in joined
        else:
            assert any(key in set(single_edits(run)) for run in runs)


@given(ANY_TEXT)
def test_strengths_are_shares(text: str) -> None:
    found = _index(*NAMES).strengths(text, _bm25(NAMES), no_word)
    assert all(0 <= strength <= 1 for strength in found.values())


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.booleans()), max_size=30))
def test_after_any_additions_and_removals_the_rows_are_those_left(
    steps: list[tuple[str, bool]],
) -> None:
    index, held = NameIndex(), dict[int, str]()
    for row, (name, is_added) in enumerate(steps):
        if is_added:
            index.add(row, [name])
            held[row] = name
        else:
            for other in [other for other, own in held.items() if own == name]:
                index.remove(other, [name])
                del held[other]
    for name in NAMES:
        expected = {row for row, own in held.items() if own == name}
        exact = {
            row for m in _mentions(index, name) for row in m.rows if _key(held[row]) == _key(name)
        }
        assert exact == expected


SPANS = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 6)).map(lambda s: (s[0], sum(s))))


@given(SPANS)
def test_a_span_is_a_part_if_a_longer_one_contains_it(spans: list[tuple[int, int]]) -> None:
    expected = {
        (start, end)
        for start, end in spans
        if any(
            first <= start and end <= last and last - first > end - start for first, last in spans
        )
    }
    assert parts_of_others(spans) == expected


def test_a_text_that_repeats_names_looks_up_the_rarity_of_each_once() -> None:
    looked_up = list[tuple[str, ...]]()

    class Counting(Bm25Index):
        def rarity(self, words: Sequence[str]) -> float:
            looked_up.append(tuple(words))
            return super().rarity(words)

    names, bm25 = ("表格", "天气", "格天"), Counting()
    counted = [count_text_terms(name) for name in names]
    bm25.add(0, [terms for terms, _ in counted], [counts for _, counts in counted])
    found = _index(*names).strengths("表格天气" * 2_000, bm25, no_word)
    assert found.keys() == {0, 1, 2}
    assert len(looked_up) == len(names) + 1  # and that of the whole query
