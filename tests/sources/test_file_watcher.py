"""File watcher: every kind of change is detected, with inotify events and by polling."""

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager, closing
from pathlib import Path

import anyio
import pytest

from apexbridge.sources.file_watcher import watch
from apexbridge.testing import make_skill

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _short_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poll more often than once a second, so that no test waits for it."""
    monkeypatch.setattr("apexbridge.sources.file_watcher._TICK_SECONDS", 0.2)


class Watching:
    """A watch that runs, and the folders it is asked to look after."""

    def __init__(self, folders: set[Path], stop: anyio.Event) -> None:
        self.folders = folders
        self.stop = stop
        self._send, self._batches = anyio.create_memory_object_stream[frozenset[Path]](100)
        self._asked = 0
        self._stands = anyio.Event()

    async def run(self, max_watched: int) -> None:
        stream = watch(self._ask, stop=self.stop, debounce_ms=60, max_watched=max_watched)
        async with self._send, aclosing(stream) as batches:
            async for batch in batches:
                self._asked, self._stands = 0, anyio.Event()
                await self._send.send(batch)

    def _ask(self) -> set[Path]:
        """Asked once to set up the watch, and again when it stands and the waiting begins."""
        self._asked += 1
        if self._asked == 2:
            self._stands.set()
        return self.folders

    async def stands(self) -> None:
        await self._stands.wait()

    async def stands_again(self) -> None:
        """Wait until the watch, though nothing changed, has been renewed."""
        self._asked, self._stands = 0, anyio.Event()
        await self._stands.wait()

    async def look_after(self, *folders: Path) -> None:
        """Hand in other folders, and take the batch that says that they are watched."""
        known, self.folders = self.folders, set(folders)
        await self.until(*self.folders - known)
        await self.stands()

    def close(self) -> None:
        self._send.close()
        self._batches.close()

    async def batch(self) -> set[Path]:
        return set(await self._batches.receive())

    async def until(self, *wanted: Path) -> set[Path]:
        """Gather batches until all of these were reported."""
        seen = set[Path]()
        while not seen >= set(wanted):
            seen |= await self.batch()
        return seen

    async def rest(self) -> list[frozenset[Path]]:
        """Stop, and gather what was not asked for."""
        self.stop.set()
        return [batch async for batch in self._batches]


def _is_there(folder: Path) -> bool:
    try:
        return folder.is_dir()
    except OSError:
        return False


@asynccontextmanager
async def _watching(*folders: Path, max_watched: int = 100) -> AsyncGenerator[Watching]:
    """A watch that stands; its first batch was taken."""
    watching = Watching(set(folders), anyio.Event())
    with anyio.fail_after(10), closing(watching):
        async with anyio.create_task_group() as group:
            group.start_soon(watching.run, max_watched)
            there = {folder for folder in folders if _is_there(folder)}
            assert not there or await watching.batch() == there
            await watching.stands()
            yield watching
            watching.stop.set()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "skills"
    folder.mkdir()
    return folder


def _rewrite(file: Path, text: str = "new") -> None:
    file.write_text(text, encoding="utf-8")


def _replace(file: Path) -> None:
    beside = file.with_name("SKILL.md~")
    beside.write_bytes(file.read_bytes())
    beside.replace(file)


def _rename_case(file: Path) -> None:
    file.rename(file.with_name("skill.md"))


def _same_size_and_time(file: Path) -> None:
    status = file.stat()
    file.write_bytes(file.read_bytes()[::-1])
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


CHANGES: list[Callable[[Path], None]] = [
    _rewrite,
    _replace,
    _rename_case,
    _same_size_and_time,
    Path.unlink,
]


@pytest.mark.parametrize("max_watched", [100, 0], ids=["notified", "polled"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
async def test_a_changed_skill_file_is_noticed(
    root: Path, change: Callable[[Path], None], max_watched: int
) -> None:
    pdf, other = make_skill(root, "pdf"), make_skill(root, "other")
    async with _watching(root, pdf, other, max_watched=max_watched) as watching:
        change(pdf / "SKILL.md")
        assert await watching.batch() == {pdf}


@pytest.mark.parametrize("max_watched", [100, 0], ids=["notified", "polled"])
async def test_a_new_skill_is_noticed_also_if_its_file_comes_a_moment_later(
    root: Path, max_watched: int
) -> None:
    async with _watching(root, max_watched=max_watched) as watching:
        new = root / "new"
        new.mkdir()
        assert await watching.batch() == {root}
        await watching.look_after(root, new)
        _rewrite(new / "SKILL.md")
        assert await watching.until(new) == {new}


async def test_a_file_written_before_its_folder_is_watched_is_not_lost(root: Path) -> None:
    async with _watching(root) as watching:
        new = make_skill(root, "new")
        assert await watching.batch() == {root}
        _rewrite(new / "SKILL.md")
        watching.folders = {root, new}
        assert await watching.until(new) == {new}


async def test_changes_during_a_batch_are_in_the_next_one(root: Path) -> None:
    one, two = make_skill(root, "one"), make_skill(root, "two")
    batches = watch(lambda: {one, two}, stop=anyio.Event(), debounce_ms=60)
    with anyio.fail_after(10):
        assert await anext(batches) == {one, two}
        _rewrite(one / "SKILL.md", "without a reader")
        assert await anext(batches) == {one}
        shutil.rmtree(two)
        make_skill(root, "two")
        assert await anext(batches) == {two}
    await batches.aclose()


async def test_a_folder_that_was_missing_during_a_scan_is_yielded_again(root: Path) -> None:
    pdf, last = root / "pdf", make_skill(root, "last")
    pdf.mkdir()
    inode = pdf.stat().st_ino
    batches = watch(lambda: {root, last}, stop=anyio.Event(), debounce_ms=60)
    with anyio.fail_after(10):
        assert await anext(batches) == {root, last}
        pdf.rename(root.with_name("away"))  # here a reader finds nothing
        root.with_name("away").rename(pdf)
        assert pdf.stat().st_ino == inode
        assert await anext(batches) == {root}
        _rewrite(root / ".vectorized")  # this one explains the folder's time
        _rewrite(last / "SKILL.md")
        assert await anext(batches) == {last}
    await batches.aclose()


@pytest.mark.parametrize("max_watched", [100, 0], ids=["notified", "polled"])
async def test_a_removed_skill_is_noticed(root: Path, max_watched: int) -> None:
    pdf = make_skill(root, "pdf")
    async with _watching(root, pdf, max_watched=max_watched) as watching:
        shutil.rmtree(pdf)
        assert await watching.until(root, pdf) == {root, pdf}


async def test_a_skill_moved_away_and_another_moved_in_are_noticed(
    root: Path, tmp_path: Path
) -> None:
    pdf = make_skill(root, "pdf")
    other = make_skill(tmp_path / "elsewhere", "pdf", description="Another one.")
    async with _watching(pdf) as watching:
        pdf.rename(tmp_path / "away")
        assert await watching.until(pdf) == {pdf}
        await watching.stands()
        other.rename(pdf)
        assert await watching.until(pdf) == {pdf}
        await watching.stands()
        _rewrite(pdf / "SKILL.md")
        assert await watching.until(pdf) == {pdf}


@pytest.mark.parametrize("max_watched", [100, 0], ids=["notified", "polled"])
async def test_a_root_that_comes_to_be_later_is_noticed(tmp_path: Path, max_watched: int) -> None:
    root = tmp_path / ".claude" / "skills"
    async with _watching(root, max_watched=max_watched) as watching:
        (tmp_path / "of-no-interest").mkdir()
        make_skill(root, "x")
        assert await watching.until(root) == {root}
        await watching.stands()
        shutil.rmtree(tmp_path / ".claude")
        assert await watching.until(root) == {root}
        await watching.stands()
        root.mkdir(parents=True)
        assert await watching.until(root) == {root}


async def test_a_root_that_comes_step_by_step_is_noticed(tmp_path: Path) -> None:
    root, beside = tmp_path / "a/b/skills", tmp_path / "beside"
    beside.mkdir()
    async with _watching(root, beside) as watching:
        for step, folder in enumerate((tmp_path / "a", tmp_path / "a/b", root)):
            folder.mkdir()
            (beside / f"step-{step}").mkdir()  # reported, so that the step before it was seen
            await watching.until(beside, *([root] if folder == root else []))
            await watching.stands()


async def test_a_file_in_the_place_of_a_root_is_no_root_until_it_is_a_folder(
    tmp_path: Path,
) -> None:
    root, beside = tmp_path / "skills", tmp_path / "beside"
    beside.mkdir()
    root.write_text("a file", encoding="utf-8")
    async with _watching(root, beside) as watching:
        (beside / "new").mkdir()
        assert await watching.batch() == {beside}
        await watching.stands()
        root.unlink()
        root.mkdir()
        assert await watching.batch() == {root}


async def test_other_files_and_skipped_folders_are_not_yielded(root: Path) -> None:
    pdf, last = make_skill(root, "pdf"), make_skill(root, "last")
    async with _watching(root, pdf, last) as watching:
        for name in (".vectorized", "notes.md", "SKILL.md.swp", "SKILL.md~"):
            _rewrite(pdf / name)
        for name in (".staging", ".git", "node_modules", "__pycache__"):
            (root / name).mkdir()
            (pdf / name).mkdir()
        (root / "dangling").symlink_to("nowhere")
        (root / "loop").symlink_to("loop")
        _rewrite(last / "SKILL.md")
        assert await watching.batch() == {last}
        assert await watching.rest() == []


async def test_deeper_folders_are_not_watched(root: Path) -> None:
    pdf, last = make_skill(root, "pdf"), make_skill(root, "last")
    (pdf / "node_modules/x").mkdir(parents=True)
    async with _watching(root, pdf, last) as watching:
        _rewrite(pdf / "node_modules/x/SKILL.md")
        _rewrite(last / "SKILL.md")
        assert await watching.batch() == {last}


async def test_mass_changes_come_in_few_batches(root: Path) -> None:
    async with _watching(root, max_watched=1_000) as watching:
        skills = [make_skill(root, f"s{number}") for number in range(500)]
        assert await watching.batch() == {root}
        await watching.look_after(root, *skills)
        for skill in skills:
            _rewrite(skill / "SKILL.md", "checked out")
        count, reported = 0, set[Path]()
        while reported < set(skills):
            reported |= await watching.batch()
            count += 1
        assert reported == set(skills)
        assert count < 50


async def test_folders_beyond_the_limit_are_polled_and_that_is_logged_once(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    skills = [make_skill(root, f"s{number}") for number in range(6)]
    async with _watching(root, *skills, max_watched=3) as watching:
        for skill in skills:
            _rewrite(skill / "SKILL.md")
            assert await watching.until(skill) == {skill}
            await watching.stands()
    assert [record.getMessage() for record in caplog.records] == [
        "4 folders are polled once a second"
    ]


async def test_one_folder_with_two_paths_is_yielded_under_both(root: Path) -> None:
    pdf = make_skill(root, "pdf")
    (root / "link").symlink_to(pdf)
    async with _watching(pdf, root / "link") as watching:
        _rewrite(pdf / "SKILL.md")
        assert await watching.until(pdf, root / "link") == {pdf, root / "link"}


async def test_a_link_that_leads_elsewhere_is_noticed(root: Path, tmp_path: Path) -> None:
    one, two = make_skill(tmp_path, "one"), make_skill(tmp_path, "two")
    link = root / "link"
    link.symlink_to(one)
    async with _watching(root, link) as watching:
        (root / "new").symlink_to(two)
        assert await watching.until(root) == {root}
        await watching.stands()
        (root / "new").replace(link)
        assert await watching.until(link, root) == {link, root}
        await watching.stands()
        _rewrite(two / "SKILL.md")
        assert await watching.until(link) == {link}


@pytest.mark.parametrize("max_watched", [100, 0], ids=["notified", "polled"])
async def test_a_dangling_link_in_place_of_the_file_breaks_nothing(
    root: Path, max_watched: int
) -> None:
    pdf = make_skill(root, "pdf")
    async with _watching(pdf, max_watched=max_watched) as watching:
        (pdf / "SKILL.md").unlink()
        (pdf / "SKILL.md").symlink_to("nowhere")
        assert await watching.until(pdf) == {pdf}


async def test_names_that_are_no_text_break_nothing(root: Path) -> None:
    pdf = make_skill(root, "pdf")
    odd = make_skill(root, os.fsdecode(b"odd-\xff"), raw=b"x")
    async with _watching(root, pdf, odd) as watching:
        Path(os.fsdecode(os.fsencode(pdf) + b"/\xfe\xff")).write_bytes(b"")
        await watching.stands_again()
        _rewrite(pdf / "SKILL.md")
        assert await watching.until(pdf) == {pdf}
        await watching.stands()
        _rewrite(odd / "SKILL.md")
        assert await watching.until(odd) == {odd}
        await watching.stands()
        (root / "new").mkdir()
        assert await watching.until(root) == {root}


async def test_a_path_that_cannot_be_one_is_no_folder(root: Path) -> None:
    async with _watching(root, Path("a\0b"), Path("/" + "x" * 5_000)) as watching:
        (root / "new").mkdir()
        assert await watching.batch() == {root}


async def test_a_working_folder_that_is_gone_breaks_nothing(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    async with _watching(root, Path("skills")) as watching:
        (root / "new").mkdir()
        assert await watching.batch() == {root}


async def test_without_folders_it_waits_for_some(root: Path) -> None:
    async with _watching() as watching:
        await watching.look_after(root)
        (root / "new").mkdir()
        assert await watching.batch() == {root}


async def test_it_stops_on_the_event_and_on_cancellation(root: Path) -> None:
    stop = anyio.Event()
    stop.set()
    with anyio.fail_after(5):
        assert [batch async for batch in watch(lambda: {root}, stop=stop)] == []
        async with _watching(root) as watching:
            assert await watching.rest() == []
        other = Watching({root}, anyio.Event())
        async with anyio.create_task_group() as group:
            group.start_soon(other.run, 10)
            assert await other.batch() == {root}
            group.cancel_scope.cancel()
        other.close()


async def test_what_the_caller_gets_wrong_is_not_hidden(root: Path) -> None:
    def broken() -> set[Path]:
        raise LookupError("which folders?")

    with anyio.fail_after(5), pytest.raises(LookupError):
        await anext(watch(broken, stop=anyio.Event()))


POOR = """
import logging, resource, sys
from pathlib import Path
import anyio
from apexbridge.sources.file_watcher import watch

