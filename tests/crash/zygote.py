"""Interrupts operations in forks of one process that has loaded everything: zygote.py PLACE.

Reads one order a line, `{"operation", "fault", "at", "call"}`, and answers each with one line:
what is wrong afterwards, or the moments of the operation if there is no fault. With a `call` the
moments are system calls, counted and interrupted by strace; else they are what Python tells.
"""

import gc
import json
import logging
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import anyio
import anyio.to_thread

from apexbridge import paths
from apexbridge.errors import StorageError
from apexbridge.extensions import Extensions
from apexbridge.lifecycle.fsck import Invariant
from apexbridge.runtime import Runtime, source_factory
from apexbridge.runtime.fsck import check_data_dir
from apexbridge.sources.bundled import BundledSource
from tests.crash.fault_injection import Order, Outcome, Points
from tests.crash.operations import NAME, OPERATIONS, Operation, State, loaded_at, look, prepare
from tests.crash.strace import Trace, allow_watching, nothing, tracing

Value = TypeVar("Value")


async def _in_place(function: Callable[..., Value], *arguments: Any, **_: Any) -> Value:
    """Instead of a thread: so that moments have an order, and counts are exact."""
    return function(*arguments)


def warm_up(place: Path) -> None:
    """Do everything once, so that all is imported before the first fork."""
    logging.disable()  # what is ignored on purpose is logged, hundreds of times
    anyio.to_thread.run_sync = _in_place
    (place / "none").mkdir(parents=True)

    def without_skills(_: Path | None = None) -> BundledSource:
        return BundledSource(package=place / "none")

    # To read those that ship with us would take longer than all the rest.
    source_factory.BundledSource = without_skills
    anyio.run(prepare, OPERATIONS["update"], place)
    anyio.run(restart, place)
    gc.collect()
    gc.freeze()  # pages that no collection touches are shared with the forks


ALWAYS: tuple[Invariant, ...] = ("I1", "I2", "I5")
"""What is true at every moment; the others are made true by a start."""
Tell = Callable[[object], None]
Pause = Callable[[], None]
Work = Callable[[Tell, Pause], None]


def in_fork(work: Work, watch: Callable[[int], None] | None = None) -> Any:
    """Run a function in a forked child; return its result, or None if it was killed.

    With `watch`, the process stops where it pauses until `watch` has returned for its number.
    """
    reading, writing = os.pipe()
    ready_in, ready_out = os.pipe()
    waiting, going = os.pipe()
    child = os.fork()
    if not child:
        for descriptor in (reading, ready_in, going):
            os.close(descriptor)

        def pause() -> None:
            allow_watching()
            os.close(ready_out)
            _read(waiting)

        _live(work, lambda reported: _write_all(writing, json.dumps(reported).encode()), pause)
    for descriptor in (writing, ready_out, waiting):
        os.close(descriptor)
    _read(ready_in)
    if watch is not None:
        watch(child)
    os.close(going)
    reported = _read(reading)
    os.waitpid(child, 0)
    return json.loads(reported) if reported else None


def _live(work: Work, tell: Tell, pause: Pause) -> NoReturn:
    """Nothing of a fork may go on in its parent's name."""
    try:
        work(tell, pause)
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    os._exit(0)


_write, _read_some = os.write, os.read


def _write_all(descriptor: int, data: bytes) -> None:
    """Write with the uncounted `os.write`."""
    while data:
        data = data[_write(descriptor, data) :]


def _read(descriptor: int) -> bytes:
    """All there will be; the descriptor is closed then."""
    parts = list[bytes]()
    while part := _read_some(descriptor, 65_536):
        parts.append(part)
    os.close(descriptor)
    return b"".join(parts)


