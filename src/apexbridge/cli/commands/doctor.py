"""`doctor` and `config`: diagnostics, fsck of the data folder, and settings."""

import os
from collections.abc import Iterable
from typing import Annotated

import anyio
import typer

from apexbridge.cli.options import Json, Quiet
from apexbridge.cli.output import ExitCode, Output, command_output, sanitize
from apexbridge.lifecycle.fsck import FsckReport, InvariantCheck
from apexbridge.runtime import Runtime
from apexbridge.runtime.diagnostics import checks_to_json, effective_settings, run_checks
from apexbridge.runtime.fsck import RepairReport, check_data_dir, repair_data_dir
from apexbridge.settings import current_name, flatten

_MARKS = {"ok": "✓", "warn": "!", "fail": "✗"}

app = typer.Typer()


@app.command()
def doctor(
    context: typer.Context,
    fsck: Annotated[
        bool, typer.Option("--fsck", help="Check the data folder; nothing is changed.")
    ] = False,
    fix: Annotated[
        bool, typer.Option("--fix", help="Rebuild derived data, then check the data folder.")
    ] = False,
    short: Annotated[bool, typer.Option("--short", help="Only warnings and failures.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run diagnostics: sandbox, data folder, sources, settings."""
    with command_output(context, json=json, quiet=quiet) as out:
        if fsck or fix:
            _fsck(out, repairs=fix)
        else:
            _run_diagnostics(out, is_short=short)


@app.command()
def config(
    context: typer.Context,
    key: Annotated[str, typer.Argument(help="The name of one setting [all].")] = "",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show each setting and where its value comes from."""
    with command_output(context, json=json, quiet=quiet) as out:
        _print_settings(out, key)


def _fsck(out: Output, *, repairs: bool) -> None:
    """Check every invariant of the data folder, after repairing it if `repairs` is set."""
    repaired = anyio.run(repair_data_dir, out.config) if repairs else None
    found = anyio.run(check_data_dir, out.config)
    data = {
        "path": out.config.data,
        "violations": len(found.violations),
        "invariants": [_invariant_to_json(out, entry) for entry in found.entries],
        "mended": _repair_counts(repaired) if repaired else None,
    }
    code = ExitCode.FAILURE if found.violations else ExitCode.OK
    out.finish(data, lambda: _print_fsck(out, found, repaired), code)


def _invariant_to_json(out: Output, entry: InvariantCheck) -> dict[str, object]:
    return {
        "invariant": entry.invariant,
        "says": out.text(f"fsck_{entry.invariant}"),
        "visible": entry.is_visible,
        "looked_at": entry.checked,
        "violations": [out.problem_to_json(problem) for problem in entry.violations],
        "remarks": [out.problem_to_json(problem) for problem in entry.remarks],
    }


def _repair_counts(repaired: RepairReport) -> dict[str, int]:
    return {
        "unfinished": repaired.recovered.unfinished,
        "expired": repaired.recovered.expired,
        "temporaries": repaired.temporaries,
        "workspaces": repaired.workspaces,
        "added": len(repaired.index.added),
        "redone": len(repaired.index.redone),
        "dropped": len(repaired.index.dropped),
        "pending": len(repaired.index.pending),
    }


def _print_fsck(out: Output, found: FsckReport, repaired: RepairReport | None) -> None:
    if repaired is not None:
        out.line(out.text("fsck_repaired", **_repair_counts(repaired)))
    heads = [out.text(key) for key in ("fsck_invariant", "fsck_looked_at", "result", "check")]
    out.table(heads, [_invariant_row(out, entry) for entry in found.entries])
    for entry in found.entries:
        for problem in entry.problems:
            out.print_problem(problem)
    count, path = len(found.violations), out.config.data
    out.line(out.text("fsck_failed" if count else "fsck_passed", count=count, path=path))


def _invariant_row(out: Output, entry: InvariantCheck) -> tuple[str, str, str, str]:
    if not entry.is_visible:
        result = out.text("fsck_by_tests")
    elif entry.violations:
        result = out.text("fsck_violated", count=len(entry.violations))
    elif entry.remarks:
        result = out.text("fsck_remarks", count=len(entry.remarks))
    else:
        result = out.text("fsck_ok")
    looked_at = str(entry.checked) if entry.is_visible else "-"
    return entry.invariant, looked_at, result, out.text(f"fsck_{entry.invariant}")


def _print_settings(out: Output, key: str) -> None:
    """Print all settings with their origins, or the value of one."""
    config = out.config
    if key:
        value, key = config.value(key), current_name(key)
        data = {"key": key, "value": value, "origin": config.origins[key]}
        out.finish(data, lambda: out.line(sanitize(_text(value))))
        return
    rows = [(name, config.origins[name], _text(v)) for name, v in flatten(config.settings).items()]
    heads = [out.text("setting"), out.text("from"), out.text("value")]
    out.finish(effective_settings(config), lambda: out.table(heads, rows))


def _text(value: object) -> str:
    """Format a value as it is written in an environment variable."""
    return os.pathsep.join(map(str, _parts(value))) or "-"


def _parts(value: object) -> Iterable[object]:
    return value if isinstance(value, tuple) else (value,)  # pyright: ignore[reportUnknownVariableType]


def _run_diagnostics(out: Output, *, is_short: bool = False) -> None:
    """Run every check; `is_short` leaves out passed checks and the settings."""
    config = out.config
    checks = anyio.run(run_checks, out.diagnostic, config, Runtime.open(config))
    failed = sum(check.state == "fail" for check in checks)
    warned = sum(check.state == "warn" for check in checks)

    def render() -> None:
        shown = [c for c in checks if not is_short or c.state != "ok"]
        if shown:
            rows = [(f"{_MARKS[c.state]} {c.name}", c.detail) for c in shown]
            out.table([out.text("check"), out.text("result")], rows)
        if not is_short:
            _print_settings(out, "")
        key = "doctor_fail" if failed else "doctor_warn" if warned else "doctor_ok"
        out.line(out.text(key, count=failed or warned))

    data = checks_to_json(config, checks)
    out.finish(data, render, ExitCode.FAILURE if failed else ExitCode.OK)
