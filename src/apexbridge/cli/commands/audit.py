"""`audit`, `runs` and `explain`: the audit log, script runs and traces of chat turns."""

from contextlib import closing
from dataclasses import asdict
from datetime import datetime
from typing import Any

import anyio.to_thread

from apexbridge.audit import AuditLog
from apexbridge.cli.output import ExitCode, Output, sanitize
from apexbridge.cli.runtime_call import with_runtime
from apexbridge.runtime import Runtime
from apexbridge.runtime.run_store import RunStore, ScriptRun


def audit_verify(out: Output) -> None:
    """Verify the hash chain."""
    count = _open_log(out).verify()
    out.finish_line({"records": count}, "audit_verified", count=count)


def _open_log(out: Output) -> AuditLog:
    return AuditLog(out.config.data / "audit.jsonl")


def audit_ls(out: Output, *, limit: int) -> None:
    """Print the latest records, newest last."""
    records = _open_log(out).latest(limit)

    def render() -> None:
        heads = [out.text("time"), out.text("action"), out.text("details")]
        rows = [
            (r.at, r.action, " ".join(f"{key}={value}" for key, value in r.facts.items()))
            for r in records
        ]
        if rows:
            out.table(heads, rows)
        else:
            out.line(out.text("audit_empty"))

    data = [{"at": r.at, "action": r.action, "facts": dict(r.facts)} for r in records]
    out.finish({"records": data}, render)


def runs(out: Output, *, run: str, limit: int) -> None:
    """Print the latest script runs, newest first, or one run in full."""
    with closing(RunStore(out.config.data / "runs.db")) as store:
        if not run:
            latest = store.latest(limit)
            data = {"runs": [asdict(one) for one in latest]}
            out.finish(data, lambda: _print_runs(out, latest))
            return
        found = store.find(run)
    if found is None:
        out.finish_line({"run": None}, "run_unknown", ExitCode.NOT_FOUND, id=run)
        return
    out.finish({"run": asdict(found)}, lambda: _print_run(out, found))


def _print_runs(out: Output, found: tuple[ScriptRun, ...]) -> None:
    if not found:
        out.line(out.text("run_none"))
        return
    keys = ("run_id", "time", "name", "run_script", "result", "turn_seconds")
    rows = [
        (run.id, _format_time(run), run.skill, run.script, run.outcome, f"{run.seconds:.2f}")
        for run in found
    ]
    out.table([out.text(key) for key in keys], rows)


def _print_run(out: Output, run: ScriptRun) -> None:
    out.line(
        out.text(
            "run_line",
            when=_format_time(run),
            skill=run.skill,
            script=run.script,
            outcome=run.outcome,
            code="-" if run.exit_code is None else run.exit_code,
            seconds=f"{run.seconds:.2f}",
            isolation=run.isolation or "-",
        )
    )
    for text in (run.error, *run.stdout.splitlines(), *run.stderr.splitlines(), *run.files):
        if text:
            out.line(sanitize(text))


def _format_time(run: ScriptRun) -> str:
    return datetime.fromtimestamp(run.at).astimezone().isoformat(sep=" ", timespec="seconds")


def explain(out: Output, *, turn: str) -> None:
    """Show the record of a turn; without an id, of the last one."""

    async def record(runtime: Runtime) -> dict[str, Any] | None:
        return await anyio.to_thread.run_sync(runtime.chat_service.store.turn, turn)

    found = with_runtime(out, record)
    if found is None:
        key = "turn_unknown" if turn else "turn_none"
        out.finish_line({"turn": None}, key, ExitCode.NOT_FOUND, id=turn)
        return
    out.finish({"turn": found}, lambda: _print_turn(out, found))


def _print_turn(out: Output, turn: dict[str, Any]) -> None:
    usage = turn["usage"]
    out.line(
        out.text(
            "turn_turn",
            id=turn["id"],
            rounds=turn["rounds"],
            calls=len(turn["calls"]),
            tokens=usage["input_tokens"] + usage["output_tokens"],
            seconds=f"{turn['seconds']:.2f}",
            finish=turn["finish"],
        )
    )
    out.line(
        out.text(
            "turn_time",
            model=f"{turn['model_seconds']:.2f}",
            tools=f"{turn['tool_seconds']:.2f}",
            search=f"{turn['search_seconds']:.3f}",
        )
    )
    out.line(out.text("turn_confidence", confidence=f"{turn['confidence']:.2f}"))
    _print_candidates(out, turn["candidates"])
    for key in ("listed", "shortened", "dropped", "woken"):
        if turn[key]:
            out.line(out.text(f"turn_{key}", names=", ".join(turn[key])))
    if turn["asleep"]:
        out.line(out.text("turn_asleep", count=turn["asleep"]))
    _print_calls(out, turn["calls"])


def _print_candidates(out: Output, found: list[dict[str, Any]]) -> None:
    if not found:
        return
    out.line(out.text("turn_candidates") + ":")
    keys = ("name", "turn_score", "turn_meaning", "turn_lexical", "turn_usage", "turn_fate")
    rows = [
        (
            one["name"],
            f"{one['score']:.2f}",
            f"{one['parts'].get('meaning', 0):.2f}",
            f"{one['parts'].get('lexical', 0):.2f}",
            f"{one['parts'].get('usage', 0):.2f}",
            out.text(f"fate_{one['fate']}"),
        )
        for one in found
    ]
    out.table([out.text(key) for key in keys], rows)


def _print_calls(out: Output, calls: list[dict[str, Any]]) -> None:
    if not calls:
        return
    heads = [out.text(key) for key in ("turn_tool", "turn_seconds", "turn_code")]
    out.table(heads, [(c["tool"], f"{c['seconds']:.2f}", c["code"]) for c in calls])