logging.basicConfig(level=logging.WARNING, format="log %(message)s", stream=sys.stdout)

async def main():
    stop, pdf, root = anyio.Event(), *map(Path, sys.argv[1:])
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.to_thread.run_sync, int)  # the thread is there before it is scarce
    if {is_poor_from_the_start}:
        spend()
    count, batches = 0, watch(lambda: {{pdf, root}}, stop=stop, debounce_ms=60)
    async for batch in batches:
        print(*sorted(path.name for path in batch), flush=True)
        spend()
        count += 1
        if count == 4:
            break
    await batches.aclose()
    resource.setrlimit(resource.RLIMIT_NOFILE, ENOUGH)

ENOUGH = resource.getrlimit(resource.RLIMIT_NOFILE)

def spend():
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, ENOUGH[1]))

anyio.run(main)
"""


@pytest.mark.parametrize("is_poor_from_the_start", [True, False], ids=["before", "later"])
async def test_without_file_descriptors_folders_are_polled_and_that_is_logged_once(
    root: Path, is_poor_from_the_start: bool
) -> None:
    pdf = make_skill(root, "pdf")
    code = POOR.format(is_poor_from_the_start=is_poor_from_the_start)
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(pdf), str(root)],
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    assert child.stdout is not None
    lines = list[str]()

    async def line() -> str:
        assert child.stdout is not None
        text = await anyio.to_thread.run_sync(child.stdout.readline, abandon_on_cancel=True)
        if text.startswith("log "):
            lines.append(text)
            return await line()
        return text.strip()

    try:
        with anyio.fail_after(20):
            assert await line() == "pdf skills"
            _rewrite(pdf / "SKILL.md")
            assert await line() == "pdf"
            (root / "new").mkdir()
            assert await line() == "skills"
            _replace(pdf / "SKILL.md")
            assert await line() == "pdf"
            assert await anyio.to_thread.run_sync(child.wait) == 0
    finally:
        child.kill()
        child.communicate()
    assert len(lines) == 1
    assert "polling once a second" in lines[0]
