"""`doctor --fsck` and `doctor --fix`: whether the data folder is as it must be."""

import os
from collections.abc import Iterable, Iterator
from functools import partial

import anyio

from apexbridge.cli.output import ExitCode, Output, sanitize
from apexbridge.lifecycle.fsck import FsckReport, InvariantCheck
from apexbridge.runtime import Runtime
from apexbridge.runtime.diagnostics import checks_to_json, effective_settings, run_checks
from apexbridge.runtime.fsck import RepairReport, check_data_dir, repair_data_dir
from apexbridge.settings import Config, flatten


def fsck(out: Output, *, mends: bool) -> None:
    """Mend, if that is wanted; then hold the data folder against every invariant."""
    mended = anyio.run(repair_data_dir, out.loaded) if mends else None
    found = anyio.run(check_data_dir, out.loaded)
    data = {
        "path": out.loaded.data,
        "violations": len(found.violations),
        "invariants": [_invariant_to_json(out, entry) for entry in found.entries],
        "mended": _repair_counts(mended) if mended else None,
    }
    code = ExitCode.FAILURE if found.violations else ExitCode.OK
    out.finish(data, lambda: _print_fsck(out, found, mended), code)


def _invariant_to_json(out: Output, entry: InvariantCheck) -> dict[str, object]:
    return {
        "invariant": entry.invariant,
        "says": out.text(f"fsck_{entry.invariant}"),
        "visible": entry.is_visible,
        "looked_at": entry.looked_at,
        "violations": [out.problem(problem) for problem in entry.violations],
        "remarks": [out.problem(problem) for problem in entry.remarks],
    }


def _repair_counts(mended: RepairReport) -> dict[str, int]:
    return {
        "unfinished": mended.recovered.unfinished,
        "expired": mended.recovered.expired,
        "temporaries": mended.temporaries,
        "workspaces": mended.workspaces,
        "added": len(mended.index.added),
        "redone": len(mended.index.redone),
        "dropped": len(mended.index.dropped),
        "pending": len(mended.index.pending),
    }


def _print_fsck(out: Output, found: FsckReport, mended: RepairReport | None) -> None:
    if mended is not None:
        out.line(out.text("fsck_mended", **_repair_counts(mended)))
    heads = [out.text(key) for key in ("fsck_invariant", "fsck_looked_at", "result", "check")]
    out.table(heads, [_invariant_row(out, entry) for entry in found.entries])
    for entry in found.entries:
        for problem in entry.problems:
            out.problem_lines(problem)
    count, path = len(found.violations), out.loaded.data
    out.line(out.text("fsck_unsound" if count else "fsck_sound", count=count, path=path))


def _invariant_row(out: Output, entry: InvariantCheck) -> tuple[str, str, str, str]:
    if not entry.is_visible:
        result = out.text("fsck_by_tests")
    elif entry.violations:
        result = out.text("fsck_violated", count=len(entry.violations))
    elif entry.remarks:
        result = out.text("fsck_remarks", count=len(entry.remarks))
    else:
        result = out.text("fsck_ok")
    looked_at = str(entry.looked_at) if entry.is_visible else "-"
    return entry.invariant, looked_at, result, out.text(f"fsck_{entry.invariant}")


_MARKS = {"ok": "✓", "warn": "!", "fail": "✗"}


def config(out: Output, key: str) -> None:
    """Show the settings, or one of them."""
    loaded = out.loaded
    if key:
        value = loaded.value(key)
        data = {"key": key, "value": value, "origin": loaded.origins[key]}
        out.finish(data, lambda: out.line(sanitize(_text(value))))
        return
    rows = [(name, _text(value), loaded.origins[name]) for name, value in _values(loaded)]
    heads = [out.text("setting"), out.text("from"), out.text("value")]
    out.finish(
        effective_settings(loaded),
        lambda: out.table(heads, [(name, of, text) for name, text, of in rows]),
    )


def _values(loaded: Config) -> Iterator[tuple[str, object]]:
    return iter(flatten(loaded.settings).items())


def _text(value: object) -> str:
    """A setting as it would be written in the environment."""
    return os.pathsep.join(map(str, _parts(value))) or "-"


def _parts(value: object) -> Iterable[object]:
    return value if isinstance(value, tuple) else (value,)  # pyright: ignore[reportUnknownVariableType]


def doctor(out: Output, *, is_short: bool = False) -> None:
    """Try everything and tell; in short, what does not work and no settings."""
    loaded = out.loaded  # the words are in its language
    checks = anyio.run(run_checks, partial(out.text, table="doctor"), loaded, Runtime.open(loaded))
    failed = sum(check.state == "fail" for check in checks)
    warned = sum(check.state == "warn" for check in checks)

    def render() -> None:
        told = [c for c in checks if not is_short or c.state != "ok"]
        if told:
            rows = [(f"{_MARKS[c.state]} {c.name}", c.detail) for c in told]
            out.table([out.text("check"), out.text("result")], rows)
        if not is_short:
            config(out, "")
        key = "doctor_fail" if failed else "doctor_warn" if warned else "doctor_ok"
        out.line(out.text(key, count=failed or warned))

    data = checks_to_json(loaded, checks)
    out.finish(data, render, ExitCode.FAILURE if failed else ExitCode.OK)
