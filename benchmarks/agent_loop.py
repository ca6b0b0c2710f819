"""Overhead of the agent loop in a turn with one tool call, and memory of a conversation."""

import gc
import os
import sqlite3
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, replace
from pathlib import Path

import anyio

from apexbridge.messages import ToolCall, UserMessage
from apexbridge.models.base import ModelDelta, ModelRequest
from apexbridge.runtime import Runtime
from apexbridge.settings import load
from apexbridge.testing import EventLog, ScriptedModel, make_skill
from apexbridge.tools.base import PathScope, SubagentRequest, ToolContext

SIZES = (100, 10_000)
FOLDER = 1_000
"""Skills in one folder; at most two thousand are scanned."""
ROUNDS = 60
LONG = 50
"""Turns in the history of a long conversation."""
SESSIONS = 400
BARE = "model and tool, bare"
LIMIT = "the same, and a durable commit"
"""Lower bound of any agent loop that persists conversations."""
COMMIT_CHARS = 2_000
REQUEST = "How much is six times seven?"
CALL = ToolCall(id="1", name="Calculate", arguments='{"expression": "6 * 7"}')
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnTime:
    """Wall time of a turn without the model's, and the part of it in search."""

    whole: float
    search: float = 0.0

    @property
    def loop(self) -> float:
        """Time in neither the model nor the search."""
        return self.whole - self.search


Subject = Callable[[], Awaitable[TurnTime]]


def main() -> None:
    """Print the tables."""
    anyio.run(_main)


async def _main() -> None:
    print(f"\nA turn with one tool call, {ROUNDS} interleaved rounds, without the model's time")
    print("(goal: the loop below 3 ms, the same for any number of skills; search is apart)")
    async with AsyncExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        contenders: dict[str, Subject] = {}
        houses = list[Runtime]()
        for size in SIZES:
            runtime = await stack.enter_async_context(_runtime(place / str(size), size))
            houses.append(runtime)
            contenders |= await _contenders(runtime, size)
        disk = stack.enter_context(closing(_disk(place / "limit.db")))
        contenders = {
            BARE: lambda: _bare(houses[0]),
            LIMIT: lambda: _bare(houses[0], disk),
            **contenders,
        }
        _print(await _rounds(contenders))
        print(f"\nMemory, {SESSIONS:,} conversations of one turn")
        for size, runtime in zip(SIZES, houses, strict=True):
            print(f"{size:>7,} skills{await _memory(runtime):>10.1f} KiB a conversation")


@asynccontextmanager
async def _runtime(place: Path, size: int) -> AsyncGenerator[Runtime]:
    """Open a runtime with so many skills, warmed up by one turn."""
    for number in range(size):
        text = f"Handles case {number} of kind {number % 97}: converts, checks and reports it."
        make_skill(place / f"home/{number // FOLDER}", f"skill-{number}", description=text)
    (place / "project").mkdir(parents=True)
    folders = [f"~/{number}" for number in range(-(-size // FOLDER))]
    environment = {
        "HOME": str(place / "home"),
        "APEXBRIDGE_SKILLS__USER_PATHS": ":".join(folders),
        "APEXBRIDGE_INDEX__EMBEDDER": "hash",
    }
    loaded = load(project=place / "project", environment=environment)
    async with Runtime.open(loaded) as runtime:
        if len(runtime.catalog.skills) < size:
            raise SystemExit("not all skills were found")
        scripted = ScriptedModel(_replies())
        runtime.chat_service.model = replace(runtime.chat_service.model, client=scripted)
        await _turn(runtime, "warm")
        yield runtime


def _replies() -> Iterator[list[ModelDelta]]:
    while True:
        yield [ModelDelta(tool_calls=(CALL,))]
        yield [ModelDelta(text="It is 42.")]


async def _turn(runtime: Runtime, session: str) -> TurnTime:
    start, turn = time.perf_counter(), ""
    async for event in runtime.chat(REQUEST, session=session):
        turn = getattr(event, "turn_id", turn)
    whole = time.perf_counter() - start
    record = runtime.chat_service.store.turn(turn) or {}
    client = runtime.chat_service.model.client
    if isinstance(client, ScriptedModel):
        client.requests.clear()
    if [call["tool"] for call in record["calls"]] != ["Calculate"]:
        raise SystemExit(f"the turn went another way: {record}")
    return TurnTime(whole=whole - record["model_seconds"], search=record["search_seconds"])


async def _contenders(runtime: Runtime, size: int) -> dict[str, Subject]:
    numbers = iter(range(1_000_000))
    for _ in range(LONG):
        await _turn(runtime, "long")
    return {
        f"{size:,} skills, first turn": lambda: _turn(runtime, f"new-{next(numbers)}"),
        f"{size:,} skills, after {LONG} turns": lambda: _turn(runtime, "long"),
    }


def _disk(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE turns (record TEXT)")
    return connection


async def _bare(runtime: Runtime, disk: sqlite3.Connection | None = None) -> TurnTime:
    """Replay the same replies and the same tool call without a loop."""
    client, tool = runtime.chat_service.model.client, runtime.chat_service.registry.get(CALL.name)
    if tool is None:
        raise SystemExit("there is no such tool")
    folder = runtime.config.project
    context = ToolContext(
        session_id="bare",
        call_id=CALL.id,
        cwd=folder,
        emit=EventLog(),
        spawn=_no_child,
        scope=PathScope(read=(folder,)),
    )
    asked = ModelRequest(model="scripted", messages=(UserMessage(text=REQUEST),))
    start = time.perf_counter()
    for _ in range(2):
        async with client.stream(asked) as deltas:
            async for delta in deltas:
                if delta.tool_calls:
                    await tool.call({"expression": "6 * 7"}, context)
    if disk is not None:
        with disk:
            disk.execute("INSERT INTO turns VALUES (?)", ("x" * COMMIT_CHARS,))
    return TurnTime(whole=time.perf_counter() - start)


async def _no_child(_: SubagentRequest) -> str:
    return ""


async def _rounds(contenders: Mapping[str, Subject]) -> dict[str, list[TurnTime]]:
    times: dict[str, list[TurnTime]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, run in contenders.items():
            times[name].append(await run())
    return times


def _print(times: Mapping[str, list[TurnTime]]) -> None:
    limit = min(span.loop for span in times[LIMIT])
    print(f"{'ms':34}{'loop min':>10}{'x limit':>9}{'median':>9}{'search':>9}{'whole':>9}")
    for name, spans in times.items():
        least = min(span.loop for span in spans)
        middle = [
            statistics.median(getattr(span, what) for span in spans)
            for what in ("loop", "search", "whole")
        ]
        row = f"{name:34}{least * 1e3:>10.2f}{least / limit:>9.1f}"
        print(row + "".join(f"{value * 1e3:>9.2f}" for value in middle))


async def _memory(runtime: Runtime) -> float:
    gc.collect()
    before = _resident()
    for number in range(SESSIONS):
        await _turn(runtime, f"kept-{number}")
    gc.collect()
    return (_resident() - before) / SESSIONS / 1024


def _resident() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * _PAGE
