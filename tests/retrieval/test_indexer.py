"""Index sync: which skills are skipped, embedded, embedded again; and search results."""

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from apexbridge.retrieval.results import SyncCallbacks, SyncProgress, SyncReport
from apexbridge.retrieval.vectorized_marker import read_marker
from apexbridge.runtime import Runtime
from apexbridge.settings import load
from apexbridge.skills import tree
from apexbridge.testing import make_skill
from tests.retrieval.tiny_onnx import write_tiny

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def _open(home: Path, tmp_path: Path, **variables: str) -> AsyncGenerator[Runtime]:
    environment = {"HOME": str(home), "APEXBRIDGE_INDEX__EMBEDDER": "hash", **variables}
    async with Runtime.open(load(project=tmp_path, environment=environment)) as runtime:
        yield runtime


async def _scan(home: Path, tmp_path: Path, **variables: str) -> SyncReport:
    async with _open(home, tmp_path, **variables) as runtime:
        return await runtime.index_service.sync()


def _tiny(tmp_path: Path) -> dict[str, str]:
    """Another embedder that is soon loaded."""
    write_tiny(tmp_path / "tiny")
    return {"APEXBRIDGE_INDEX__EMBEDDER": "onnx:tiny"}


def _installed(home: Path) -> Path:
    return home / ".local/share/apexbridge/skills"


async def test_a_new_skill_is_embedded_and_marked_and_then_skipped(
    home: Path, tmp_path: Path
) -> None:
    root = make_skill(_installed(home), "pdf-forms", description="Fill in PDF forms.")
    first = await _scan(home, tmp_path)
    assert "pdf-forms" in first.added
    mark, marker = tree.fingerprint(root), read_marker(root)
    assert isinstance(mark, tree.Fingerprint)
    assert marker is not None
    assert (marker.size, marker.sha256, marker.embedder) == (mark.size, mark.sha256, "hash-64")
    second = await _scan(home, tmp_path)
    assert (second.added, second.redone, second.dropped) == ((), (), ())
    assert set(second.kept) == set(first.added)


async def test_only_folders_that_are_ours_are_marked(home: Path, tmp_path: Path) -> None:
    mine = make_skill(home / ".claude/skills", "mine")
    assert "mine" in (await _scan(home, tmp_path)).added
    assert not (mine / tree.MARKER).exists()
    assert "mine" in (await _scan(home, tmp_path)).kept


