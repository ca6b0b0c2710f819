"""Skill index: search results, explanations, caches and missing parts."""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import anyio
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apexbridge.errors import EmbedderOutputError, EmbedderUnavailableError, IndexMismatchError
from apexbridge.retrieval import index as index_module
from apexbridge.retrieval.base import Embedder, IndexEntry, Matrix, StoreChanges, TextKind
from apexbridge.retrieval.embedders.validation import embed_validated
from apexbridge.retrieval.fusion import FusionWeights
from apexbridge.retrieval.index import SkillIndex
from apexbridge.retrieval.ranking import match_words, no_word
from apexbridge.retrieval.results import SearchResults
from apexbridge.retrieval.skill_document import SkillText, build_document
from apexbridge.retrieval.stores.sqlite import SqliteStore
from apexbridge.retrieval.sync import IndexItem, sync
from apexbridge.testing import HashEmbedder, MemoryStore
from tests.retrieval.store_processes import ROUNDS, go, opened, writers

pytestmark = pytest.mark.anyio

WHEN = "## When to use\n\n- {}\n"
SKILLS = [
    SkillText(
        name="pdf-forms",
        summary="Fill in PDF forms. Reads fields and writes values.",
        body=WHEN.format("somebody has an application to complete"),
    ),
    SkillText(name="csv-report", summary="Turn a CSV spreadsheet into charts and a report."),
    SkillText(name="git-commits", summary="Write commit messages that say why."),
    SkillText(name="translate", summary="Translate documents and keep their layout."),
    SkillText(name="excel-zh", summary="制作电子表格和图表，并生成周报。"),
    SkillText(name="contract-zh", summary="检查合同中的风险条款。"),
]


class MoodyEmbedder(HashEmbedder):
    """Hashes words; can be down, answer nonsense, or have something happen while it works."""

    def __init__(self, dimensions: int = 64, *, is_shy: bool = False) -> None:
        super().__init__(dimensions)
        self.is_down = False
        self.is_mad = False
        self.is_shy = is_shy
        self.meanwhile: Callable[[Sequence[str]], Awaitable[None]] | None = None

    @property
    def dimensions(self) -> int:
        """Shy: only the first answer tells."""
        return 0 if self.is_shy else super().dimensions

    async def embed(self, texts: Sequence[str], *, kind: TextKind) -> Matrix:
        if self.meanwhile is not None:
            await self.meanwhile(texts)
        if self.is_down:
            raise EmbedderUnavailableError("connection refused", name=self.id)
        rows = np.zeros((len(texts), self._dimensions), np.float32)
        for row, text in zip(rows, texts, strict=True):
            self._fill(row, text)
        if self.is_mad:
            rows[-1] = np.nan
        self.is_shy = False
        return rows


def _item(text: SkillText, fingerprint: str = "1") -> IndexItem:
    async def read() -> SkillText:
        return text

    return IndexItem(name=text.name, fingerprint=fingerprint, read=read)


async def _index(
    skills: Sequence[SkillText] = SKILLS, embedder: Embedder | None = None
) -> SkillIndex:
    index = SkillIndex(embedder or HashEmbedder(), MemoryStore("hash-64"))
    await sync(index, [_item(skill) for skill in skills])
    return index


async def _entry(skill: SkillText, fingerprint: str = "1") -> IndexEntry:
    cut = build_document(skill)
    texts = (cut.whole, *cut.views)
    return IndexEntry(
        name=skill.name,
        fingerprint=fingerprint,
        texts=texts,
        vectors=await embed_validated(HashEmbedder(), texts, kind="document"),
        terms=cut.terms,
        counts=cut.counts,
    )


def _names(results: SearchResults) -> list[str]:
    return [hit.name for hit in results.hits]


