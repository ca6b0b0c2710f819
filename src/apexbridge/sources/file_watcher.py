"""Watch skill folders with inotify (watchfiles) and polling, and report those to scan again.

An event is only a hint where to look: what counts is the difference between two snapshots of a
folder. So no change between two watches is lost, and events of other files are ignored. A watch is
renewed every 30 s, because a path may lead to another folder by then, and network file systems send
no events.
"""

import errno
import logging
import os
import stat
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import anyio
import anyio.to_thread
from watchfiles._rust_notify import RustNotify

from apexbridge.skills.document import SKILL_MD
from apexbridge.sources.directory_scanner import is_scannable_folder

_NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})

FileState = tuple[str, int, int, int, int]


class WatchTarget(NamedTuple):
    """The folder to watch for a requested one: itself, or its nearest existing parent."""

    path: Path
    device: int
    inode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderSnapshot:
    """Stat results of a folder and of its SKILL.md."""

    target: WatchTarget | None
    exists: bool = False
    mtime: int = 0
    skill_files: tuple[FileState, ...] = ()
    folders: int = 0
    """Hash of the names and inodes of its sub-folders; not the names, which may be very many."""
    others: int = 0
    """The same of all other entries."""

    def differs(self, before: "FolderSnapshot | None", *, was_read: bool) -> bool:
        """Return whether the folder should be scanned again.

        A scan in between may have missed a sub-folder that is back now, even with the same inode.
        Only the folder's mtime tells, if no other entry explains it.
        """
        if before is None or not (self.exists and before.exists):
            return self.exists or (before is not None and before.exists)
        if (self.target, self.skill_files) != (before.target, before.skill_files):
            return True
        is_unexplained = self.mtime != before.mtime and self.others == before.others
        return self.folders != before.folders or (was_read and is_unexplained)


def watch_target(folder: Path) -> tuple[WatchTarget | None, int]:
    """Find the folder to watch and its mtime."""
    whole = _absolute(folder)
    for path in (whole, *whole.parents):
        try:
            status = path.stat()
        except (OSError, ValueError):
            continue
        if stat.S_ISDIR(status.st_mode):
            return WatchTarget(path, status.st_dev, status.st_ino), status.st_mtime_ns
    return None, 0


def _absolute(folder: Path) -> Path:
    try:
        return folder.absolute()
    except OSError:  # the working directory was removed
        return folder


def take_snapshot(folder: Path, before: FolderSnapshot | None) -> FolderSnapshot:
    """Take a snapshot; the previous one helps if no file descriptor is left to list the folder."""
    target, mtime = watch_target(folder)
    if target is None or target.path != _absolute(folder):
        return FolderSnapshot(target=target)
    files, folders, others = list[FileState](), list[tuple[str, int]](), list[tuple[str, int]]()
    try:
        with os.scandir(folder) as items:
            for item in items:
                if item.name.lower() == SKILL_MD.lower():
                    files.append(_file_state(folder / item.name))
                else:
                    group = folders if is_scannable_folder(item) else others
                    group.append((item.name, item.inode()))
    except OSError as error:
        if error.errno in _NO_DESCRIPTORS:
            return _snapshot_without_listing(folder, target, mtime, before)
        folders = [("", error.errno or 0)]
    return FolderSnapshot(
        target=target,
        exists=True,
        mtime=mtime,
        skill_files=tuple(sorted(files)),
        folders=hash(frozenset(folders)),
        others=hash(frozenset(others)),
    )


def _snapshot_without_listing(
    folder: Path, target: WatchTarget, mtime: int, before: FolderSnapshot | None
) -> FolderSnapshot:
    """Compare times alone: without a free file descriptor (EMFILE) a folder cannot be listed."""
    names = [state[0] for state in before.skill_files] if before else []
    states = [_file_state(folder / name) for name in names or [SKILL_MD]]
    is_same = before is not None and before.mtime == mtime
    return FolderSnapshot(
        target=target,
        exists=True,
        mtime=mtime,
        skill_files=tuple(state for state in states if any(state[1:])),
        folders=before.folders if before is not None and is_same else mtime,
    )


def _file_state(path: Path) -> FileState:
    """Return what identifies a file's version; zeros if it is gone."""
    try:
        status = path.stat()
    except OSError:
        try:
            status = path.lstat()
        except OSError:
            return path.name, 0, 0, 0, 0
    return path.name, status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


