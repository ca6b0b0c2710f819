"""Ranking: kinds, near duplicates, clauses, names and slips; in two stages as in one."""

import math
from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest

from apexbridge.errors import EmbedderUnavailableError
from apexbridge.retrieval.base import IndexEntry, Matrix, TextKind
from apexbridge.retrieval.embedders.validation import embed_validated
from apexbridge.retrieval.fusion import FusionWeights
from apexbridge.retrieval.index import SkillIndex
from apexbridge.retrieval.memory_index import MemoryIndex
from apexbridge.retrieval.ranking import EmbeddedQuery, Ranking, RankingRequest, rank
from apexbridge.retrieval.reference_vectors import ReferenceVectors
from apexbridge.retrieval.results import Kind, SearchResults, SearchScope
from apexbridge.retrieval.skill_document import SkillText, build_document
from apexbridge.testing import HashEmbedder, MemoryStore

pytestmark = pytest.mark.anyio

SKILLS = [
    SkillText(name="pdf-merge", summary="Merge several PDF files into one."),
    SkillText(name="email", summary="Send an email to somebody."),
    SkillText(name="csv-report", summary="Turn a CSV spreadsheet into charts and a report."),
    SkillText(name="git-commits", summary="Write commit messages that say why."),
    SkillText(name="translate", summary="Translate documents and keep their layout."),
    SkillText(name="excel-zh", summary="制作电子表格和图表，并生成周报。"),
    SkillText(name="contract-zh", summary="检查合同中的风险条款。"),
    SkillText(name="bread", summary="Bake bread from flour and water."),
]
FOLDED = SearchScope(folds_alike=True)


async def _entry(skill: SkillText) -> IndexEntry:
    document = build_document(skill)
    texts = (document.whole, *document.views)
    return IndexEntry(
        name=skill.name,
        fingerprint="1",
        texts=texts,
        vectors=await embed_validated(HashEmbedder(), texts, kind="document"),
        terms=document.terms,
        counts=document.counts,
        kind=skill.kind,
    )


async def _index(skills: Sequence[SkillText] = SKILLS) -> SkillIndex:
    return await _index_of([await _entry(skill) for skill in skills])


async def _index_of(entries: Sequence[IndexEntry]) -> SkillIndex:
    index = SkillIndex(HashEmbedder(), MemoryStore("hash-64"))
    await index.store.upsert(entries)
    return index


def _names(results: SearchResults) -> list[str]:
    return [hit.name for hit in results.hits]


async def test_a_search_may_be_restricted_to_kinds() -> None:
    tools = [
        SkillText.from_tool("mergePdf", "Merge PDF files into one."),
        SkillText.from_tool("sendMail", "Send an email."),
    ]
    index = await _index([*SKILLS, *tools])
    expected: dict[Kind, set[str]] = {
        "skill": {skill.name for skill in SKILLS},
        "tool": {tool.name for tool in tools},
    }
    everything = await index.search("merge PDF files", limit=50)
    for kind, names in expected.items():
        scope = SearchScope(kinds=frozenset({kind}))
        found = await index.search("merge PDF files", limit=50, scope=scope)
        assert set(_names(found)) == names
        assert {hit.kind for hit in found.hits} == {kind}
        assert found.searched == len(SKILLS) + len(tools)
        order = [name for name in _names(everything) if name in names]
        assert _names(found) == order  # as without the restriction
        assert found.confidence == found.hits[0].score
    both = SearchScope(kinds=frozenset({"skill", "tool"}))
    assert await index.search("merge PDF files", limit=50, scope=both) == everything
    none = await index.search("merge PDF files", scope=SearchScope(kinds=frozenset()))
    assert (none.hits, none.confidence) == ((), 0)
    await index.store.delete(list(expected["tool"]))
    gone = await index.search("merge PDF", scope=SearchScope(kinds=frozenset({"tool"})))
    assert gone.hits == ()


async def _with_copies(copies: int) -> SkillIndex:
    """A library with copies of one skill under other names, one text and vector."""
    mail = await _entry(SKILLS[1])
    others = [await _entry(skill) for skill in SKILLS if skill.name != "email"]
    return await _index_of(
        [
            mail,
            *others[:3],
            *(replace(mail, name=f"copy{number}") for number in range(copies)),
            *others[3:],
        ]
    )


