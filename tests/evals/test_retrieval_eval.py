"""Retrieval metrics over a labelled corpus."""

from collections.abc import Sequence

import pytest

from apexbridge.errors import EmbedderUnavailableError
from apexbridge.evals.corpus import CorpusSkill, EvalQuery
from apexbridge.evals.retrieval_eval import build_index, evaluate, query_language
from apexbridge.retrieval.base import Matrix, TextKind
from apexbridge.retrieval.results import (
    Hit,
    ScoreParts,
    SearchResults,
    SyncCallbacks,
    SyncProgress,
)
from apexbridge.testing import HashEmbedder
from tests.evals.failing_embedder import BrokenEmbedder
from tests.evals.indexes import small_index

pytestmark = pytest.mark.anyio


class _RecordingEmbedder(HashEmbedder):
    """Hash embedder that records the batches of queries."""

    def __init__(self, dimensions: int) -> None:
        super().__init__(dimensions)
        self.queries = list[list[str]]()

    async def embed(self, texts: Sequence[str], *, kind: TextKind) -> Matrix:
        if kind == "query":
            self.queries.append(list(texts))
        return await super().embed(texts, kind=kind)


async def test_the_figures_are_shares_of_the_queries() -> None:
    index = await small_index()
    report = await evaluate(
        index,
        [
            EvalQuery(query="fill in the fields of a PDF form", accept=["pdf-forms"]),
            EvalQuery(query="draw charts from a CSV table", accept=["csv-report", "elsewhere"]),
            EvalQuery(query="write a commit message", accept=["elsewhere"]),
            EvalQuery(query="把会议录音整理成纪要", accept=["meeting-minutes"]),
        ],
    )
    assert [one.rank for one in report.ranked] == [1, 1, None, 1]
    figures = report.figures
    assert (figures.count, figures.hit_at_1, figures.mrr) == (4, 0.75, 0.75)
    assert (figures.recall_at_5, figures.recall_at_10) == (0.75, 0.75)
    assert 0 < figures.latency_ms.min <= figures.latency_ms.median <= figures.latency_ms.p95
    assert {key: part.count for key, part in report.by_language.items()} == {"en": 3, "zh": 1}
    assert report.by_language["zh"].hit_at_1 == 1
    assert (report.skills, report.depth) == (4, 10)


async def test_a_later_rank_counts_by_its_place() -> None:
    index = await small_index({f"s{n}": "alpha " * n + "beta " * (9 - n) for n in range(1, 9)})
    query = EvalQuery(query="alpha", accept=["s8"])
    ranked = [hit.name for hit in (await index.search("alpha", limit=8)).hits]
    seventh = query.model_copy(update={"accept": [ranked[6]]})
    third = query.model_copy(update={"accept": [ranked[2], ranked[7]]})
    figures = (await evaluate(index, [seventh, third])).figures
    assert (figures.hit_at_1, figures.recall_at_5, figures.recall_at_10) == (0, 0.5, 1)
    assert figures.mrr == pytest.approx((1 / 7 + 1 / 3) / 2)


async def test_a_greater_limit_looks_deeper_and_a_smaller_one_still_at_ten() -> None:
    index = await small_index({f"s{n:02}": "alpha " + "beta " * n for n in range(30)})
    last = (await index.search("alpha", limit=30)).hits[-1].name
    query = EvalQuery(query="alpha", accept=[last])
    shallow, deep = [await evaluate(index, [query], limit=limit) for limit in (1, 30)]
    assert (shallow.depth, shallow.ranked[0].rank, shallow.figures.mrr) == (10, None, 0)
    assert (deep.depth, deep.ranked[0].rank) == (30, 30)
    assert deep.figures.mrr == pytest.approx(1 / 30)


async def test_names_may_repeat_because_entries_go_by_id() -> None:
    corpus = [
        CorpusSkill(id="1", name="notes", description="Sort photographs of birds"),
        CorpusSkill(id="2", name="notes", description="Bake bread with rye"),
    ]
    reported = list[SyncProgress]()
    index = await build_index(
        corpus, HashEmbedder(256), watch=SyncCallbacks(progress=reported.append)
    )
    assert reported == [SyncProgress(done=2, total=2)]
    report = await evaluate(index, [EvalQuery(query="bake rye bread", accept=["2"])])
    assert (report.skills, report.figures.hit_at_1) == (2, 1)


async def test_the_other_wordings_of_a_query_are_searched_too() -> None:
    index = await small_index()
    query = EvalQuery(query="?", query_zh="整理会议纪要", accept=["meeting-minutes"])
    assert (await evaluate(index, [query])).ranked[0].rank == 1


async def test_near_duplicates_have_ranks_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    index = await small_index()
    hits = tuple(
        Hit(name=name, score=0.9, parts=ScoreParts(), alike=alike)
        for name, alike in (("a", ("b", "c")), ("d", ()))
    )

    async def search(*_: object, **__: object) -> SearchResults:
        return SearchResults(hits=hits, confidence=0.9, searched=4)

    monkeypatch.setattr(index, "search", search)
    queries = [EvalQuery(query="x", accept=[name]) for name in "abcd"]
    assert [one.rank for one in (await evaluate(index, queries)).ranked] == [1, 2, 3, 4]


async def test_no_time_is_that_of_a_cached_search() -> None:
    embedder = _RecordingEmbedder(256)
    corpus = [CorpusSkill(id="1", name="a", description="Bake rye bread")]
    index = await build_index(corpus, embedder)
    both = EvalQuery(query="黑麦", query_en="rye", accept=["1"])
    asked = [
        both,
        *(EvalQuery(query=text, accept=["1"]) for text in ("rye", "rye", "warm up 预热")),
    ]
    embedder.queries.clear()
    report = await evaluate(index, asked)
    embedded = [batch for batch in embedder.queries if len(batch) <= 2]  # no reference texts
    # The index has the vector of "rye" from the first query: it is embedded again for the second.
    assert embedded == [["warm up 预热."], ["黑麦", "rye"], ["rye"], ["warm up 预热"]]
    _, first, second, _ = [one.milliseconds for one in report.ranked]
    assert first == second


@pytest.mark.parametrize(
    ("text", "lang", "language"),
    [
        ("hello", None, "en"),
        ("整理会议", None, "zh"),
        ("hello", "zh-CN", "zh"),
        ("整理会议", "EN", "en"),
        ("整理会议", "fr", "zh"),
    ],
)
async def test_a_query_says_its_language_or_shows_it(text: str, lang: str, language: str) -> None:
    assert query_language(EvalQuery(query=text, accept=["1"], lang=lang)) == language


async def test_without_an_embedder_there_are_no_figures() -> None:
    corpus = [CorpusSkill(id="1", name="a", description="b")]
    with pytest.raises(EmbedderUnavailableError):
        await build_index(corpus, BrokenEmbedder())
    index = await small_index()
    index.embedder = BrokenEmbedder()
    with pytest.raises(EmbedderUnavailableError):
        await evaluate(index, [EvalQuery(query="x", accept=["pdf-forms"])])


async def test_no_queries_are_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="no queries"):
        await evaluate(await small_index(), [])