_log = logging.getLogger(__name__)

_TICK_SECONDS = 1.0
_REARM_SECONDS = 30.0
_POLL_BACKOFF = 10
"""Polling pauses ten times as long as it took, so that slow disks do not keep a core busy."""
_STEP_MS = 50

Result = TypeVar("Result")
Folders = Callable[[], Collection[Path]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """Folders watched by inotify, and folders that are polled."""

    targets: dict[Path, WatchTarget | None]
    notified: dict[str, list[Path]]
    """Watched folder, and the requested folders that it stands for."""
    polled: frozenset[Path]


class _Hints(NamedTuple):
    """Result of a wait: folders to compare, and those whose SKILL.md had an event."""

    hinted: frozenset[Path] = frozenset()
    touched: frozenset[Path] = frozenset()


class _Comparison(NamedTuple):
    """Changed folders, and whether a path leads to another folder than the one watched."""

    changed: frozenset[Path]
    is_stale: bool


async def watch(
    folders: Folders, *, stop: anyio.Event, debounce_ms: int = 100, max_watched: int = 4_096
) -> AsyncGenerator[frozenset[Path]]:
    """Yield the folders to scan again, until stopped.

    The first batch names every folder, because what was read of it before may be stale. A folder
    that does not exist yet is yielded when it is created. `folders` is called after each batch and
    about once a second. No watch is held while a batch is processed. Beyond `max_watched`, or where
    inotify is refused, folders are polled about once a second.
    """
    lookout = _Watcher(stop, debounce_ms, max_watched)
    while changed := await lookout.next_batch(folders):
        yield changed


class _Watcher:
    """Snapshot of every folder as it was last reported."""

    def __init__(self, stop: anyio.Event, debounce_ms: int, max_watched: int) -> None:
        self._stop = stop
        self._debounce_ms = max(debounce_ms, 1)
        self._max_watched = max_watched
        self._snapshots = dict[Path, FolderSnapshot]()
        # A separate limiter: a thread that waits all day must not occupy a shared worker.
        self._limiter = anyio.CapacityLimiter(1)
        self._logged = set[str]()
        self._next_poll = 0.0
        self._was_read = False
        self._is_cancelled = False

    def is_set(self) -> bool:
        """Stop flag in the form that watchfiles polls, about twenty times a second."""
        return self._is_cancelled or self._stop.is_set()

    async def next_batch(self, folders: Folders) -> frozenset[Path]:
        """Wait for changed folders; an empty set means stopped."""
        while not self._stop.is_set():
            requested = frozenset(folders())
            if changed := await self._watch_round(requested, folders):
                self._was_read = True
                return changed
        return frozenset()

    async def _watch_round(self, requested: frozenset[Path], folders: Folders) -> frozenset[Path]:
        self._snapshots = {
            path: snapshot for path, snapshot in self._snapshots.items() if path in requested
        }
        plan = await self._in_thread(lambda: _plan(requested, self._max_watched))
        watcher = await self._in_thread(lambda: self._open_watch(plan))
        try:
            # After the watch is set up: later changes cause events, earlier ones show here.
            comparison = await self._compare_due(plan, _Hints(requested), requested)
            self._was_read = False
            end = time.monotonic() + _REARM_SECONDS
            while not (comparison.changed or comparison.is_stale or self._stop.is_set()):
                if time.monotonic() > end or frozenset(folders()) != requested:
                    break
                if (hints := await self._wait(watcher, plan)) is None:
                    break
                comparison = await self._compare_due(
                    plan, hints, plan.polled if watcher else requested
                )
        finally:
            if watcher is not None:
                watcher.close()
        return comparison.changed

    def _open_watch(self, plan: _Plan) -> RustNotify | None:
        if plan.polled:
            self._log_once("polled", "%d folders are polled once a second", len(plan.polled))
        if not plan.notified:
            return None
        try:
            # With ignore_permission_denied it would ignore all other errors too.
            return RustNotify(
                list(plan.notified),
                debug=False,
                force_polling=False,
                poll_delay_ms=0,
                recursive=False,
                ignore_permission_denied=False,
            )
        except FileNotFoundError:
            return None  # deleted just now: the next snapshot shows that
        except (OSError, RuntimeError) as error:
            self._log_once(
                "refused", "file system events are not available, polling once a second: %s", error
            )
            return None

    def _log_once(self, what: str, text: str, *values: object) -> None:
        if what not in self._logged:
            self._logged.add(what)
            _log.warning(text, *values)

    async def _wait(self, watcher: RustNotify | None, plan: _Plan) -> _Hints | None:
        """Wait at most one second; None if the watch failed and must be renewed."""
        if watcher is None:
            with anyio.move_on_after(_TICK_SECONDS):
                await self._stop.wait()
            return _Hints()
        self._is_cancelled = False
        events: set[tuple[int, str]] | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(self._stop_on_cancel)
            events = await self._in_thread(lambda: self._read_events(watcher))
            group.cancel_scope.cancel()
        return None if events is None else _hinted_folders(plan, (path for _, path in events))

    async def _stop_on_cancel(self) -> None:
        """Set the stop flag on cancellation: a thread itself cannot be cancelled."""
        try:
            await anyio.sleep_forever()
        finally:
            self._is_cancelled = True

    def _read_events(self, watcher: RustNotify) -> set[tuple[int, str]] | None:
        step = min(_STEP_MS, self._debounce_ms)
        try:
            events = watcher.watch(self._debounce_ms, step, int(_TICK_SECONDS * 1000), self)
        except (OSError, RuntimeError) as error:  # for example a file name that is not UTF-8
            _log.debug("the watch failed: %s", error)
            return None
        return set() if isinstance(events, str) else events

    async def _compare_due(
        self, plan: _Plan, hints: _Hints, polled: frozenset[Path]
    ) -> _Comparison:
        """Compare the hinted folders and, if a poll is due, the polled ones."""
        began = time.monotonic()
        due = polled if began >= self._next_poll else frozenset[Path]()
        if not (hints.hinted or due):
            return _Comparison(frozenset(), is_stale=False)
        comparison = await self._in_thread(
            lambda: self._compare(plan, hints._replace(hinted=hints.hinted | due))
        )
        if due:
            now = time.monotonic()
            self._next_poll = now + max(_TICK_SECONDS / 2, _POLL_BACKOFF * (now - began))
        return comparison

    def _compare(self, plan: _Plan, hints: _Hints) -> _Comparison:
        changed, is_stale = set[Path](), False
        for folder in hints.hinted:
            before = self._snapshots.get(folder)
            snapshot = take_snapshot(folder, before)
            self._snapshots[folder] = snapshot
            is_stale = is_stale or snapshot.target != plan.targets[folder]
            # Two writes within one tick of the file system's clock have equal stat results.
            is_changed = snapshot.differs(before, was_read=self._was_read)
            if is_changed or (snapshot.exists and folder in hints.touched):
                changed.add(folder)
        return _Comparison(frozenset(changed), is_stale)

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        return await anyio.to_thread.run_sync(work, limiter=self._limiter)


def _plan(requested: Iterable[Path], max_watched: int) -> _Plan:
    """Assign inotify watches to upper folders first, where new skills appear."""
    targets = {folder: watch_target(folder)[0] for folder in requested}
    notified, polled = dict[str, list[Path]](), list[Path]()
    by_node = dict[tuple[int, int], str]()
    for folder in sorted(targets, key=lambda path: (len(path.parts), path)):
        target = targets[folder]
        node = target[1:] if target else (0, 0)
        # inotify reports one name only if two paths lead to the same inode.
        path = by_node.get(node) or (_inotify_path(target.path) if target else None)
        if path is None or (path not in notified and len(notified) >= max_watched):
            polled.append(folder)
            continue
        by_node[node] = path
        notified.setdefault(path, []).append(folder)
    return _Plan(targets=targets, notified=notified, polled=frozenset(polled))


def _inotify_path(folder: Path) -> str | None:
    """Return the path that events will carry; None if the folder cannot be watched."""
    try:
        path = os.path.realpath(folder)
        path.encode()
    except (OSError, UnicodeEncodeError):
        return None
    return path if os.access(path, os.R_OK) else None


def _hinted_folders(plan: _Plan, paths: Iterable[str]) -> _Hints:
    """Map event paths to the requested folders."""
    hinted, touched = set[Path](), set[Path]()
    for path in paths:
        parent, _, name = path.rpartition(os.sep)
        inside = plan.notified.get(parent or os.sep, [])
        hinted.update(inside, plan.notified.get(path, []))
        if name.lower() == SKILL_MD.lower():
            touched.update(inside)
    return _Hints(frozenset(hinted), frozenset(touched))
