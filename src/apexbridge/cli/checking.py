"""`doctor --fsck` and `doctor --fix`: whether the data folder is as it must be."""

import anyio

from apexbridge.cli.output import Exit, Out
from apexbridge.lifecycle.fsck import Checked, Soundness
from apexbridge.runtime.checking import Mended, check_data, mend_data


def fsck(out: Out, *, mends: bool) -> None:
    """Mend, if that is wanted; then hold the data folder against every invariant."""
    mended = anyio.run(mend_data, out.loaded) if mends else None
    found = anyio.run(check_data, out.loaded)
    data = {
        "path": out.loaded.data,
        "violations": len(found.violations),
        "invariants": [_entry(out, entry) for entry in found.entries],
        "mended": _counts(mended) if mended else None,
    }
    code = Exit.FAILURE if found.violations else Exit.OK
    out.finish(data, lambda: _render(out, found, mended), code)


def _entry(out: Out, entry: Checked) -> dict[str, object]:
    return {
        "invariant": entry.invariant,
        "says": out.word(f"fsck_{entry.invariant}"),
        "visible": entry.is_visible,
        "looked_at": entry.looked_at,
        "violations": [out.problem(problem) for problem in entry.violations],
        "remarks": [out.problem(problem) for problem in entry.remarks],
    }


def _counts(mended: Mended) -> dict[str, int]:
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


def _render(out: Out, found: Soundness, mended: Mended | None) -> None:
    if mended is not None:
        out.line(out.word("fsck_mended", **_counts(mended)))
    heads = [out.word(key) for key in ("fsck_invariant", "fsck_looked_at", "result", "check")]
    out.table(heads, [_row(out, entry) for entry in found.entries])
    for entry in found.entries:
        for problem in entry.problems:
            out.problem_lines(problem)
    count, path = len(found.violations), out.loaded.data
    out.line(out.word("fsck_unsound" if count else "fsck_sound", count=count, path=path))


def _row(out: Out, entry: Checked) -> tuple[str, str, str, str]:
    if not entry.is_visible:
        result = out.word("fsck_by_tests")
    elif entry.violations:
        result = out.word("fsck_violated", count=len(entry.violations))
    elif entry.remarks:
        result = out.word("fsck_remarks", count=len(entry.remarks))
    else:
        result = out.word("fsck_ok")
    looked_at = str(entry.looked_at) if entry.is_visible else "-"
    return entry.invariant, looked_at, result, out.word(f"fsck_{entry.invariant}")