async def test_hits_come_best_first_and_within_the_limit() -> None:
    index = await _index()
    for query in ("fill in a PDF form", "csv charts", "检查合同条款", "nothing of the kind"):
        found = await index.search(query, limit=50)
        assert sorted(_names(found)) == sorted(skill.name for skill in SKILLS)
        totals = [hit.parts.total for hit in found.hits]
        scores = [hit.score for hit in found.hits]
        assert totals == sorted(totals, reverse=True)
        assert scores == sorted(scores, reverse=True)
        assert all(0 <= score <= 1 for score in scores)
        assert found.confidence == scores[0]
        assert (found.searched, found.problem) == (len(SKILLS), None)
        for limit in (1, 2, 5):
            assert (await index.search(query, limit=limit)).hits == found.hits[:limit]


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("fill in PDF forms", "pdf-forms"),
        ("charts from a spreadsheet", "csv-report"),
        ("COMMIT MESSAGE", "git-commits"),
        ("生成周报和图表", "excel-zh"),
        ("檢查合同風險", "contract-zh"),
        ("pdf-forms", "pdf-forms"),
    ],
)
async def test_the_right_skill_is_found(query: str, name: str) -> None:
    assert _names(await (await _index()).search(query, limit=1)) == [name]


async def test_each_hit_says_why_it_is_there() -> None:
    index = SkillIndex(
        HashEmbedder(), MemoryStore("hash-64"), usage=lambda: {"pdf-forms": 0.5, "gone": 1.0}
    )
    await sync(index, [_item(skill) for skill in SKILLS])
    found = await index.search("complete an application for somebody", limit=50)
    first = found.hits[0].parts
    assert found.hits[0].name == "pdf-forms"
    assert first.view_text == "somebody has an application to complete"
    assert first.view > first.dense
    assert first.words.keys() == {"complet", "applic", "somebodi"}
    assert list(first.words.values()) == sorted(first.words.values(), reverse=True)
    assert sum(first.words.values()) == pytest.approx(first.lexical, abs=1e-5)
    assert (first.usage, first.language) == (0.5, "en")
    fusion = FusionWeights()
    weight = match_words(index.memory, "complete an application for somebody", no_word).weight
    for hit in found.hits:
        parts = hit.parts
        assert parts.language == ("zh" if hit.name.endswith("-zh") else "en")
        assert -1.001 <= parts.dense <= parts.view <= 1.001
        expected = fusion.dense * parts.meaning + fusion.lexical * weight * parts.lexical
        assert parts.total == pytest.approx(expected + fusion.usage * parts.usage, abs=1e-4)
        assert (parts.name, parts.clause) == (0, "")
    exact = await index.search("translate. Translate documents and keep their layout.", limit=1)
    assert exact.hits[0].parts.dense == pytest.approx(1, abs=1e-5)
    assert exact.hits[0].parts.view_text == ""


@pytest.mark.unmeasured
@given(
    st.dictionaries(
        st.sampled_from([*(skill.name for skill in SKILLS), "unknown"]),
        st.floats(allow_nan=True, allow_infinity=True),
    ),
    st.sampled_from(["fill in a PDF form", "a report", "表格", "nothing of the kind"]),
)
def test_usage_moves_no_hit_past_one_that_is_clearly_better(
    usage: Mapping[str, float], query: str
) -> None:
    async def compare() -> tuple[SearchResults, SearchResults]:
        given_usage = dict[str, float]()
        index = SkillIndex(HashEmbedder(), MemoryStore("hash-64"), usage=lambda: given_usage)
        await sync(index, [_item(skill) for skill in SKILLS])
        plain = await index.search(query, limit=50)
        given_usage |= usage
        return plain, await index.search(query, limit=50)

    plain, used = anyio.run(compare)
    fitness = {hit.name: hit.parts.total for hit in plain.hits}
    for hit in used.hits:
        assert -1e-4 <= hit.parts.total - fitness[hit.name] <= FusionWeights().usage + 1e-4
        assert 0 <= hit.parts.usage <= 1
    order = {name: place for place, name in enumerate(_names(used))}
    for better in fitness:
        for worse in fitness:
            if fitness[better] - fitness[worse] > FusionWeights().usage + 1e-3:
                assert order[better] < order[worse]


async def test_usage_parts_equals() -> None:
    twins = [SkillText(name=name, summary="Sort the mail.") for name in ("one", "two", "six")]
    usage = dict[str, float]()
    index = SkillIndex(HashEmbedder(), MemoryStore("hash-64"), usage=lambda: usage)
    entry = await _entry(SkillText(name="same", summary="Sort the mail."))
    await index.store.upsert([_renamed(entry, twin.name) for twin in twins])
    assert _names(await index.search("sort mail")) == ["one", "two", "six"]
    usage["six"] = 0.01
    assert _names(await index.search("sort mail")) == ["six", "one", "two"]
    usage |= {"two": 7.0, "one": -3.0}
    found = await index.search("sort mail")
    assert [(hit.name, hit.parts.usage) for hit in found.hits] == [
        ("two", 1),
        ("six", pytest.approx(0.01)),
        ("one", 0),
    ]


