"""In-memory index: equal to a rebuilt one after any operations."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apexbridge.retrieval.base import IndexEntry, Matrix
from apexbridge.retrieval.memory_index import MemoryIndex, top_rows
from apexbridge.retrieval.results import Kind
from apexbridge.retrieval.tokenizer import count_terms

SIZE = 8
NAMES = st.sampled_from("abcdefg")
VERSIONS = st.integers(0, 3)
WORDS = ["red", "green", "blue", "数据", "图表"]
KINDS: list[frozenset[Kind]] = [
    frozenset(),
    frozenset({"skill"}),
    frozenset({"tool"}),
    frozenset({"skill", "tool"}),
]


def _vectors(seed: str, rows: int, size: int = SIZE) -> Matrix:
    number = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8])
    vectors = np.random.default_rng(number).normal(size=(rows, size)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def _entry(
    name: str, version: int = 0, *, size: int = SIZE, views: int | None = None
) -> IndexEntry:
    extra = (ord(name[-1]) + version) % 3 if views is None else views
    word = WORDS[(ord(name[-1]) + version) % len(WORDS)]
    terms, counts = count_terms([word] * (version + 1) + ["all"])
    return IndexEntry(
        name=name,
        fingerprint=str(version),
        texts=tuple(f"{name} {version} {word} {row}" for row in range(1 + extra)),
        vectors=_vectors(f"{name}/{version}/{size}", 1 + extra, size),
        terms=terms,
        counts=counts,
        kind="tool" if (ord(name[-1]) + version) % 2 else "skill",
    )


def _query(seed: str = "query", size: int = SIZE) -> Matrix:
    return _vectors(seed, 1, size)[0]


def _filled(entries: Sequence[IndexEntry]) -> MemoryIndex:
    memory = MemoryIndex()
    memory.put(entries)
    return memory


def _scan(memory: MemoryIndex, query: Matrix) -> tuple[Matrix, Matrix]:
    found = memory.scan(query)
    return found.dense, found.view


def _look(
    memory: MemoryIndex, query: Matrix, rows: Sequence[int] | None = None
) -> tuple[Matrix, Matrix]:
    wanted = np.arange(len(memory.names)) if rows is None else np.array(rows, np.intp)
    found = memory.rescore(wanted, query)
    return found.dense, found.view


def _expect_same(memory: MemoryIndex, entries: dict[str, IndexEntry]) -> None:
    """Over the living rows, all is as on a memory that never saw anything else."""
    assert len(memory) == len(entries)
    order = sorted(memory.row_of, key=lambda name: memory.row_of[name])
    fresh = _filled([entries[name] for name in order])
    rows = [memory.row_of[name] for name in order]
    assert [memory.names[row] for row in rows] == fresh.names == order
    assert [memory.texts[row] for row in rows] == list(fresh.texts)
    assert memory.pending == fresh.pending
    assert memory.is_chinese[rows].tolist() == fresh.is_chinese.tolist()
    assert np.flatnonzero(memory.is_alive).tolist() == rows
    _expect_kinds(memory, entries)
    _expect_names(memory, entries)
    query = _query()
    for mine, theirs in zip(_scan(memory, query), _scan(fresh, query), strict=True):
        assert np.array_equal(mine[rows], theirs)
    for mine, theirs in zip(_look(memory, query, rows), _look(fresh, query), strict=True):
        assert mine == pytest.approx(theirs, abs=1e-6)
    words = ["red", "数据", "all"]
    mine, theirs = memory.bm25.match(words), fresh.bm25.match(words)
    assert np.array_equal(mine.scores[rows], theirs.scores)
    assert mine.matched_words(rows) == theirs.matched_words(range(len(rows)))
    for number, row in enumerate(rows):
        vectors = entries[memory.names[row]].vectors
        assert memory.vectors_of(row) == pytest.approx(vectors, abs=2e-5)
        assert memory.best_view(row, query) == fresh.best_view(number, query)
        near, expected = memory.nearest_to_row(row, 3), fresh.nearest_to_row(number, 3)
        assert [name for name, _ in near] == [name for name, _ in expected]
        # As above: a matrix of another size is added up in another order, which shows near zero.
        known = [score for _, score in expected]
        assert [score for _, score in near] == pytest.approx(known, abs=1e-6)


def _expect_kinds(memory: MemoryIndex, entries: dict[str, IndexEntry]) -> None:
    for kinds in KINDS:
        found = {memory.names[row] for row in np.flatnonzero(memory.is_of_kind(kinds))}
        assert found == {name for name, entry in entries.items() if entry.kind in kinds}
    for name, entry in entries.items():
        assert memory.kind(memory.row_of[name]) == entry.kind


def _expect_names(memory: MemoryIndex, entries: dict[str, IndexEntry]) -> None:
    """The name index mentions the living rows, and no others."""
    titles = {
        f"{name} {version} {word}" for name in "abcdefg" for version in range(4) for word in WORDS
    }
    for title in titles:
        rows = {row for one in memory.name_index.mentions(f"{title} 0", _known) for row in one.rows}
        expected = {name for name, entry in entries.items() if entry.texts[0] == f"{title} 0"}
        assert {memory.names[row] for row in rows if memory.is_alive[row]} == expected
        assert memory.is_alive[list(rows)].all()


def _known(_: str) -> bool:
    return False


STEPS = st.lists(
    st.one_of(
        st.lists(st.tuples(NAMES, VERSIONS), max_size=5).map(lambda given: ("put", given)),
        st.lists(st.tuples(NAMES, VERSIONS), max_size=3).map(lambda given: ("drop", given)),
        st.just(("sweep", list[tuple[str, int]]())),
    ),
    max_size=15,
)


@given(STEPS)
def test_the_index_equals_a_rebuilt_one_after_any_operations(
    steps: list[tuple[str, list[tuple[str, int]]]],
) -> None:
    memory, held = MemoryIndex(), dict[str, IndexEntry]()
    for step, given_names in steps:
        if step == "put":
            entries = [_entry(name, version) for name, version in given_names]
            memory.put(entries)
            held |= {entry.name: entry for entry in entries}
        elif step == "drop":
            memory.drop([name for name, _ in given_names])
            held = {name: held[name] for name in held if name not in dict(given_names)}
        else:
            memory = memory.compacted()
            assert len(memory.names) == len(memory)
    _expect_same(memory, held)


def test_an_empty_index_answers_every_query() -> None:
    for memory in (MemoryIndex(), MemoryIndex().compacted()):
        memory.put([])
        memory.drop(["never"])
        assert (len(memory), memory.dimensions, memory.needs_compaction) == (0, 0, False)
        assert [part.tolist() for part in _scan(memory, _query())] == [[], []]
        assert [part.tolist() for part in _look(memory, _query())] == [[], []]
        assert memory.nearest(_query(), 3) == []


def test_of_one_name_put_twice_at_once_the_last_is_kept() -> None:
    memory = _filled([_entry("a", 1), _entry("b"), _entry("a", 2)])
    assert (len(memory), int(memory.is_alive.sum())) == (2, 2)
    _expect_same(memory, {"a": _entry("a", 2), "b": _entry("b")})


def test_scores_are_of_the_main_text_and_the_best_text() -> None:
    vectors = np.array([[1, 0], [0, 1], [0.6, 0.8]], np.float32)
    entry = replace(_entry("a"), texts=("whole", "north", "between"), vectors=vectors)
    memory = _filled([entry, replace(_entry("b"), texts=("b",), vectors=vectors[:1])])
    north = np.array([0, 1], np.float32)
    for dense, view in (_look(memory, north), _scan(memory, north)):
        assert dense.tolist() == [0, 0]
        assert view.tolist() == pytest.approx([1, 0])
    assert memory.best_view(0, north) == "north"
    assert memory.best_view(0, np.array([1, 0], np.float32)) == ""
    assert memory.best_view(0, np.array([0.7, 0.7], np.float32)) == "between"


def test_a_skill_with_views_beside_those_without_keeps_its_own() -> None:
    entries = [_entry("a", views=0), _entry("b", views=5), _entry("c", views=0)]
    memory = _filled(entries)
    dense, view = _look(memory, _query())
    rough = memory.scan(_query())
    for row, entry in enumerate(entries):
        near = entry.vectors @ _query()
        assert dense[row] == pytest.approx(near[0], abs=2e-5)
        assert view[row] == pytest.approx(near.max(), abs=2e-5)
        assert abs(rough.dense[row] - near[0]) <= rough.error_bound + 2e-5
        assert abs(rough.view[row] - near.max()) <= rough.error_bound + 2e-5


def test_neighbours_exclude_the_row_itself_and_deleted_rows() -> None:
    memory = _filled([_entry(name) for name in "abcde"])
    memory.drop(["b"])
    near = memory.nearest_to_row(memory.row_of["a"], 10)
    assert sorted(name for name, _ in near) == ["c", "d", "e"]
    assert [score for _, score in near] == sorted((s for _, s in near), reverse=True)
    assert memory.nearest_to_row(memory.row_of["a"], 0) == []
    assert _filled([_entry("a")]).nearest_to_row(0, 5) == []


def test_without_a_vector_or_with_one_of_another_size_nothing_is_near() -> None:
    memory = _filled([_entry("a"), _entry("b")])
    for query in (np.zeros(0, np.float32), _query(size=SIZE + 1)):
        for part in (*_scan(memory, query), *_look(memory, query)):
            assert part.tolist() == [0, 0]
        assert memory.best_view(0, query) == ""


def test_entries_without_vectors_match_nothing() -> None:
    bare = replace(_entry("w", views=0), vectors=np.zeros((1, 0), np.float32))
    memory = _filled([bare])
    assert memory.dimensions == 0
    for part in (*_scan(memory, _query()), *_look(memory, _query())):
        assert part.tolist() == [0]
    assert memory.best_view(0, _query()) == ""
    assert memory.nearest_to_row(0, 5) == []
    memory.put([_entry("a"), _entry("b")])
    assert memory.dimensions == SIZE
    memory.put([replace(bare, name="x")])
    for again in (memory, memory.compacted()):
        dense, view = _look(again, _query())
        for name in ("w", "x"):
            row = again.row_of[name]
            assert (dense[row], view[row], again.vectors_of(row).any()) == (0, 0, False)
        row = again.row_of["a"]
        assert again.vectors_of(row) == pytest.approx(_entry("a").vectors, abs=2e-5)
        assert again.bm25.match(["all"]).scores.all()


@pytest.mark.parametrize("others", [1, 40])
def test_an_emptied_index_accepts_another_vector_size(others: int) -> None:
    names = [f"n{chr(97 + number)}" for number in range(others)]
    for size in (SIZE // 2, SIZE * 2):
        memory = _filled([_entry(name) for name in names])
        memory.drop(names)
        small = _entry("b", size=size)
        memory.put([small])
        assert memory.dimensions == size
        dense, _ = _look(memory, _query(size=size))
        near = float(small.vectors[0] @ _query(size=size))
        assert dense[memory.row_of["b"]] == pytest.approx(near, abs=2e-5)
        assert memory.nearest_to_row(memory.row_of["b"], 5) == []
        _expect_same_names(memory.compacted(), ["b"])


def _expect_same_names(memory: MemoryIndex, names: list[str]) -> None:
    assert (memory.names, sorted(memory.row_of)) == (names, names)


def test_entries_that_cannot_be_written_to_are_copied() -> None:
    entry = _entry("a")
    for array in (entry.vectors, entry.terms, entry.counts):
        array.flags.writeable = False
    memory = _filled([entry])
    memory.put([_entry("b")])
    _expect_same(memory.compacted(), {"a": entry, "b": _entry("b")})


def test_repeated_updates_do_not_leak_memory() -> None:
    memory = _filled([_entry(f"n{chr(97 + number)}") for number in range(20)])
    most = 0
    for version in range(1_000):
        memory.put([_entry("na", version % 7)])
        if memory.needs_compaction:
            memory = memory.compacted()
        most = max(most, len(memory.names))
    assert len(memory) == 20
    assert most <= 20 + 64 + 1


def test_compaction_is_needed_for_many_deleted_rows_only() -> None:
    memory = _filled([_entry(f"n{number}") for number in range(400)])
    names = list(memory.row_of)
    memory.drop(names[:100])
    assert not memory.needs_compaction
    memory.drop(names[100:101])
    assert memory.needs_compaction
    assert not memory.compacted().needs_compaction


@given(st.lists(st.integers(0, 5), max_size=30), st.integers(-2, 35))
def test_the_top_are_the_highest_and_equals_stand_in_their_order(
    values: list[int], limit: int
) -> None:
    scores = np.array(values, np.float32)
    expected = sorted(range(len(values)), key=lambda row: (-values[row], row))[: max(0, limit)]
    assert top_rows(scores, limit).tolist() == expected


def test_kinds_restrict_rows_without_deleted_ones_and_survive_compaction() -> None:
    kinds: dict[str, Kind] = {"a": "tool", "b": "skill", "c": "tool", "d": "skill"}
    memory = _filled([replace(_entry(name), kind=kind) for name, kind in kinds.items()])
    memory.drop(["a", "b"])
    tools, skills = frozenset[Kind]({"tool"}), frozenset[Kind]({"skill"})
    assert memory.is_of_kind(tools).tolist() == [False, False, True, False]
    assert memory.is_of_kind(skills).tolist() == [False, False, False, True]
    assert memory.is_of_kind(tools | skills).tolist() == [False, False, True, True]
    assert not memory.is_of_kind(frozenset()).any()
    memory.put([replace(_entry("c"), kind="skill")])  # an entry may become another kind
    for again in (memory, memory.compacted()):
        assert [again.kind(again.row_of[name]) for name in "cd"] == ["skill", "skill"]
        assert not again.is_of_kind(tools).any()
        assert again.is_of_kind(skills).sum() == 2


def test_a_namespaced_entry_is_mentioned_in_full_and_by_its_last_part() -> None:
    entry = replace(_entry("a"), name="office:pdf-creator")
    texts = ("office pdf creator. Creates files.", *entry.texts[1:])
    memory = _filled([replace(entry, texts=texts), replace(_entry("b"), texts=_entry("b").texts)])
    for again in (memory, memory.compacted()):
        for query in ("pdf-creator", "PdfCreator", "office:pdf-creator", "Office PDF creator"):
            (row,) = {row for one in again.name_index.mentions(query, _known) for row in one.rows}
            assert again.names[row] == "office:pdf-creator"
        assert again.name_index.mentions("office", _known) == []
    memory.drop(["office:pdf-creator"])
    for again in (memory, memory.compacted()):
        assert again.name_index.mentions("office pdf creator", _known) == []


def test_deleted_rows_rank_last() -> None:
    scores = np.array([-np.inf, -5, -np.inf, -3], np.float32)
    assert top_rows(scores, 2).tolist() == [3, 1]
    assert top_rows(scores, 3).tolist() == [3, 1, 0]


@given(
    st.lists(st.sampled_from([0.5, 0.25, 0.125, -1.0]) | st.floats(-1, 1, width=32), max_size=400),
    st.integers(0, 12),
)
def test_the_highest_are_those_of_a_plain_sort(values: list[float], limit: int) -> None:
    scores = np.array(values, np.float32)
    expected = sorted(range(len(values)), key=lambda row: (-scores[row], row))[:limit]
    assert top_rows(scores, limit).tolist() == expected


def test_the_texts_of_many_rows_are_each_their_own() -> None:
    names = [f"{letter}{number}" for letter in "abc" for number in range(200)]
    entries = [
        replace(_entry(name), texts=_long(name), vectors=_vectors(name, 3)) for name in names
    ]
    memory = MemoryIndex()
    for first in range(0, len(entries), 77):
        memory.put(entries[first : first + 77])
    assert list(memory.texts) == [entry.texts for entry in entries]
    assert len(memory.texts) == len(entries)
    assert [memory.texts.view(row, 2) for row in (0, 599)] == [
        entries[0].texts[2],
        _long("c199")[2],
    ]
    memory.drop(names[::2])
    assert list(memory.compacted().texts) == [entry.texts for entry in entries[1::2]]


def _long(name: str) -> tuple[str, ...]:
    """Of several pages in all; what UTF-8 cannot carry among it."""
    return (f"{name} \ud800 数据 " * 20, "", f"view of {name} \U0001f389")


@pytest.mark.parametrize("seed", range(5))
def test_the_nearest_are_those_a_plain_product_finds(seed: int) -> None:
    """Among many that lie so close together that a rough look cannot part them."""
    chance = np.random.default_rng(seed)
    centre = _query(size=64)
    rows = centre + 0.02 * chance.standard_normal((3_000, 64)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    entries = [
        replace(_entry("a"), name=f"n{row}", texts=("t",), vectors=rows[row : row + 1])
        for row in range(len(rows))
    ]
    memory = _filled(entries)
    memory.drop(["n7", "n8"])
    true = rows.astype(np.float64) @ centre.astype(np.float64)
    true[[7, 8]] = -2
    assert set(top_rows(memory.scan(centre).dense, 10).tolist()) != set(
        np.argsort(-true)[:10].tolist()
    )
    found = memory.nearest(centre, 10)
    best = np.sort(true)[::-1][:10]
    assert [near for _, near in found] == pytest.approx(best, abs=1e-5)
    assert [true[row] for row, _ in found] == pytest.approx(best, abs=1e-5)