async def test_near_duplicates_are_one_hit_if_they_are_folded() -> None:
    index = await _with_copies(4)
    copies = [f"copy{number}" for number in range(4)]
    folded = await index.search("send an email", limit=3, scope=FOLDED)
    assert folded.hits[0].name == "email"
    assert folded.hits[0].alike == tuple(copies)
    assert len(folded.hits) == 3  # the limit is filled
    plain = await index.search("send an email", limit=50)
    assert _names(plain)[:5] == ["email", *copies]
    assert all(hit.alike == () for hit in plain.hits)
    order = [name for name in _names(plain) if name not in copies]
    assert _names(folded) == order[:3]
    assert [hit.score for hit in folded.hits] == sorted(
        (hit.score for hit in folded.hits), reverse=True
    )
    assert folded.confidence == plain.confidence
    every = await index.search("send an email", limit=50, scope=FOLDED)
    assert _names(every) == order
    assert {name for hit in every.hits for name in (hit.name, *hit.alike)} == set(_names(plain))


async def test_copies_of_a_skill_that_is_not_the_best_are_folded_too() -> None:
    index = await _with_copies(2)
    found = await index.search("bake bread", limit=50, scope=FOLDED)
    assert (found.hits[0].name, found.hits[0].alike) == ("bread", ())
    (mail,) = (hit for hit in found.hits if "email" in (hit.name, *hit.alike))
    assert sorted((mail.name, *mail.alike)) == ["copy0", "copy1", "email"]


async def test_without_vectors_nothing_is_folded() -> None:
    index = await _with_copies(2)
    index.embedder = HashEmbedder(32)  # another size: words alone decide
    found = await index.search("send an email", limit=50, scope=FOLDED)
    assert found.problem is not None
    assert _names(found)[:3] == ["email", "copy0", "copy1"]
    assert all(hit.alike == () for hit in found.hits)


async def test_the_names_of_a_folded_hit_that_are_visible_stand_for_the_others() -> None:
    index = await _with_copies(2)
    (hit,) = (await index.search("send an email", limit=1, scope=FOLDED)).hits
    seen = hit.visible(lambda name: name != "email")
    assert seen is not None
    assert (seen.name, seen.alike) == ("copy0", ("copy1",))
    assert hit.visible(lambda _: True) == hit
    assert hit.visible(lambda _: False) is None


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("merge two pdf files and then send an email", {"pdf-merge", "email"}),
        ("send an email. Also translate the documents", {"email", "translate"}),
        ("检查合同的风险条款，然后生成周报和图表", {"contract-zh", "excel-zh"}),
        (
            "bake bread with water, then write commit messages, finally merge PDF files",
            {"bread", "git-commits", "pdf-merge"},
        ),
    ],
)
async def test_each_need_of_a_request_finds_its_skill(query: str, expected: set[str]) -> None:
    index = await _index()
    found = await index.search(query, limit=len(expected))
    assert set(_names(found)) == expected
    assert all(math.isfinite(hit.parts.total) and 0 <= hit.score <= 1 for hit in found.hits)
    clauses = {hit.parts.clause for hit in found.hits if hit.parts.clause}
    assert all(clause in query for clause in clauses)


async def test_the_question_under_a_pasted_log_finds_its_skill() -> None:
    log = "\n".join(f"12:00:{n:02} worker {n} connection reset by peer" for n in range(40))
    question = "please send an email to somebody"
    hit = (await (await _index()).search(f"{log}\n{question}", limit=1)).hits[0]
    assert (hit.name, hit.parts.clause) == ("email", question)
    assert "email" in hit.parts.words


