"""File system check: every visible invariant is violated, detected, and repaired where possible."""

import dataclasses
import fcntl
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from apexbridge.errors import StateDamagedError
from apexbridge.lifecycle.fsck import (
    INVARIANTS,
    PROVEN_BY_TESTS,
    FsckInput,
    FsckReport,
    Invariant,
    run_fsck,
)
from apexbridge.lifecycle.source_records import InstallOrigin, SourceRecord
from apexbridge.lifecycle.store import SkillStore
from apexbridge.locales import error_texts
from apexbridge.retrieval.vectorized_marker import Marker, read_marker, write_marker
from apexbridge.runtime import Runtime
from apexbridge.runtime.fsck import check_data_dir, repair_data_dir
from apexbridge.runtime.state_check import STATE_FILES
from apexbridge.settings import Config, load
from apexbridge.skills import tree
from apexbridge.skills.model import Fingerprint
from apexbridge.testing import make_skill, make_zip, skill_md

pytestmark = pytest.mark.anyio


@pytest.fixture
def loaded(home: Path, tmp_path: Path) -> Config:
    (tmp_path / "project").mkdir()
    environment = {
        "HOME": str(home),
        "APEXBRIDGE_DATA_DIR": str(tmp_path / "data"),
        "APEXBRIDGE_INDEX__EMBEDDER": "hash",
    }
    return load(project=tmp_path / "project", environment=environment)


def _zip(place: Path, name: str, description: str = "Grows tomatoes.") -> Path:
    entries = {f"{name}/SKILL.md": skill_md(name, description), f"{name}/references/a.md": b"more"}
    return make_zip(place / f"{name}.zip", entries)


