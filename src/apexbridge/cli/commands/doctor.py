"""`doctor`: diagnostics, and fsck of the data folder."""

from dataclasses import asdict
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from apexbridge.cli.commands.deps import dependencies_to_json, print_dependencies
from apexbridge.cli.commands.settings import config as print_settings
from apexbridge.cli.output import ExitCode, Output, sanitize
from apexbridge.cli.runtime_call import with_runtime
from apexbridge.environments.lookup import SkillDependencies
from apexbridge.environments.system_commands import SystemCommand, system_commands
from apexbridge.lifecycle.fsck import FsckReport, InvariantCheck
from apexbridge.runtime import Runtime
from apexbridge.runtime.diagnostics import checks_to_json, run_checks
from apexbridge.runtime.fsck import RepairReport, check_data_dir, repair_data_dir

_MARKS = {"ok": "✓", "warn": "!", "fail": "✗"}


def doctor(out: Output, *, skill: str, fsck: bool, fix: bool, short: bool) -> None:
    """Run every check, or fsck; `short` leaves out passed checks and the settings."""
    if skill:
        _check_skill(out, skill)
        return
    if fsck or fix:
        _fsck(out, repairs=fix)
        return
    config = out.config
    checks = anyio.run(run_checks, out.diagnostic, config, Runtime.open(config))
    failed = sum(check.state == "fail" for check in checks)
    warned = sum(check.state == "warn" for check in checks)

    def render() -> None:
        shown = [c for c in checks if not short or c.state != "ok"]
        if shown:
            rows = [(f"{_MARKS[c.state]} {c.name}", c.detail) for c in shown]
            out.table([out.text("check"), out.text("result")], rows)
        if not short:
            print_settings(out, key="")
        key = "doctor_fail" if failed else "doctor_warn" if warned else "doctor_ok"
        out.line(out.text(key, count=failed or warned))

    data = checks_to_json(config, checks)
    out.finish(data, render, ExitCode.FAILURE if failed else ExitCode.OK)


def _check_skill(out: Output, name: str) -> None:
    """Check what the scripts of one skill need: system commands, and packages."""

    async def check(runtime: Runtime) -> tuple[list[SystemCommand], SkillDependencies]:
        skill = runtime.catalog.find(name)
        words = (
            f"{skill.manifest.compatibility or ''} {skill.manifest.metadata.get('requires', '')}"
        )
        find = partial(system_commands, skill.root or Path(), words)
        commands = await anyio.to_thread.run_sync(find) if skill.root else []
        return commands, await runtime.dependencies.show(skill)

    commands, found = with_runtime(out, check)
    lacks = [one for one in commands if not one.is_there]

    def render() -> None:
        out.line(out.text("commands_needed" if commands else "commands_none", name=name))
        rows = [
            (
                f"{_MARKS['ok' if one.is_there else 'warn']} {one.name}",
                out.text("command_there" if one.is_there else "command_absent"),
                one.where,
            )
            for one in commands
        ]
        if rows:
            out.table([out.text(h) for h in ("command_name", "result", "where")], rows)
        for one in lacks:  # in lines of their own: a column would cut the command that helps
            out.line(f"  {sanitize(one.name)}: {_remedy(out, one)}")
        print_dependencies(out, found)

    data = {"commands": [asdict(one) for one in commands], "packages": dependencies_to_json(found)}
    out.finish(data, render, ExitCode.FAILURE if lacks or found.missing else ExitCode.OK)


def _remedy(out: Output, one: SystemCommand) -> str:
    return out.text("command_missing" if one.package else "command_foreign", package=one.package)


def _fsck(out: Output, *, repairs: bool) -> None:
    """Check every invariant of the data folder, after repairing it if `repairs` is set."""
    repaired = anyio.run(repair_data_dir, out.config) if repairs else None
    found = anyio.run(check_data_dir, out.config)
    data = {
        "path": out.config.data,
        "violations": len(found.violations),
        "invariants": [_invariant_to_json(out, entry) for entry in found.entries],
        "mended": _repair_to_json(repaired) if repaired else None,
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


def _repair_to_json(repaired: RepairReport) -> dict[str, object]:
    return {**_repair_counts(repaired), "set_aside": list(repaired.set_aside)}


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
        for name in repaired.set_aside:
            out.line(out.text("fsck_set_aside", name=name))
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
