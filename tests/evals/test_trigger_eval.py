"""Precision and recall of triggers."""

import json
from pathlib import PurePosixPath

import pytest

from apexbridge.errors import EmbedderUnavailableError, EvalInputError
from apexbridge.evals.trigger_eval import (
    TriggerQuery,
    evaluate_triggers,
    parse_queries,
    saved_queries,
)
from apexbridge.skills.model import Skill
from apexbridge.testing import MemorySource, skill_md
from tests.evals.failing_embedder import BrokenEmbedder
from tests.evals.indexes import small_index

pytestmark = pytest.mark.anyio

YES = TriggerQuery(query="fill in the fields of a PDF form", should_trigger=True)
NO = TriggerQuery(query="write a commit message", should_trigger=False)


async def test_each_query_tells_rank_score_and_margin() -> None:
    report = await evaluate_triggers(await small_index(), "pdf-forms", [YES, NO], threshold=0)
    fits, other = report.queries
    assert (fits.triggered, fits.passed, fits.rank) == (True, True, 1)
    assert fits.score is not None
    assert fits.margin is not None
    assert fits.margin > 0
    assert fits.score == fits.confidence
    assert other.margin is not None
    assert other.margin < 0


async def test_only_the_first_few_count_and_only_when_sure_enough() -> None:
    index = await small_index()
    for limit, threshold, triggered in ((1, 0.0, False), (4, 0.0, True), (4, 1.0, False)):
        report = await evaluate_triggers(index, "pdf-forms", [NO], limit=limit, threshold=threshold)
        assert report.queries[0].triggered is triggered
        assert report.queries[0].rank in {2, 3, 4}


async def test_the_totals_are_shares_of_what_they_are_about() -> None:
    queries = [YES, NO, TriggerQuery(query="write a commit message", should_trigger=True)]
    report = await evaluate_triggers(
        await small_index(), "pdf-forms", queries, limit=1, threshold=0
    )
    assert (report.precision, report.recall) == (1.0, 0.5)
    assert report.accuracy == pytest.approx(2 / 3)


async def test_a_share_of_nothing_is_none() -> None:
    report = await evaluate_triggers(await small_index(), "pdf-forms", [NO], limit=1)
    assert (report.precision, report.recall, report.accuracy) == (None, None, 1.0)


async def test_a_skill_that_is_not_there_has_no_rank() -> None:
    report = await evaluate_triggers(await small_index(), "nobody", [YES], threshold=0)
    (one,) = report.queries
    assert (one.triggered, one.rank, one.score, one.margin) == (False, None, None, None)


async def test_a_skill_alone_is_measured_against_nothing() -> None:
    index = await small_index({"pdf-forms": "Fill in PDF forms"})
    (one,) = (await evaluate_triggers(index, "pdf-forms", [YES])).queries
    assert one.margin == one.score


async def test_without_an_embedder_nothing_is_claimed() -> None:
    index = await small_index()
    index.embedder = BrokenEmbedder()
    with pytest.raises(EmbedderUnavailableError):
        await evaluate_triggers(index, "pdf-forms", [YES])


@pytest.mark.parametrize(
    "written",
    [
        [{"query": "a", "should_trigger": True}, {"query": "b", "should_trigger": False}],
        {"queries": [{"prompt": "a", "expected": True}, {"query": "b", "expected": False}]},
        {"skill": "x", "queries": [{"query": "a", "should_trigger": True, "note": 1},
                                   {"prompt": "b", "should_trigger": False}]},
    ],
)  # fmt: skip
@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf", b"\r\n  "])
async def test_the_common_shapes_of_the_file_are_read(written: object, before: bytes) -> None:
    raw = before + json.dumps(written, indent=1).replace("\n", "\r\n").encode()
    assert parse_queries(raw, path="x") == (
        TriggerQuery(query="a", should_trigger=True),
        TriggerQuery(query="b", should_trigger=False),
    )


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "Invalid JSON"),
        (b"nothing", "Invalid JSON"),
        (b"7", "array"),
        (b'"text"', "array"),
        (b'{"other": []}', "queries: "),
        (b'[{"query": "a"}]', "0.should_trigger: "),
        (b'[{"query": "a", "should_trigger": "yes"}]', "0.should_trigger: "),
        (b'[{"query": "", "should_trigger": true}]', "0.query: "),
        (b'[{"query": 5, "should_trigger": true}]', "0.query: "),
        (b'[["a", true]]', "0: "),
        (b'[{"query": "\xff", "should_trigger": true}]', "Invalid JSON"),
        (b"[]", "nothing to evaluate"),
        (b"[" * 50_000, "Invalid JSON"),
        (b" " * 1_048_577, "more than 1048576 bytes"),
    ],
    ids=range(14),
)
async def test_a_file_that_makes_no_sense_is_told(raw: bytes, says: str) -> None:
    with pytest.raises(EvalInputError) as caught:
        parse_queries(raw, path="pdf/eval_queries.json")
    assert caught.value.message.startswith("pdf/eval_queries.json")
    assert says in caught.value.message


async def _source(**files: bytes) -> tuple[MemorySource, Skill]:
    source = MemorySource({"pdf": {"SKILL.md": skill_md("pdf"), **files}})
    return source, (await source.scan()).skills[0]


async def test_saved_queries_come_from_the_evals_folder_first() -> None:
    first = b'[{"query": "first", "should_trigger": true}]'
    second = b'[{"query": "second", "should_trigger": true}]'
    places = {"evals/eval_queries.json": first, "eval_queries.json": second}
    both, skill = await _source(**places)
    assert [one.query for one in await saved_queries(both, skill)] == ["first"]
    one, skill = await _source(**{"eval_queries.json": second})
    assert [one.query for one in await saved_queries(one, skill)] == ["second"]


async def test_a_skill_without_queries_says_where_they_would_be() -> None:
    source, skill = await _source()
    with pytest.raises(EvalInputError) as caught:
        await saved_queries(source, skill)
    assert caught.value.code == "eval_queries_missing"
    for place in ("evals/eval_queries.json", "eval_queries.json"):
        assert str(PurePosixPath(place)) in caught.value.message