async def test_a_changed_skill_is_re_embedded_and_a_removed_one_deleted(
    home: Path, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        make_skill(_installed(home), name, description=f"Does {name}.")
    await _scan(home, tmp_path)
    (_installed(home) / "a/notes.md").write_text("more", encoding="utf-8")
    (_installed(home) / "b").rename(tmp_path / "gone")
    report = await _scan(home, tmp_path)
    assert (report.redone, report.dropped) == (("a",), ("b",))


async def test_single_skills_can_be_brought_up_to_date_without_a_look_at_the_others(
    home: Path, tmp_path: Path
) -> None:
    for name in ("a", "b", "c"):
        make_skill(_installed(home), name, description=f"Does {name}.")
    async with _open(home, tmp_path) as runtime:
        await runtime.index_service.sync()
        for name in ("a", "b"):
            (_installed(home) / name / "notes.md").write_text("more", encoding="utf-8")
        (_installed(home) / "c").rename(tmp_path / "gone")
        await runtime.refresh()
        report = await runtime.index_service.sync(only=["a", "c"])
        assert (report.redone, report.dropped, report.kept) == (("a",), ("c",), ())
        status = await runtime.index_service.status()
        assert (status.stale, status.missing, status.orphaned) == (("b",), (), ())


def _forge(root: Path) -> None:
    """Right in form and size, but of other bytes, as an archive might ship it."""
    fields = json.loads((root / tree.MARKER).read_bytes())
    fields["sha256"] = "0" * 64
    (root / tree.MARKER).write_text(json.dumps(fields), encoding="utf-8")


def _age(root: Path) -> None:
    fields = json.loads((root / tree.MARKER).read_bytes())
    fields["generation"] = "v0"
    (root / tree.MARKER).write_text(json.dumps(fields), encoding="utf-8")


def _edit_in_place(root: Path) -> None:
    text = (root / "SKILL.md").read_text(encoding="utf-8")
    (root / "SKILL.md").write_text(text.replace("Does it.", "Does IT."), encoding="utf-8")


BAD_MARKERS: dict[str, Callable[[Path], object]] = {
    "missing": lambda root: (root / tree.MARKER).unlink(),
    "corrupt": lambda root: (root / tree.MARKER).write_bytes(b"\0\0\0"),
    "forged": _forge,
    "older": _age,
    "of the right size, but the content changed": _edit_in_place,
}


@pytest.mark.promise("L07")
@pytest.mark.parametrize("case", BAD_MARKERS)
async def test_a_bad_marker_means_vectorising_again(home: Path, tmp_path: Path, case: str) -> None:
    root = make_skill(_installed(home), "x", description="Does it.")
    await _scan(home, tmp_path)
    BAD_MARKERS[case](root)
    assert (await _scan(home, tmp_path)).redone == ("x",)
    assert "x" in (await _scan(home, tmp_path)).kept


@pytest.mark.promise("L07")
async def test_a_folder_that_cannot_be_marked_is_indexed_all_the_same(
    home: Path, tmp_path: Path
) -> None:
    root = make_skill(_installed(home), "x")
    (root / tree.MARKER).mkdir()
    assert "x" in (await _scan(home, tmp_path)).added
    async with _open(home, tmp_path) as runtime:
        assert "x" in (await runtime.index_service.sync()).redone
        assert (await runtime.index_service.status()).missing == ()


def _index(home: Path) -> Path:
    return home / ".local/share/apexbridge/index.db"


def _spoil(path: Path) -> None:
    path.write_bytes(b"no database at all" * 1_000)


def _halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.promise("L08")
@pytest.mark.parametrize("harm", [Path.unlink, _spoil, _halve])
async def test_a_lost_or_corrupt_index_is_rebuilt(
    home: Path, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    make_skill(_installed(home), "pdf-forms", description="Fill in PDF forms.")
    first = await _scan(home, tmp_path)
    harm(_index(home))
    async with _open(home, tmp_path) as runtime:
        results = await runtime.search("fill in pdf forms")
        status = await runtime.index_service.status()
    assert results.hits[0].name == "pdf-forms"
    assert (status.rows, status.missing, status.stale) == (len(first.added), (), ())


@pytest.mark.promise("L08")
async def test_another_embedder_re_embeds_all_and_vectors_never_mix(
    home: Path, tmp_path: Path
) -> None:
    make_skill(_installed(home), "pdf-forms", description="Fill in PDF forms.")
    old = await _scan(home, tmp_path, **_tiny(tmp_path))
    new = await _scan(home, tmp_path)
    assert set(new.added) == set(old.added)
    async with _open(home, tmp_path) as runtime:
        index = await runtime.index_service.index()
        await index.refresh()
        assert index.memory.dimensions == 64
        assert list(await index.store.others()) != []


async def test_during_a_rebuild_the_old_index_serves(home: Path, tmp_path: Path) -> None:
    make_skill(_installed(home), "pdf-forms", description="Fill in PDF forms.")
    await _scan(home, tmp_path)
    answers = list[str]()
    async with _open(home, tmp_path, **_tiny(tmp_path)) as runtime:

        async def stored(_names: Sequence[str]) -> None:
            assert (await runtime.index_service.index()).embedder.id == "hash-64"
            answers.append((await runtime.search("fill in pdf forms")).hits[0].name)

        await runtime.index_service.sync(SyncCallbacks(stored=stored))
        assert (await runtime.index_service.index()).embedder.id.startswith("onnx:tiny:")
    assert answers == ["pdf-forms"]


@pytest.mark.promise("L06")
async def test_without_the_embedder_there_are_terms_and_no_marker(
    home: Path, tmp_path: Path
) -> None:
    root = make_skill(_installed(home), "pdf-forms", description="Fill in PDF forms.")
    async with _open(home, tmp_path, APEXBRIDGE_INDEX__EMBEDDER="onnx:nowhere") as runtime:
        report = await runtime.index_service.sync()
        results = await runtime.search("fill in pdf forms")
    assert "pdf-forms" in report.pending
    assert report.problem is not None
    assert results.problem is not None
    assert results.hits[0].name == "pdf-forms"
    assert not (root / tree.MARKER).exists()
    assert "pdf-forms" in (await _scan(home, tmp_path)).added


async def test_progress_is_reported_up_to_the_end(home: Path, tmp_path: Path) -> None:
    seen = list[SyncProgress]()
    async with _open(home, tmp_path) as runtime:
        await runtime.index_service.sync(SyncCallbacks(progress=seen.append))
        count = len(runtime.catalog.snapshot.skills)
    assert seen[-1] == SyncProgress(done=count, total=count)


async def test_tags_can_be_switched_off_and_the_author_s_own_are_read(
    home: Path, tmp_path: Path
) -> None:
    raw = b"---\nname: x\ndescription: Does it.\ntags: [zebra, okapi]\n---\nBody.\n"
    make_skill(_installed(home), "x", raw=raw)
    async with _open(home, tmp_path) as runtime:
        assert "okapi" in (await runtime.search("okapi")).hits[0].parts.words
    async with _open(home, tmp_path, APEXBRIDGE_INDEX__TAGS="false") as runtime:
        assert "x" in (await runtime.index_service.sync()).redone
        assert all(not hit.parts.words for hit in (await runtime.search("okapi")).hits)