def _renamed(entry: IndexEntry, name: str) -> IndexEntry:
    return IndexEntry(
        name=name,
        fingerprint=entry.fingerprint,
        texts=entry.texts,
        vectors=entry.vectors,
        terms=entry.terms,
        counts=entry.counts,
    )


async def test_another_wording_helps() -> None:
    index = await _index()
    alone = await index.search("look over this agreement", limit=50)
    helped = await index.search(
        "look over this agreement", query_zh="检查合同中的风险条款", limit=50
    )
    assert alone.hits[0].name != "contract-zh"
    assert helped.hits[0].name == "contract-zh"
    assert {"合同", "风险"} <= helped.hits[0].parts.words.keys()
    english = await index.search("看看这个", query_en="fill in PDF forms", limit=1)
    assert _names(english) == ["pdf-forms"]


async def test_a_request_in_both_languages_favours_neither() -> None:
    index = await _index()
    found = await index.search("charts and a report", query_zh="图表和周报", limit=2)
    assert set(_names(found)) == {"csv-report", "excel-zh"}
    same = await index.search("charts", query_en="charts", query_zh="  ", limit=50)
    assert same == await index.search("charts", limit=50)


async def test_an_empty_query_limit_or_index_is_no_error() -> None:
    index = await _index()
    for query in ("", "   ", "\n\t\u3000"):
        assert await index.search(query) == SearchResults(searched=len(SKILLS))
    for limit in (0, -1):
        assert (await index.search("pdf", limit=limit)).hits == ()
    assert _names(await index.search("", query_en="PDF forms", limit=1)) == ["pdf-forms"]
    empty = await _index([])
    assert await empty.search("pdf") == SearchResults()
    assert len(empty) == 0


@pytest.mark.parametrize(
    "query", ["🎉", "\ud800", "the of and", "。。。", "x" * 5_000, "\0", "字", "a"]
)
async def test_odd_requests_are_answered(query: str) -> None:
    found = await (await _index()).search(query, limit=3)
    assert len(found.hits) == 3
    assert all(math.isfinite(hit.parts.total) and 0 <= hit.score <= 1 for hit in found.hits)


async def test_an_overlong_request_is_truncated() -> None:
    index = await _index()
    endless = "fill in PDF forms " + " ".join(f"word{n}" for n in range(100_000))
    assert await index.search(endless) == await index.search(endless[:8_000])
    marks = await index.search("a" + "\u0301\u0316" * 100_000, limit=1)
    assert len(marks.hits) == 1


async def test_a_single_skill_is_found_among_itself() -> None:
    for skill in (SKILLS[0], SKILLS[4]):
        index = await _index([skill])
        for query in ("fill in PDF forms", "生成周报", "nothing"):
            (hit,) = (await index.search(query)).hits
            assert hit.name == skill.name
            assert math.isfinite(hit.parts.total)
            assert 0 <= hit.score <= 1


async def test_without_the_embedder_bm25_decides_and_the_problem_is_reported() -> None:
    embedder = MoodyEmbedder()
    index = await _index(embedder=embedder)
    embedder.is_down = True
    found = await index.search("fill in PDF forms", limit=50)
    assert isinstance(found.problem, EmbedderUnavailableError)
    assert found.hits[0].name == "pdf-forms"
    assert 0 < found.confidence <= 1
    for hit in found.hits:
        assert (hit.parts.meaning, hit.parts.dense, hit.parts.view_text) == (0, 0, "")
    assert found.hits[-1].score == 0
    embedder.is_down = False
    back = await index.search("fill in PDF forms", limit=50)
    assert back.problem is None
    assert back.hits[0].parts.meaning > 0
    embedder.is_down = True  # now that the background is known
    assert await index.search("fill in PDF forms", limit=50) == back  # and so is this request
    again = await index.search("Fill in PDF forms", limit=50)
    assert again.hits == found.hits
    assert again.problem is not None