async def _furnish(loaded: Config, place: Path) -> None:
    """Two skills, one that was taken away, and an index of all there is."""
    async with Runtime.open(loaded) as runtime:
        for name in ("garden", "violin", "gone"):
            await runtime.manager.install(_zip(place, name))
        await runtime.index_service.index()
        await runtime.manager.uninstall("gone")


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once, to be copied: nothing in it depends on where it lies."""
    place = tmp_path_factory.mktemp("furnished")
    (place / "project").mkdir()
    environment = {
        "HOME": str(place),
        "APEXBRIDGE_DATA_DIR": str(place / "data"),
        "APEXBRIDGE_INDEX__EMBEDDER": "hash",
    }
    anyio.run(_furnish, load(project=place / "project", environment=environment), place)
    return place / "data"


@pytest.fixture
def data(loaded: Config, furnished: Path) -> Path:
    shutil.copytree(furnished, loaded.data, symlinks=True)
    return loaded.data


def _codes(found: FsckReport) -> dict[Invariant, set[str]]:
    """What is violated, by invariant."""
    return {
        entry.invariant: {problem.code for problem in entry.violations}
        for entry in found.entries
        if entry.violations
    }


def _remarks(found: FsckReport) -> set[str]:
    return {problem.code for entry in found.entries for problem in entry.remarks}


def _tree(data: Path) -> dict[str, tuple[int, int, int]]:
    """Everything in a folder, and when it changed."""
    return {
        str(path.relative_to(data)): (status.st_ino, status.st_mtime_ns, status.st_size)
        for path in (data, *data.rglob("*"))
        for status in (path.lstat(),)
    }


async def test_a_sound_folder_has_nothing_to_tell(loaded: Config, data: Path) -> None:
    found = await check_data_dir(loaded)
    assert [entry.invariant for entry in found.entries] == list(INVARIANTS)
    assert (found.violations, _remarks(found)) == ((), set())
    looked_at = {entry.invariant: entry.checked for entry in found.entries if entry.is_visible}
    assert looked_at["I1"] == looked_at["I2"] == looked_at["I3"] == looked_at["I4"] == 2
    assert looked_at["I5"] == 2
    assert looked_at["I8"] == 1
    assert looked_at["I11"] == 5  # four records, one place in the trash
    hidden = [entry.invariant for entry in found.entries if not entry.is_visible]
    assert hidden == list(PROVEN_BY_TESTS)


async def test_a_folder_that_is_not_there_or_empty_is_sound(loaded: Config) -> None:
    found = await check_data_dir(loaded)
    assert found.violations == ()
    assert not loaded.data.exists()
    loaded.data.mkdir()
    assert (await check_data_dir(loaded)).violations == ()
    assert list(loaded.data.iterdir()) == []


async def test_a_check_changes_nothing(loaded: Config, data: Path) -> None:
    (data / "skills/.staging/left").mkdir()
    (data / "skills/garden/SKILL.md").write_bytes(skill_md("garden", "Edited."))
    make_skill(data / "skills", "by-hand")
    before = _tree(data)
    assert (await check_data_dir(loaded)).violations
    assert _tree(data) == before


async def test_what_is_found_can_be_told_as_json_and_in_both_languages(
    loaded: Config, data: Path
) -> None:
    (data / "skills/.staging/left").mkdir()
    found = await check_data_dir(loaded)
    read = json.loads(json.dumps(dataclasses.asdict(found)))
    assert read["entries"][9]["problems"][0] == {
        "code": "fsck_staging_left",
        "where": "skills/.staging/left",
        "severity": "error",
        "details": {"path": "skills/.staging/left"},
    }
    (problem,) = found.get("I10").violations
    assert "skills/.staging/left" in problem.localized("en").message
    assert "skills/.staging/left" in problem.localized("zh").message


def test_all_that_can_be_found_has_words() -> None:
    source = Path(__file__).parents[2] / "src/apexbridge/lifecycle"
    text = "".join((source / f"{name}.py").read_text(encoding="utf-8") for name in (
        "fsck", "crash_cleanup"
    ))  # fmt: skip
    codes = [code for code in error_texts("en") if code.startswith("fsck_")]
    assert len(codes) > 20
    assert [code for code in codes if f'"{code}"' not in text] == []


Break = Callable[[Path], object]


def _no_skill_md(data: Path) -> None:
    (data / "skills/garden/SKILL.md").unlink()


def _no_skill(data: Path) -> None:
    (data / "skills/nothing").mkdir()
    (data / "skills/nothing/notes.txt").write_bytes(b"notes")


def _loop(data: Path) -> None:
    (data / "skills/garden/SKILL.md").unlink()
    (data / "skills/garden/SKILL.md").symlink_to("SKILL.md")


def _other_name(data: Path) -> None:
    (data / "skills/garden").rename(data / "skills/yard")


def _same_name_twice(data: Path) -> None:
    make_skill(data / "skills", "Garden", raw=skill_md("garden"))


def _sql(data: Path, statement: str) -> None:
    with closing(sqlite3.connect(data / "index.db")) as database, database:
        database.execute(statement)


def _no_row(data: Path) -> None:
    _sql(data, "DELETE FROM entries WHERE name = 'garden'")
    (data / "skills/garden/.vectorized").unlink()


def _row_of_nobody(data: Path) -> None:
    shutil.rmtree(data / "skills/garden")


def _damaged_row(data: Path) -> None:
    _sql(data, "UPDATE entries SET checksum = checksum + 1 WHERE name = 'garden'")


def _garbage(data: Path) -> None:
    for suffix in ("-wal", "-shm"):
        (data / f"index.db{suffix}").unlink(missing_ok=True)
    (data / "index.db").write_bytes(b"garbage" * 1_000)


def _edit(data: Path) -> None:
    (data / "skills/garden/SKILL.md").write_bytes(skill_md("garden", "Another."))


def _no_marker(data: Path) -> None:
    (data / "skills/garden/.vectorized").unlink()


def _foreign_marker(data: Path) -> None:
    marker = read_marker(data / "skills/garden")
    assert marker is not None
    write_marker(data / "skills/garden", marker.model_copy(update={"embedder": "another"}))


def _marker_of_nothing(data: Path) -> None:
    _sql(data, "DELETE FROM entries WHERE name = 'garden'")


def _no_index(data: Path) -> None:
    for path in data.glob("index.db*"):
        path.unlink()


def _row_of_the_gone(data: Path) -> None:
    SkillStore(data / "skills").uninstall("garden")


def _row_of_the_off(data: Path) -> None:
    (data / "states.json").write_text('{"disabled": ["garden"]}', encoding="utf-8")


def _left_in_staging(data: Path) -> None:
    make_skill(data / "skills/.staging/abandoned", "half")


def _left_marker(data: Path) -> None:
    (data / "skills/.staging/garden.marker").write_bytes(b"{")


def _abandon(path: Path) -> None:
    """A file whose writer was killed long ago."""
    path.write_bytes(b"{")
    os.utime(path, (0, 0))


def _left_temporary(data: Path) -> None:
    _abandon(data / f".{'0a' * 16}.new")


def _left_in_skill(data: Path) -> None:
    _abandon(data / f"skills/violin/.{'0a' * 16}.new")


def _left_workspace(data: Path) -> None:
    (data / "workspaces/a1/deep").mkdir(parents=True)
    (data / "workspaces/a1.lock").touch()


def _left_lock(data: Path) -> None:
    (data / "workspaces").mkdir()
    (data / "workspaces/a1.lock").touch()


def _half_in_trash(data: Path) -> None:
    (data / "skills/.trash/0a").mkdir()


def _broken_chain(data: Path) -> None:
    log = data / "audit.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"garden"', b'"burden"', 1))


def _no_table(data: Path) -> None:
    _no_index(data)
    _sql(data, "CREATE TABLE other (x)")


MENDABLE: list[tuple[Break, dict[Invariant, set[str]]]] = [
    (_no_row, {"I3": {"fsck_row_missing"}}),
    (_row_of_nobody, {"I3": {"fsck_row_orphaned"}}),
    (_damaged_row, {"I3": {"fsck_row_missing"}, "I5": {"fsck_marker_without_row"}}),
    (_edit, {"I4": {"fsck_row_stale", "fsck_marker_stale"}}),
    (_no_marker, {"I4": {"fsck_marker_missing"}}),
    (_foreign_marker, {"I4": {"fsck_marker_foreign"}}),
    (_marker_of_nothing, {"I3": {"fsck_row_missing"}, "I5": {"fsck_marker_without_row"}}),
    (_no_index, {"I5": {"fsck_marker_without_row"}}),
    (_row_of_the_gone, {"I8": {"fsck_gone_has_row"}}),
    (_row_of_the_off, {"I8": {"fsck_off_has_row"}}),
    (_left_in_staging, {"I10": {"fsck_staging_left"}}),
    (_left_marker, {"I10": {"fsck_staging_left"}}),
    (_left_temporary, {"I10": {"fsck_temporary_left"}}),
    (_left_workspace, {"I10": {"fsck_workspace_left"}}),
    (_left_lock, {"I10": {"fsck_workspace_left"}}),
    (_half_in_trash, {"I11": {"fsck_trash_unfinished"}}),
]


@pytest.mark.parametrize(
    ("breaks", "violated"), MENDABLE, ids=[breaks.__name__ for breaks, _ in MENDABLE]
)
async def test_what_is_derived_or_left_over_is_found_and_put_right(
    loaded: Config, data: Path, breaks: Break, violated: dict[Invariant, set[str]]
) -> None:
    breaks(data)
    assert _codes(await check_data_dir(loaded)) == violated
    await repair_data_dir(loaded)
    assert _codes(await check_data_dir(loaded)) == {}


LASTING: list[tuple[Break, dict[Invariant, set[str]]]] = [
    (_no_skill_md, {"I1": {"fsck_folder_broken"}}),
    (_no_skill, {"I1": {"fsck_folder_broken"}}),
    (_loop, {"I1": {"fsck_folder_broken"}}),
    (_other_name, {"I2": {"fsck_name_differs"}}),
    (_same_name_twice, {"I2": {"fsck_name_differs", "fsck_names_collide"}}),
    (_broken_chain, {"I11": {"audit_broken"}}),
]


@pytest.mark.parametrize(
    ("breaks", "violated"), LASTING, ids=[breaks.__name__ for breaks, _ in LASTING]
)
async def test_what_cannot_be_made_anew_stays_found_and_says_what_to_do(
    loaded: Config, data: Path, breaks: Break, violated: dict[Invariant, set[str]]
) -> None:
    breaks(data)
    before = await check_data_dir(loaded)
    assert violated.items() <= _codes(before).items()
    await repair_data_dir(loaded)
    after = await check_data_dir(loaded)
    assert _codes(after) == violated
    assert all(problem.localized("en").hint for problem in after.violations)
    assert all(problem.localized("zh").hint for problem in after.violations)


@pytest.mark.parametrize("name", STATE_FILES)
async def test_damaged_state_is_found_and_set_aside_when_asked_to(
    loaded: Config, data: Path, name: str
) -> None:
    (data / name).write_bytes(b"garbage" * 1_000)
    before = _tree(data)
    found = await check_data_dir(loaded)
    assert _codes(found) == {"I13": {"state_damaged"}}
    (problem,) = found.violations
    assert (problem.where, str(data) in problem.message) == (name, False)
    assert _tree(data) == before
    mended = await repair_data_dir(loaded)
    assert mended.set_aside == (f"{name}.damaged-1",)
    assert (data / f"{name}.damaged-1").read_bytes() == b"garbage" * 1_000
    assert _codes(await check_data_dir(loaded)) == {}


async def test_no_earlier_damaged_file_is_replaced(loaded: Config, data: Path) -> None:
    for number in (1, 2):
        (data / "states.json").write_bytes(b"%d" % number)
        assert (await repair_data_dir(loaded)).set_aside == (f"states.json.damaged-{number}",)
    assert (data / "states.json.damaged-1").read_bytes() == b"1"


async def test_no_process_starts_without_the_states(loaded: Config, data: Path) -> None:
    async with Runtime.open(loaded) as runtime:
        await runtime.manager.set_enabled("garden", enabled=False)
        (data / "states.json").write_bytes(b"{")
        await runtime.refresh()
        assert "garden" not in {skill.name for skill in runtime.catalog.skills}
        with pytest.raises(StateDamagedError):
            await runtime.manager.set_enabled("garden", enabled=True)
    with pytest.raises(StateDamagedError):
        async with Runtime.open(loaded):
            pass
    assert (data / "states.json").read_bytes() == b"{"


async def test_no_skill_is_changed_while_its_source_cannot_be_recorded(
    loaded: Config, data: Path, tmp_path: Path
) -> None:
    (data / "sources.json").write_bytes(b"{")
    known = InstallOrigin(source=SourceRecord(source="github:o/r"))
    async with Runtime.open(loaded) as runtime:
        with pytest.raises(StateDamagedError):
            await runtime.manager.install(_zip(tmp_path, "new"), origin=known)
        with pytest.raises(StateDamagedError):
            await runtime.manager.update(_zip(tmp_path, "garden", "Other."), origin=known)
        with pytest.raises(StateDamagedError):
            await runtime.manager.uninstall("violin")
        found = {skill.name: skill.description for skill in runtime.catalog.skills}
    assert "new" not in found
    assert (found["garden"], "violin" in found) == ("Grows tomatoes.", True)
    assert (data / "sources.json").read_bytes() == b"{"


async def test_a_check_beside_a_writer_finds_nothing(loaded: Config, data: Path) -> None:
    async with Runtime.open(loaded) as runtime:
        with closing(sqlite3.connect(data / "index.db", isolation_level=None)) as writer:
            writer.execute("PRAGMA wal_autocheckpoint = 0")
            writer.execute("BEGIN IMMEDIATE")
            writer.execute("UPDATE entries SET sequence = sequence + 1")
            runtime.usage.record("garden", 1.0)
            assert _codes(await check_data_dir(loaded)) == {}


async def test_what_may_be_being_written_now_is_no_leftover(loaded: Config, data: Path) -> None:
    (data / f".{'0a' * 16}.new").write_bytes(b"{")
    (data / f".{'0b' * 16}.new").mkdir()
    assert _codes(await check_data_dir(loaded)) == {}
    assert (await repair_data_dir(loaded)).temporaries == 0


async def test_a_server_removes_what_a_kill_just_left_and_takes_files_from_others(
    loaded: Config, data: Path
) -> None:
    (data / "verdicts").mkdir(exist_ok=True)
    (data / "verdicts").chmod(0o755)
    left = data / f"verdicts/.{'0a' * 16}.new"
    left.write_bytes(b"{")
    for name in ("index.db", "usage.db", "audit.jsonl", "states.json"):
        (data / name).touch()
        (data / name).chmod(0o644)
    (data / "states.json").write_text("{}", encoding="utf-8")
    async with Runtime.open(loaded, is_server=True):
        assert not left.exists()
    modes = {p.name: oct(p.stat().st_mode & 0o077) for p in data.iterdir() if p.is_file()}
    assert set(modes.values()) == {"0o0"}, modes
    assert (data / "verdicts").stat().st_mode & 0o777 == 0o700
    assert (data / "skills/garden/SKILL.md").stat().st_mode & 0o044


async def test_a_violation_beside_a_server_must_be_found_twice(
    loaded: Config, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _no_skill_md(data)
    async with Runtime.open(loaded, is_server=True):
        assert "I1" in _codes(await check_data_dir(loaded))
        checks = list[FsckReport]()

        def sees_a_change(target: FsckInput) -> FsckReport:
            checks.append(run_fsck(target))
            (data / "skills/garden/SKILL.md").write_bytes(skill_md("garden", "Grows tomatoes."))
            return checks[-1]

        monkeypatch.setattr("apexbridge.runtime.fsck.run_fsck", sees_a_change)
        found = _codes(await check_data_dir(loaded))
    assert "I1" in _codes(checks[0])
    assert "I1" not in found


async def test_a_file_left_in_a_skill_is_found_and_removed(loaded: Config, data: Path) -> None:
    _left_in_skill(data)
    assert _codes(await check_data_dir(loaded))["I10"] == {"fsck_temporary_left"}
    assert (await repair_data_dir(loaded)).temporaries == 1
    assert _codes(await check_data_dir(loaded)) == {}


@pytest.mark.parametrize("breaks", [_garbage, _no_table], ids=lambda breaks: breaks.__name__)
async def test_an_index_that_cannot_be_read_is_found_and_made_anew(
    loaded: Config, data: Path, breaks: Break
) -> None:
    breaks(data)
    found = await check_data_dir(loaded)
    assert "fsck_index_damaged" in _codes(found)["I3"]
    before = _tree(data)
    assert "index.db.broken" not in before
    await repair_data_dir(loaded)
    assert _codes(await check_data_dir(loaded)) == {}


async def test_what_was_done_by_hand_is_told_and_is_no_violation(
    loaded: Config, data: Path
) -> None:
    make_skill(data / "skills", "by-hand")
    _edit(data)
    shutil.rmtree(data / "skills/violin")
    (data / "skills/.trash").rename(data / "kept-for-the-test")
    make_skill(data / "skills", "gone")
    await repair_data_dir(loaded)
    found = await check_data_dir(loaded)
    assert _codes(found) == {}
    assert {(p.code, p.where) for p in found.get("I11").remarks} == {
        ("fsck_by_hand_new", "by-hand"),
        ("fsck_by_hand_edited", "garden"),
        ("fsck_by_hand_gone", "violin"),
        ("fsck_there_after_all", "gone"),
    }


async def test_a_row_of_another_project_is_told_and_is_no_violation(
    loaded: Config, data: Path, home: Path, tmp_path: Path
) -> None:
    make_skill(tmp_path / "project/.claude/skills", "of-the-project")
    async with Runtime.open(loaded) as runtime:
        await runtime.index_service.sync()
    (tmp_path / "other").mkdir()
    environment = {
        "HOME": str(home),
        "APEXBRIDGE_DATA_DIR": str(data),
        "APEXBRIDGE_INDEX__EMBEDDER": "hash",
    }
    found = await check_data_dir(load(project=tmp_path / "other", environment=environment))
    assert _codes(found) == {}
    assert [(p.code, p.where) for p in found.get("I3").remarks] == [
        ("fsck_row_orphaned", "of-the-project")
    ]


async def test_a_skill_that_another_hides_needs_no_row(
    loaded: Config, data: Path, home: Path
) -> None:
    make_skill(home / ".claude/skills", "garden", description="Hides the installed one.")
    async with Runtime.open(loaded) as runtime:
        await runtime.index_service.sync()
    found = await check_data_dir(loaded)
    assert _codes(found) == {}
    assert found.get("I4").checked == 1


async def test_skills_without_an_index_are_told(loaded: Config) -> None:
    make_skill(loaded.data / "skills", "by-hand")
    found = await check_data_dir(loaded)
    assert found.violations == ()
    assert _remarks(found) == {"fsck_index_none", "fsck_by_hand_new"}


async def test_what_a_living_process_is_at_work_on_is_left_alone(
    loaded: Config, data: Path
) -> None:
    _left_in_staging(data)
    _left_workspace(data)
    locks = [data / "skills/.staging/.lock", data / "workspaces/a1.lock"]
    held = [os.open(lock, os.O_RDWR) for lock in locks]
    try:
        for descriptor in held:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        found = await check_data_dir(loaded)
        assert _codes(found) == {}
        assert _remarks(found) == {"fsck_busy"}
    finally:
        for descriptor in held:
            os.close(descriptor)
    assert _codes(await check_data_dir(loaded))["I10"] == {
        "fsck_staging_left",
        "fsck_workspace_left",
    }


def _kept(data: Path, description: str = "Earlier.") -> Path:
    """A version of a skill that is kept, as an update leaves it."""
    made = make_skill(data / "kept", "garden", description=description)
    mark = tree.fingerprint(made)
    assert isinstance(mark, Fingerprint)
    place = data / "skills/.versions/garden" / mark.sha256
    place.mkdir(parents=True)
    made.rename(place / "garden")
    return place


async def test_a_kept_version_is_what_its_place_is_called_by(loaded: Config, data: Path) -> None:
    place = _kept(data)
    assert (await check_data_dir(loaded)).violations == ()
    (place / "garden/SKILL.md").write_bytes(b"other")
    assert _codes(await check_data_dir(loaded)) == {"I11": {"fsck_version_broken"}}
    shutil.rmtree(place / "garden")
    assert _codes(await check_data_dir(loaded)) == {"I11": {"fsck_version_broken"}}
    await repair_data_dir(loaded)
    assert _codes(await check_data_dir(loaded)) == {}


@pytest.mark.parametrize("name", ["nothing", "garden"])
async def test_an_index_is_checked_whatever_the_marker_claims(
    loaded: Config, data: Path, name: str
) -> None:
    """Forge a marker."""
    _sql(data, "DELETE FROM entries WHERE name = 'garden'")
    make_skill(data / "skills", "nothing")
    mark = tree.fingerprint(data / "skills" / name)
    assert isinstance(mark, Fingerprint)
    right = read_marker(data / "skills/violin")
    assert right is not None
    forged = Marker.from_fingerprint(mark, embedder=right.embedder, generation=right.generation)
    write_marker(data / "skills" / name, forged)
    found = await check_data_dir(loaded)
    assert name in {problem.where for problem in found.get("I5").violations}


async def test_an_empty_folder_is_found(loaded: Config, data: Path) -> None:
    (data / "skills/nothing").mkdir()
    assert _codes(await check_data_dir(loaded)) == {"I1": {"fsck_folder_broken"}}


async def test_a_place_for_skills_that_is_no_folder_is_found(loaded: Config) -> None:
    loaded.data.mkdir()
    (loaded.data / "skills").write_bytes(b"")
    found = await check_data_dir(loaded)
    assert _codes(found) == {"I1": {"fsck_folder_broken"}}


async def test_what_was_taken_away_and_cannot_be_read_is_found(loaded: Config, data: Path) -> None:
    (place,) = (data / "skills/.trash").glob("*/gone")
    folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(20):  # deeper than a path can tell
        os.mkdir("d" * 250, dir_fd=folder)
        below = os.open("d" * 250, os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)
    assert _codes(await check_data_dir(loaded)) == {"I11": {"fsck_trash_unreadable"}}


async def test_an_index_that_is_something_else_is_found(loaded: Config, data: Path) -> None:
    _no_index(data)
    (data / "index.db/odd").mkdir(parents=True)
    before = _tree(data)
    found = _codes(await check_data_dir(loaded))
    assert found["I3"] == {"fsck_index_damaged", "fsck_row_missing"}
    assert found["I5"] == {"fsck_marker_without_row"}
    assert _tree(data) == before
