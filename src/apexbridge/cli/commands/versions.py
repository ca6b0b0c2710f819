"""`versions`, `rollback`, `pin` and `diff`."""

from dataclasses import asdict
from datetime import UTC, datetime

from apexbridge.cli.commands.install import print_change
from apexbridge.cli.output import Output, sanitize
from apexbridge.cli.runtime_call import with_runtime
from apexbridge.lifecycle.transactions import InstallResult
from apexbridge.lifecycle.version_store import FileChange, Version, VersionDiff
from apexbridge.runtime import Runtime


def versions(out: Output, *, name: str) -> None:
    """Print the current version and the stored ones."""
    found = with_runtime(out, lambda runtime: runtime.manager.versions.list(name))
    heads = [out.text(key) for key in ("version_hash", "version", "field_size", "version_since")]
    rows = [(v.sha256[:12], v.declared, str(v.size), _format_replaced_at(out, v)) for v in found]
    out.finish({"versions": [asdict(version) for version in found]}, lambda: out.table(heads, rows))


def _format_replaced_at(out: Output, version: Version) -> str:
    if version.is_current:
        return out.text("version_pinned" if version.is_pinned else "version_now")
    return datetime.fromtimestamp(version.at, UTC).astimezone().isoformat(" ", "seconds")


def rollback(out: Output, *, name: str, version: str) -> None:
    """Roll back to a stored version."""

    async def back(runtime: Runtime) -> tuple[InstallResult, Version]:
        done = await runtime.manager.versions.rollback(name, version)
        return done, (await runtime.manager.versions.list(name))[0]

    done, now = with_runtime(out, back)
    print_change(out, done, "rolled_back", version=_version_label(now))


def pin(out: Output, *, name: str, version: str, off: bool) -> None:
    """Pin a skill to a version, or unpin it."""
    if off:
        changed = with_runtime(out, lambda runtime: runtime.manager.versions.unpin(name))
        data = {"name": name, "pinned": None, "changed": changed}
        out.finish_line(data, "unpinned" if changed else "not_pinned", name=name)
        return
    held = with_runtime(out, lambda runtime: runtime.manager.versions.pin(name, version))
    data = {"name": name, "pinned": held.sha256}
    out.finish_line(data, "pinned", name=name, version=_version_label(held))


def diff(out: Output, *, name: str, old: str, new: str) -> None:
    """Print the diff between two versions."""
    found = with_runtime(out, lambda runtime: runtime.manager.versions.diff(name, old, new))
    data = {"changes": [asdict(change) for change in found.changes]}
    out.finish(data, lambda: print_diff(out, found))


def _version_label(version: Version) -> str:
    return " ".join(filter(None, (version.declared, f"({version.sha256[:12]})")))


def print_diff(out: Output, difference: VersionDiff) -> None:
    """Print the changed files and lines between two versions."""
    if not difference.changes:
        out.line(out.text("diff_none"))
    for change in difference.changes:
        what = out.text(f"diff_{change.what}")
        out.line(f"{what}: {sanitize(change.path)}{_change_notes(out, change)}")
        for line in change.lines:
            out.line(f"  {sanitize(line)}")


def _change_notes(out: Output, change: FileChange) -> str:
    before, after = change.executable
    notes = [
        out.text("diff_cut") if change.is_cut else "",
        out.text("diff_runs") if after and not before else "",
        out.text("diff_runs_not") if before and not after and change.what == "changed" else "",
    ]
    said = ", ".join(filter(None, notes))
    return f" ({said})" if said else ""