@pytest.mark.parametrize("scope", [SearchScope(), FOLDED], ids=["plain", "folded"])
async def test_a_need_is_met_though_many_skills_meet_another_one_better(scope: SearchScope) -> None:
    mailers = ["weekly", "urgent", "polite", "group", "customer", "birthday", "holiday"]
    crowd = [
        SkillText(name=f"mail-{word}", summary=f"Send an email message to somebody, {word}.")
        for word in mailers
    ]
    index = await _index([*SKILLS, *crowd])
    query = "send an email message to somebody, urgent and polite, and then bake some bread"
    fusion = FusionWeights(name=0.0, clause=6.0, need=99)
    plain = await index.search(query, limit=2, scope=scope, fusion=fusion)
    fusion = replace(fusion, need=2.0)
    covered = await index.search(query, limit=2, scope=scope, fusion=fusion)
    assert "bread" not in _names(plain)  # twice the same
    assert "bread" in _names(covered)
    assert len(covered.hits) == 2
    assert _names(covered)[0] == _names(plain)[0]
    totals = [hit.parts.total for hit in covered.hits]
    assert totals == sorted(totals, reverse=True)
    only = await index.search(query, limit=1, scope=scope, fusion=fusion)
    assert _names(only) == _names(covered)[:1]


async def test_a_part_of_a_request_that_nothing_answers_takes_no_place() -> None:
    index = await _index()
    query = "send an email to somebody and then ponder the meaning of existence"
    plain = await index.search(query, limit=3, fusion=FusionWeights(need=99))
    assert _names(await index.search(query, limit=3)) == _names(plain)


async def test_a_request_for_one_thing_has_no_clause() -> None:
    index = await _index()
    for query in ("send an email", "生成周报"):
        assert {hit.parts.clause for hit in (await index.search(query, limit=50)).hits} == {""}


async def test_a_heavy_deduction_switches_clauses_off() -> None:
    index, query = await _index(), "merge two pdf files and then send an email"
    never = FusionWeights(clause=1e6)
    off = await index.search(query, limit=50, fusion=never)
    request = RankingRequest(
        index.memory,
        [EmbeddedQuery(query, (await embed_validated(HashEmbedder(), [query], kind="query"))[0])],
        await ReferenceVectors.load(HashEmbedder()),
        never,
    )
    alone = rank(request, {}, 50)
    order = [index.memory.names[group[0]] for group in alone.top_groups(50, 0)]
    assert _names(off) == order


async def test_a_mentioned_name_is_explained_and_ranks_first() -> None:
    index = await _index()
    for query in ("bread", "/bread commit messages", "messages for the `bread` skill"):
        found = await index.search(query, limit=2)
        assert found.hits[0].name == "bread"
        assert found.hits[0].parts.name == 1
    sentence = "commit messages about the bread skill"
    without = await index.search(sentence, fusion=FusionWeights(name=0.0), limit=50)
    found = await index.search(sentence, limit=50)
    totals = {hit.name: hit.parts for hit in without.hits}
    for hit in found.hits:
        gain = hit.parts.total - totals[hit.name].total
        assert gain == pytest.approx(FusionWeights().name * hit.parts.name, abs=1e-4)


async def test_of_two_names_that_differ_in_separators_the_one_as_written_is_first() -> None:
    twins = [
        SkillText(name=name, summary="Copy the numbers of a shop into a data report.")
        for name in ("data_report", "data-report", "Data Report")
    ]
    for skills in (twins, twins[::-1]):
        index = await _index([*SKILLS, *skills])
        for name in ("data_report", "data-report", "DATA-REPORT", "data report"):
            found = await index.search(name, limit=3)
            assert found.hits[0].name.casefold() == name.casefold()
            assert {hit.name for hit in found.hits} == {skill.name for skill in twins}
            assert found.hits[0].parts.name == 1


async def test_a_name_within_a_longer_one_counts_less() -> None:
    skills = [
        SkillText(name="red-team", summary="Attack the tests of somebody."),
        SkillText(name="red-team-tools", summary="List programs."),
    ]
    index = await _index([*SKILLS, *skills])
    for query in ("red team tools", "run red-team-tools"):
        found = await index.search(query, limit=2)
        assert [hit.name for hit in found.hits] == ["red-team-tools", "red-team"]
        assert found.hits[0].parts.name == 1 > 0.5 >= found.hits[1].parts.name
    both = await index.search("run red-team, or else run red-team-tools", limit=2)
    assert {hit.parts.name for hit in both.hits} == {1}


async def test_a_name_in_any_wording_counts() -> None:
    index = await _index()
    found = await index.search("做这个", query_en="use the bread skill", limit=1)
    assert (found.hits[0].name, found.hits[0].parts.name) == ("bread", 1)


