"""`sources`: list skill sources by precedence, and accept changes of pinned remote skills."""

import difflib
from collections.abc import Sequence

import anyio

from apexbridge.catalog.catalog import SourceState
from apexbridge.cli.output import ExitCode, Output, sanitize
from apexbridge.runtime import Runtime
from apexbridge.runtime.source_factory import pins_dir
from apexbridge.skills.model import Problem

_SKIPPED = frozenset({"folder_not_searched", "folder_limit", "link_leads_out"})
"""Problems that say what a scan left out, beside the errors of unusable skills."""


def sources(out: Output, *, accept: str, yes: bool) -> None:
    """Print the sources by precedence, or accept a change."""
    if accept:
        _accept_change(out, accept, yes=yes)
        return
    states, problems = anyio.run(_states, out)
    precedence = list(out.config.settings.skills.precedence)
    states = sorted(states, key=lambda state: _rank(state, precedence))

    def draw() -> None:
        heads = [out.text(key) for key in ("origin", "state", "skills", "problems", "where")]
        rows = [
            (
                _origin(state),
                out.text(f"source_{_state(state)}"),
                str(len(state.scan.skills)),
                str(len(state.scan.problems)),
                state.source_id.partition(":")[2],
            )
            for state in states
        ]
        out.table(heads, rows)
        for state in states:
            for problem in state.scan.problems:
                is_skipped = problem.code in _SKIPPED or problem.severity == "error"
                if state.is_down or is_skipped:
                    out.print_problem(problem)
        for problem in problems:
            out.print_problem(problem)

    data = [
        {
            "id": state.source_id,
            "origin": _origin(state),
            "state": _state(state),
            "skills": len(state.scan.skills),
            "problems": [out.problem_to_json(problem) for problem in state.scan.problems],
        }
        for state in states
    ]
    found = [out.problem_to_json(problem) for problem in problems]
    out.finish({"sources": data, "precedence": precedence, "problems": found}, draw)


def _rank(state: SourceState, precedence: Sequence[str]) -> int:
    origin = _origin(state)
    # Managed skills come first, whatever the setting says.
    if origin == "managed":
        return -1
    return precedence.index(origin) if origin in precedence else len(precedence)


def _origin(state: SourceState) -> str:
    return state.source_id.partition(":")[0]


def _state(state: SourceState) -> str:
    if state.is_down:
        return "down"
    return "ok" if state.is_there() else "missing"


async def _states(out: Output) -> tuple[Sequence[SourceState], Sequence[Problem]]:
    async with Runtime.open(out.config) as runtime:
        return runtime.catalog.states, runtime.catalog.source_problems


def _accept_change(out: Output, url: str, *, yes: bool) -> None:
    """Print the diff between pinned and new content, ask, and pin the new hash."""
    from apexbridge.sources.remote.download_cache import PinStore

    anyio.run(_states, out)  # fetches the current content of every URL
    pins = PinStore(pins_dir(out.config))
    offered = pins.offered(url)
    if offered is None:
        data = {"url": url, "changed": False, "diff": list[str]()}
        out.finish_line(data, "remote_unchanged", url=url)
        return
    old = (pins.last_good(url) or b"").decode("utf-8", "replace").splitlines()
    new = offered.decode("utf-8", "replace").splitlines()
    diff = list(difflib.unified_diff(old, new, "before", "after", lineterm=""))
    for line in diff:
        out.line(sanitize(line))
    is_agreed = (yes or out.confirm("remote_ask", url=url)) and pins.accept_change(url)
    key = "remote_accepted" if is_agreed else "remote_refused"
    code = ExitCode.OK if is_agreed else ExitCode.DENIED
    out.finish_line({"url": url, "changed": is_agreed, "diff": diff}, key, code, url=url)
