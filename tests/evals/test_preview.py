"""Rank shifts of another description, without saving it."""

import pytest

from apexbridge.errors import EmbedderUnavailableError
from apexbridge.evals.interference import DescriptionPreview, RankShift, compare_descriptions
from apexbridge.evals.retrieval_eval import with_skill_text
from apexbridge.retrieval.skill_document import SkillText
from tests.evals.failing_embedder import BrokenEmbedder
from tests.evals.indexes import LIBRARY, small_index

pytestmark = pytest.mark.anyio

OLD = SkillText(name="csv-report", summary=LIBRARY["csv-report"])
NEW = SkillText(
    name="csv-report", summary="Make spreadsheets. Fill in PDF forms and extract their fields."
)


def _shift(found: DescriptionPreview, query: str) -> RankShift:
    return next(shift for shift in found.shifts if shift.query == query)


async def test_ranks_before_and_after_are_told_for_every_kind_of_query() -> None:
    found = await compare_descriptions(await small_index(), OLD, NEW, ["make spreadsheets"])
    saved = _shift(found, "make spreadsheets")
    assert (saved.kind, saved.after) == ("saved", 1)
    lost = _shift(found, "Draw charts from columns of numbers.")
    assert (lost.kind, lost.before) == ("old", 1)
    won = _shift(found, "Fill in PDF forms and extract their fields.")
    assert won.kind == "new"
    assert won.before is not None
    assert won.after is not None
    assert won.after <= won.before


async def test_others_that_lose_places_come_first_and_the_skill_itself_is_not_among_them() -> None:
    found = await compare_descriptions(
        await small_index(), OLD, NEW, ["fill in PDF forms", "numbers in columns"]
    )
    names = [other.name for other in found.others]
    assert "csv-report" not in names
    balance = [other.gained - other.lost for other in found.others]
    assert balance == sorted(balance)
    assert all(other.lost or other.gained for other in found.others)


async def test_the_same_text_moves_nothing() -> None:
    found = await compare_descriptions(
        await small_index(), OLD, OLD, ["draw charts", "draw charts"]
    )
    assert found.others == ()
    assert all(shift.before == shift.after for shift in found.shifts)
    assert [shift.query for shift in found.shifts].count("draw charts") == 1


async def test_nothing_is_written_and_the_index_answers_as_before() -> None:
    index = await small_index()
    stored = dict(await index.store.fingerprints())
    before = await index.search("draw charts from numbers")
    await compare_descriptions(index, OLD, NEW)
    assert await index.search("draw charts from numbers") == before
    assert await index.store.fingerprints() == stored
    assert not index.store.has_changed()


async def test_a_skill_that_is_not_there_yet_can_be_tried() -> None:
    index = await small_index()
    bread = SkillText(name="bread", summary="Bake bread with rye.")
    tried = await with_skill_text(index, bread)
    assert (len(index), len(tried)) == (4, 5)
    assert (await tried.search("bake rye bread")).hits[0].name == "bread"
    assert "bread" not in {hit.name for hit in (await index.search("bake rye bread")).hits}


async def test_an_empty_index_can_be_tried_on() -> None:
    tried = await with_skill_text(await small_index({}), OLD)
    assert [hit.name for hit in (await tried.search("charts")).hits] == ["csv-report"]


async def test_what_others_store_meanwhile_does_not_reach_the_copy() -> None:
    index = await small_index()
    tried = await with_skill_text(index, NEW)
    await index.store.delete(["pdf-forms"])
    assert len((await tried.search("pdf forms", limit=9)).hits) == 4
    assert len((await index.search("pdf forms", limit=9)).hits) == 3


async def test_without_an_embedder_nothing_is_claimed() -> None:
    index = await small_index()
    index.embedder = BrokenEmbedder()
    with pytest.raises(EmbedderUnavailableError):
        await compare_descriptions(index, OLD, NEW)