async def test_without_vectors_a_name_is_enough() -> None:
    index = await _index()
    index.embedder = HashEmbedder(32)
    found = await index.search("the git-commits skill", limit=1)
    assert found.problem is not None
    assert (found.hits[0].name, found.hits[0].score) == ("git-commits", 1)


async def test_without_vectors_clauses_change_nothing() -> None:
    query = "merge two pdf files and then send an email"
    gone, other = await _index(), await _index()

    class Down(HashEmbedder):
        async def embed(self, texts: Sequence[str], *, kind: TextKind) -> Matrix:
            raise EmbedderUnavailableError("connection refused", name=self.id)

    gone.embedder, other.embedder = Down(), HashEmbedder(32)
    down, mismatch = [await one.search(query, limit=50) for one in (gone, other)]
    assert down.problem is not None
    assert mismatch.problem is not None
    assert down.hits == mismatch.hits


async def test_a_slip_finds_the_word_that_is_meant() -> None:
    index = await _index()
    right = await index.search("translate documents", limit=1)
    slip = await index.search("transalte documnets", limit=1)
    assert _names(right) == _names(slip) == ["translate"]
    assert slip.hits[0].parts.words.keys() == right.hits[0].parts.words.keys()


ROWS = 2_500
"""More than are scanned exactly."""
TOPICS = ["merge pdf files", "send an email", "draw a chart", "bake bread", "检查合同", "生成周报"]


def _crowded(seed: int, queries: Sequence[EmbeddedQuery]) -> MemoryIndex:
    """Rows that lie so close together around each query that a coarse scan cannot part them."""
    chance = np.random.default_rng(seed)
    memory, entries = MemoryIndex(), list[IndexEntry]()
    for row in range(ROWS):
        views = 1 + row % 3
        centre = queries[row % len(queries)].vector
        vectors = centre + 0.03 * chance.standard_normal((views, len(centre)))
        vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
        text = SkillText(name=f"skill-{row}", summary=TOPICS[row % len(TOPICS)])
        document = build_document(text)
        entries.append(
            IndexEntry(
                name=text.name,
                fingerprint="1",
                texts=(document.whole, *(f"view {n}" for n in range(1, views))),
                vectors=vectors,
                terms=document.terms,
                counts=document.counts,
                kind="tool" if row % 5 == 0 else "skill",
            )
        )
    memory.put(entries)
    memory.drop(["skill-3", "skill-8"])
    return memory


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kinds", [None, frozenset[Kind]({"tool"})], ids=["all", "tools"])
async def test_two_stages_rank_clauses_and_names_as_one_does(
    seed: int, kinds: frozenset[Kind] | None
) -> None:
    text = "merge pdf files and then send an email with /skill-777"
    texts = [text, "merge pdf files", "send an email with /skill-777"]
    vectors = await embed_validated(HashEmbedder(), texts, kind="query")
    queries = [
        EmbeddedQuery(text, vector, is_clause=number > 0)
        for number, (text, vector) in enumerate(zip(texts, vectors, strict=True))
    ]
    reference = await ReferenceVectors.load(HashEmbedder())

    def ranked() -> Ranking:
        request = RankingRequest(
            _crowded(seed, queries), queries, reference, FusionWeights(), kinds
        )
        return rank(request, {"skill-40": 1.0, "skill-3": 1.0}, 20)

    coarse = ranked()
    with patch("apexbridge.retrieval.quantized_vectors._FLOAT32_ROWS", ROWS * 4):
        exact = ranked()
    assert coarse.error_bound > 0 == exact.error_bound
    rows = [group[0] for group in coarse.top_groups(20, 0)]
    assert rows == [group[0] for group in exact.top_groups(20, 0)]
    # Close, not equal: the scale of the z-scores is fitted to all cosines, coarse ones among them.
    assert coarse.total[rows] == pytest.approx(exact.total[rows], abs=0.05)
    assert not {3, 8} & set(rows)
    if kinds is None:
        assert rows[0] == 777
    else:
        assert all(row % 5 == 0 for row in rows)
    explained = [one.parts(rows, one.details(rows)) for one in (coarse, exact)]
    for mine, theirs in zip(*explained, strict=True):
        assert (mine.name, mine.clause) == (theirs.name, theirs.clause)
        assert mine.dense == pytest.approx(theirs.dense, abs=1e-5)
