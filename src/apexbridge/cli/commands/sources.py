"""`sources`: where skills come from, what came of reading them, and what remote ones became."""

import difflib
from collections.abc import Sequence

import anyio

from apexbridge.catalog.catalog import SourceState
from apexbridge.cli.output import ExitCode, Output, sanitize
from apexbridge.runtime import Runtime
from apexbridge.runtime.source_factory import pins_dir


def sources(out: Output) -> None:
    """Every source in the order in which their skills win."""
    states = anyio.run(_states, out)
    precedence = list(out.loaded.settings.skills.precedence)
    states = sorted(states, key=lambda state: _rank(state, precedence))

    def draw() -> None:
        heads = [out.text(key) for key in ("origin", "state", "skills", "problems", "where")]
        rows = [
            (
                _origin(state),
                out.text(f"source_{_state(state)}"),
                str(len(state.scan.skills)),
                str(len(state.scan.problems)),
                state.source.id.partition(":")[2],
            )
            for state in states
        ]
        out.table(heads, rows)
        for state in states:
            for problem in state.scan.problems if state.is_down else ():
                out.problem_lines(problem)

    data = [
        {
            "id": state.source.id,
            "origin": _origin(state),
            "state": _state(state),
            "skills": len(state.scan.skills),
            "problems": [out.problem(problem) for problem in state.scan.problems],
        }
        for state in states
    ]
    out.finish({"sources": data, "precedence": precedence}, draw)


def _rank(state: SourceState, precedence: Sequence[str]) -> int:
    origin = _origin(state)
    if origin == "managed":
        return -1
    return precedence.index(origin) if origin in precedence else len(precedence)


def _origin(state: SourceState) -> str:
    return state.source.id.partition(":")[0]


def _state(state: SourceState) -> str:
    if state.is_down:
        return "down"
    return "ok" if state.is_there() else "missing"


async def _states(out: Output) -> Sequence[SourceState]:
    async with Runtime.open(out.loaded) as runtime:
        return runtime.catalog.states


def accept(out: Output, url: str, *, yes: bool) -> None:
    """Show what an address gives now beside what it gave first, ask, and hold it to the new."""
    from apexbridge.sources.remote.download_cache import PinStore

    anyio.run(_states, out)  # asks every address for what it gives now
    pins = PinStore(pins_dir(out.loaded))
    offered = pins.offered(url)
    if offered is None:
        line = out.text("remote_unchanged", url=url)
        out.finish({"url": url, "changed": False, "diff": []}, lambda: out.line(line))
        return
    old = (pins.last_good(url) or b"").decode("utf-8", "replace").splitlines()
    new = offered.decode("utf-8", "replace").splitlines()
    diff = list(difflib.unified_diff(old, new, "before", "after", lineterm=""))
    for line in diff:
        out.line(sanitize(line))
    is_agreed = (yes or out.asks("remote_ask", url=url)) and pins.accept_change(url)
    word = out.text("remote_accepted" if is_agreed else "remote_refused", url=url)
    data = {"url": url, "changed": is_agreed, "diff": diff}
    out.finish(data, lambda: out.line(word), ExitCode.OK if is_agreed else ExitCode.DENIED)