async def test_with_invalid_embeddings_bm25_decides_and_the_problem_is_reported() -> None:
    embedder = MoodyEmbedder()
    index = await _index(embedder=embedder)
    embedder.is_mad = True
    for _ in range(2):
        found = await index.search("fill in PDF forms", query_zh="填写表单", limit=50)
        assert isinstance(found.problem, EmbedderOutputError)
        assert found.hits[0].name == "pdf-forms"
        assert all(math.isfinite(hit.parts.total) for hit in found.hits)
        embedder.is_mad = False
        assert (await index.search("fill in PDF forms")).problem is None
        embedder.is_mad = True


async def test_a_model_replaced_under_its_name_is_a_mismatch() -> None:
    index = SkillIndex(HashEmbedder(32), MemoryStore("same"))
    await index.store.upsert([await _entry(skill) for skill in SKILLS])
    found = await index.search("fill in PDF forms")
    assert isinstance(found.problem, IndexMismatchError)
    assert ("64" in found.problem.message, "32" in found.problem.message) == (True, True)
    assert found.hits[0].name == "pdf-forms"


async def test_pending_skills_are_embedded_when_the_embedder_is_back() -> None:
    embedder = MoodyEmbedder(is_shy=True)
    embedder.is_down = True
    index = await _index(embedder=embedder)
    assert (len(index), embedder.dimensions) == (len(SKILLS), 0)
    down = await index.search("fill in PDF forms", limit=1)
    assert (_names(down), down.problem is None) == (["pdf-forms"], False)
    embedder.is_down = False
    up = await index.search("fill in PDF forms", limit=1)
    assert (_names(up), up.problem) == (["pdf-forms"], None)
    assert up.hits[0].parts.view_text == ""
    report = await sync(index, [_item(skill) for skill in SKILLS])
    assert (len(report.added), report.pending) == (len(SKILLS), ())
    whole = await index.search("fill in PDF forms", limit=1)
    assert whole.hits[0].parts.dense > 0


async def test_changes_of_another_store_object_are_seen_by_the_next_search(
    tmp_path: Path,
) -> None:
    path = tmp_path / "index.db"
    mine, other = SqliteStore(path, "hash-64"), SqliteStore(path, "hash-64")
    index = SkillIndex(HashEmbedder(), mine)
    assert (await index.search("pdf")).searched == 0
    await other.upsert([await _entry(skill) for skill in SKILLS])
    assert _names(await index.search("fill in PDF forms", limit=1)) == ["pdf-forms"]
    changed = SkillText(name="pdf-forms", summary="Bake bread.")
    await other.upsert([await _entry(changed, "2")])
    assert _names(await index.search("bake bread", limit=1)) == ["pdf-forms"]
    assert all("field" not in hit.parts.words for hit in (await index.search("fields")).hits)
    await other.delete(["pdf-forms"])
    found = await index.search("bake bread", limit=50)
    assert "pdf-forms" not in _names(found)
    assert found.searched == len(index) == len(SKILLS) - 1
    await mine.close()
    await other.close()


async def test_changes_of_another_process_are_seen_by_the_next_search(tmp_path: Path) -> None:
    store = opened("sqlite", tmp_path)
    index = SkillIndex(HashEmbedder(), store)
    assert (await index.search("anything")).searched == 0
    with writers("once", "sqlite", tmp_path, ["one"]) as (child,):
        go(child)
        child.communicate()
    found = await index.search("anything", limit=3)
    assert (found.searched, len(found.hits)) == (2 * ROUNDS + 1, 3)
    await store.close()


async def test_a_skill_that_is_gone_is_not_found() -> None:
    index = await _index()
    await index.search("pdf")
    await index.store.delete(["pdf-forms"])
    assert "pdf-forms" not in _names(await index.search("fill in PDF forms", limit=50))
    await index.store.delete([skill.name for skill in SKILLS])
    assert await index.search("fill in PDF forms") == SearchResults()


async def test_an_index_emptied_while_the_query_is_embedded_is_empty() -> None:
    embedder = MoodyEmbedder()
    index = await _index(embedder=embedder)

    async def empty(_: Sequence[str]) -> None:
        await index.store.delete([skill.name for skill in SKILLS])
        await index.refresh()

    embedder.meanwhile = empty
    assert (await index.search("fill in PDF forms")).hits == ()


