"""Stolen queries and near duplicates."""

import pytest

from apexbridge.errors import EmbedderUnavailableError
from apexbridge.evals.interference import (
    CoexistenceReport,
    SimilarPair,
    StolenQuery,
    measure_coexistence,
)
from apexbridge.retrieval.results import SyncCallbacks, SyncProgress
from tests.evals.failing_embedder import BrokenEmbedder
from tests.evals.indexes import small_index

pytestmark = pytest.mark.anyio


async def test_skills_for_different_things_leave_each_other_alone() -> None:
    reported = list[SyncProgress]()
    found = await measure_coexistence(
        await small_index(), watch=SyncCallbacks(progress=reported.append)
    )
    assert found == CoexistenceReport(skills=4, queries=8)
    assert found.matrix == {}
    assert reported == [SyncProgress(done=n, total=4) for n in (1, 2, 3, 4)]


async def test_one_of_two_copies_takes_the_queries_of_the_other() -> None:
    text = "Fill in PDF forms. Extract the fields of a document. " + " ".join(
        f"Also for documents of the {word} kind." for word in ("official", "legal", "medical")
    )
    index = await small_index({"pdf-a": text, "pdf-b": text, "birds": "Name birds by their song."})
    found = await measure_coexistence(index)
    names = {(theft.owner, theft.thief) for theft in found.thefts}
    assert names <= {("pdf-a", "pdf-b"), ("pdf-b", "pdf-a")}
    assert sum(sum(row.values()) for row in found.matrix.values()) == len(found.thefts) > 0
    (pair,) = found.alike
    assert (pair.one, pair.other) == ("pdf-a", "pdf-b")
    assert 0.95 < pair.cosine <= 1


async def test_the_matrix_names_the_most_robbed_first() -> None:
    thefts = [("b", "x", 1), ("a", "x", 1), ("c", "y", 1), ("c", "x", 2), ("a", "y", 1)]
    found = CoexistenceReport(
        skills=5,
        queries=9,
        thefts=tuple(
            StolenQuery(owner=owner, thief=thief, query=f"{n}")
            for owner, thief, count in thefts
            for n in range(count)
        ),
    )
    assert [(owner, dict(row)) for owner, row in found.matrix.items()] == [
        ("c", {"x": 2, "y": 1}),
        ("a", {"x": 1, "y": 1}),
        ("b", {"x": 1}),
    ]


async def test_the_number_of_queries_is_bounded_and_a_skill_without_views_asks_its_text() -> None:
    many = " ".join(f"Sentence number {word} is here." for word in "abcdefgh")
    index = await small_index({"many": many, "one": "Only a single sentence"})
    assert (await measure_coexistence(index)).queries == 5
    assert (await measure_coexistence(index, queries_each=2)).queries == 3


async def test_what_counts_as_alike_can_be_chosen_and_the_nearest_comes_first() -> None:
    index = await small_index(
        {"p": "red green blue", "q": "red green blue", "r": "red green yellow"}
    )
    found = (await measure_coexistence(index, alike=0.2)).alike
    assert [pair.cosine for pair in found] == sorted((p.cosine for p in found), reverse=True)
    assert {(pair.one, pair.other) for pair in found} == {("p", "q"), ("p", "r"), ("q", "r")}
    assert all(isinstance(pair, SimilarPair) for pair in found)


async def test_an_empty_index_has_nothing_to_tell() -> None:
    assert await measure_coexistence(await small_index({})) == CoexistenceReport(
        skills=0, queries=0
    )


async def test_without_an_embedder_nothing_is_claimed() -> None:
    index = await small_index()
    index.embedder = BrokenEmbedder()
    with pytest.raises(EmbedderUnavailableError):
        await measure_coexistence(index)
