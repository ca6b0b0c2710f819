"""`audit` and `runs`: what was changed, and what scripts did."""

from contextlib import closing
from dataclasses import asdict
from datetime import datetime

from apexbridge.audit import AuditLog
from apexbridge.cli.output import Exit, Out, visible
from apexbridge.runtime.runs import Run, RunStore


def _log(out: Out) -> AuditLog:
    return AuditLog(out.loaded.data / "audit.jsonl")


def ls(out: Out, limit: int) -> None:
    """The latest records, the newest last."""
    records = _log(out).latest(limit)

    def render() -> None:
        heads = [out.word("when"), out.word("what"), out.word("facts")]
        rows = [
            (r.at, r.action, " ".join(f"{key}={value}" for key, value in r.facts.items()))
            for r in records
        ]
        if rows:
            out.table(heads, rows)
        else:
            out.line(out.word("audit_empty"))

    data = [{"at": r.at, "action": r.action, "facts": dict(r.facts)} for r in records]
    out.finish({"records": data}, render)


def verify(out: Out) -> None:
    """Say whether the chain holds."""
    count = _log(out).verify()
    line = out.word("audit_sound", count=count)
    out.finish({"records": count}, lambda: out.line(line))


def runs(out: Out, run_id: str, limit: int) -> None:
    """The latest runs of scripts, the newest first; or one of them, whole."""
    with closing(RunStore(out.loaded.data / "runs.db")) as store:
        if not run_id:
            found = store.latest(limit)
            data = {"runs": [asdict(run) for run in found]}
            out.finish(data, lambda: _draw_runs(out, found))
            return
        run = store.find(run_id)
    if run is None:
        line = out.word("run_unknown", id=run_id)
        out.finish({"run": None}, lambda: out.line(line), Exit.NOT_FOUND)
        return
    out.finish({"run": asdict(run)}, lambda: _draw_run(out, run))


def _draw_runs(out: Out, found: tuple[Run, ...]) -> None:
    if not found:
        out.line(out.word("run_none"))
        return
    keys = ("run_id", "when", "name", "run_script", "result", "turn_seconds")
    rows = [
        (run.id, _when(run), run.skill, run.script, run.outcome, f"{run.seconds:.2f}")
        for run in found
    ]
    out.table([out.word(key) for key in keys], rows)


def _draw_run(out: Out, run: Run) -> None:
    out.line(
        out.word(
            "run_line",
            when=_when(run),
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
            out.line(visible(text))


def _when(run: Run) -> str:
    return datetime.fromtimestamp(run.at).astimezone().isoformat(sep=" ", timespec="seconds")