async def test_a_cancelled_search_loses_no_changes() -> None:
    class Interrupted(MemoryStore):
        scope: anyio.CancelScope | None = None

        async def changes(self) -> StoreChanges:
            changes = await super().changes()
            if self.scope is not None:
                self.scope.cancel()
            return changes

    store = Interrupted("hash-64")
    index = SkillIndex(HashEmbedder(), store)
    await store.upsert([await _entry(skill) for skill in SKILLS[:3]])
    for part in (SKILLS[3:], []):
        with anyio.CancelScope() as store.scope:
            await index.search("pdf")
        assert store.scope.cancelled_caught
        store.scope = None
        await store.upsert([await _entry(skill) for skill in part])
    assert (await index.search("pdf")).searched == len(SKILLS)


async def test_searches_go_on_while_the_index_is_brought_up_to_date(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("apexbridge.retrieval.sync.BATCH_SIZE", 2)
    index = await _index()
    seen = list[SearchResults]()

    async def ask(number: int) -> None:
        for turn in range(6):
            skill = SKILLS[(number + turn) % len(SKILLS)]
            found = await index.search(skill.summary, limit=50)
            assert found.hits[0].name == skill.name
            assert len(found.hits) == found.searched
            seen.append(found)

    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(ask, number)
        for state in range(4):
            more = [SkillText(name=f"x{n}", summary=f"unlike {n}") for n in range(9 * (state % 2))]
            await sync(index, [_item(skill, str(state)) for skill in (*SKILLS, *more)])
    assert len(seen) == 48
    assert {found.problem for found in seen} == {None}


async def test_a_search_in_the_middle_of_a_rebuild_is_answered() -> None:
    embedder = MoodyEmbedder()
    index = await _index(embedder=embedder)
    await index.search("pdf")  # now it knows the background
    is_embedding, may_go_on = anyio.Event(), anyio.Event()

    async def wait(texts: Sequence[str]) -> None:
        if len(texts) > 2:
            is_embedding.set()
            await may_go_on.wait()

    embedder.meanwhile = wait
    found = SearchResults()
    async with anyio.create_task_group() as tasks:
        items = [_item(skill) for skill in SKILLS]
        tasks.start_soon(lambda: sync(index, items, again=[skill.name for skill in SKILLS]))
        await is_embedding.wait()
        found = await index.search("fill in PDF forms")
        assert (found.hits[0].name, found.searched, found.problem) == (
            "pdf-forms",
            len(SKILLS),
            None,
        )
        may_go_on.set()
    assert (await index.search("fill in PDF forms")).hits == found.hits


async def test_a_large_index_is_scanned_on_a_thread_with_the_same_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    index = await _index()
    here = await index.search("fill in PDF forms", query_zh="填写表单", limit=50)
    monkeypatch.setattr(index_module, "_MANY_SKILLS", 0)
    assert await index.search("fill in PDF forms", query_zh="填写表单", limit=50) == here


async def test_weights_can_be_given_for_one_search() -> None:
    index = await _index()
    words_only = FusionWeights(dense=0.0)
    found = await index.search("PDF", fusion=words_only, limit=50)
    weight = words_only.lexical * match_words(index.memory, "PDF", no_word).weight
    for hit in found.hits:
        assert hit.parts.total == pytest.approx(weight * hit.parts.lexical, abs=1e-5)
    assert (await index.search("PDF", limit=50)).hits != found.hits


async def test_a_preview_copy_does_not_change_the_index() -> None:
    index = await _index()
    before = await index.search("bake bread", limit=50)
    copy = await index.with_entry(await _entry(SkillText(name="bread", summary="Bake bread.")))
    assert _names(await copy.search("bake bread", limit=1)) == ["bread"]
    replaced = await index.with_entry(await _entry(SkillText(name="translate", summary="Bake.")))
    assert (len(copy), len(replaced), len(index)) == (len(SKILLS) + 1, len(SKILLS), len(SKILLS))
    assert await index.search("bake bread", limit=50) == before
    assert "bread" not in await index.store.fingerprints()


async def test_languages_are_scored_separately_for_monolingual_queries_only() -> None:
    index = await _index()
    apart = await index.search("report", limit=50)
    together = await index.search("report", limit=50, fusion=FusionWeights(language=0.0))
    assert {h.name: h.parts.meaning for h in apart.hits} != {
        h.name: h.parts.meaning for h in together.hits
    }
    both = await index.search("report", query_zh="报告", limit=50)
    neither = await index.search(
        "report", query_zh="报告", limit=50, fusion=FusionWeights(language=0.0)
    )
    assert both == neither