class Ground:
    """Prepared folders, one for each operation, and a place where copies of them are used up."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._work = place / "work"
        self._before: dict[str, State] = {}
        self._after: dict[str, State] = {}
        self._moments: dict[str, tuple[str, ...]] = {}

    def copy(self, name: str) -> Path:
        """A fresh copy of what there is before an operation; always at the same path."""
        base = self._place / name
        if not base.exists():
            in_fork(lambda _tell, _pause: anyio.run(self._prepare, name))
        shutil.rmtree(self._work, ignore_errors=True)
        shutil.copytree(base, self._work, symlinks=True)
        return self._work

    async def _prepare(self, name: str) -> None:
        shutil.rmtree(self._work, ignore_errors=True)
        self._work.mkdir(parents=True)
        await prepare(OPERATIONS[name], self._work)
        self._work.rename(self._place / name)

    def learn(self, name: str, *, by_calls: bool = False) -> tuple[str, ...]:
        """Let an operation end well; the moments it came by."""
        key = f"{name} {by_calls}"
        if key not in self._moments:
            work = self.copy(name)
            self._before[name] = look(work)
            with tracing(self._place / "calls") if by_calls else nothing() as trace:
                outcome = self._act(Order(operation=name), trace)
            assert outcome.ended == "done", outcome
            self._after[name] = look(work)
            self._moments[key] = tuple(trace.calls()) if trace else outcome.seen
        return self._moments[key]

    def _act(self, order: Order, trace: Trace | None = None) -> Outcome:
        reported = in_fork(
            lambda tell, pause: anyio.run(act, order, self._work, tell, pause),
            trace.attach if trace else None,
        )
        return Outcome(**reported) if reported else Outcome(ended="")

    def interrupt(self, order: Order) -> Outcome:
        """Interrupt an operation at one moment; how it ended, and what is wrong afterwards."""
        name = order.operation
        if name not in self._after:
            self.learn(name)
        self.copy(name)
        by_calls = bool(order.call)
        with tracing(self._place / "calls", order) if by_calls else nothing() as trace:
            outcome = self._act(order, trace)
        wrong = (*outcome.wrong, *self.judge(order, outcome))
        return Outcome(ended=outcome.ended, wrong=wrong)

    def judge(self, order: Order, outcome: Outcome) -> list[str]:
        """Restart, and compare the state with the allowed states."""
        name = order.operation
        before, after = self._before[name], self._after[name]
        is_killed = order.fault == "kill" and not OPERATIONS[name].is_portable
        reported = in_fork(lambda tell, _: tell(anyio.run(restart, self._work, is_killed)))
        wrong = ["a start fails"] if reported is None else list[str](reported)
        now = look(self._work)
        if now.skills not in {before.skills, after.skills}:
            wrong.append(f"neither the old nor the new state: {now.skills}")
        if outcome.ended == "done" and now.skills != after.skills:
            wrong.append(f"I7: reported done, and then gone: {now.skills}")
        if lost := (before.hashes & after.hashes) - now.hashes:
            wrong.append(f"lost: {sorted(lost)}")
        return wrong


async def act(order: Order, work: Path, tell: Tell, pause: Pause) -> None:
    """Do the operation, with a fault at a moment; where it failed, once more without."""
    operation, before = OPERATIONS[order.operation], look(work)
    points = Points(order.fault, order.at)
    if not order.call:
        points.install()
    if operation.is_portable:
        paths._renameat2 = _not_here  # pyright: ignore[reportPrivateUsage]
    ended, wrong = "done", list[str]()

    def begin() -> None:
        pause()
        points.is_armed = True

    try:
        if operation.includes_start:
            begin()
        async with Runtime.open(loaded_at(work), extensions=Extensions()) as runtime:
            if not operation.includes_start:
                begin()
            await operation.act(runtime, work)
            points.is_armed = False
            if order.fault == "kill":  # as soon as it is reported done, before anything is closed
                tell(asdict(Outcome(ended=ended, seen=tuple(points.seen))))
                os.kill(os.getpid(), signal.SIGKILL)
    except StorageError as error:
        ended = error.code
    except Exception as error:  # noqa: BLE001  # whatever else comes out is a finding
        ended = type(error).__name__
        wrong.append(f"not our error: {error!r} {_where(error)}")
    points.is_armed = False
    if ended != "done":
        wrong += await _try_again(operation, work, before)
    tell(asdict(Outcome(ended=ended, seen=tuple(points.seen), wrong=tuple(wrong))))


def _not_here() -> None:
    """As on a system without it."""


def _where(error: BaseException) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "apexbridge" in f.filename]
    return " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(frames[-5:]))


async def _try_again(operation: Operation, work: Path, before: State) -> list[str]:
    """I6: what failed changed nothing, and nothing of it stands in the way."""
    now, wrong = look(work), list[str]()
    changed = [k for k, v in asdict(now).items() if v != asdict(before)[k]]
    if changed and not operation.includes_start:
        wrong.append(f"I6: it failed, and changed {changed}")
    try:
        async with Runtime.open(loaded_at(work), extensions=Extensions()) as runtime:
            await operation.act(runtime, work)
    except Exception as error:  # noqa: BLE001  # whatever comes out is a finding
        wrong.append(f"a second attempt fails: {error!r} {_where(error)}")
    return wrong


async def restart(work: Path, is_killed: bool = False) -> list[str]:
    """What a start finds, and what a check finds after it; of some invariants, before it too."""
    loaded, wrong = loaded_at(work), list[str]()
    if is_killed:
        found = await check_data_dir(loaded)
        wrong += [
            f"{n} before the start: {p.message}" for n in ALWAYS for p in found.get(n).violations
        ]
    async with Runtime.open(loaded, extensions=Extensions()) as runtime:
        await runtime.index_service.index()
        listed = runtime.catalog.snapshot.winner(NAME) is not None
        is_there = (work / "data/skills" / NAME).is_dir()
        wrong += [] if listed == is_there else [f"listed {listed}, there {is_there}"]
    found = await check_data_dir(loaded)
    return [*wrong, *(f"{p.code}: {p.message}" for p in found.violations)]


def serve(place: Path) -> None:
    """Answer orders until there are no more."""
    warm_up(place / "warm")
    ground = Ground(place)
    for line in sys.stdin:
        order = Order(**json.loads(line))
        if order.fault == "none":
            answer = ground.learn(order.operation, by_calls=bool(order.call))
        else:
            answer = asdict(ground.interrupt(order))
        print(json.dumps(answer), flush=True)  # noqa: T201


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        serve(Path(sys.argv[1]))
