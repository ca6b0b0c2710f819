"""`update`, `versions`, `rollback`, `pin` and `diff`."""

import tempfile
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import anyio

from apexbridge.cli.commands.install import print_change, print_inspection
from apexbridge.cli.output import Output, sanitize
from apexbridge.errors import PermissionDeniedError, StorageError
from apexbridge.lifecycle.transactions import InstallResult
from apexbridge.lifecycle.unpack_and_validate import inspect_skill, stage_skill
from apexbridge.lifecycle.version_store import FileChange, Version, VersionDiff, diff_folders
from apexbridge.lifecycle.zip.archive import ArchiveLimits
from apexbridge.runtime import Runtime
from apexbridge.runtime.policies import archive_limits


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateOptions:
    """What to update to, and how readily."""

    path: Path
    allow_older: bool
    despite_findings: bool
    yes: bool


def update(out: Output, order: UpdateOptions) -> None:
    """Show the new version and what is different in it, ask, and put it in the old one's place."""
    if not order.path.exists():
        raise StorageError(code="path_missing", path=order.path)
    limits = archive_limits(out.loaded.settings.install)
    inspection = inspect_skill(order.path, renames=True, limits=limits)
    print_inspection(out, inspection)

    async def change() -> InstallResult:
        async with Runtime.open(out.loaded) as runtime:
            name = inspection.skill.name
            now, *_ = await runtime.manager.versions.list(name)
            difference = await anyio.to_thread.run_sync(
                partial(_difference, order.path, runtime.store.folder(name), limits)
            )
            # One that is held is refused below: nobody needs to read what will not come.
            if now.sha256 != inspection.sha256 and not now.is_pinned:
                _print_diff(out, difference)
                if not order.yes and not out.asks("update_ask", name=name):
                    raise PermissionDeniedError(code="not_agreed")
            return await runtime.manager.update(
                order.path,
                expected_sha256=now.sha256,
                allows_older=order.allow_older,
                blocks_at=None if order.despite_findings else "policy",
            )

    done = anyio.run(change)
    print_change(out, done, "updated" if done.has_changed else "updated_not")


def _difference(path: Path, now: Path, limits: ArchiveLimits) -> VersionDiff:
    with tempfile.TemporaryDirectory(prefix="apexbridge-") as place:
        return diff_folders(now, stage_skill(path, Path(place), renames=True, limits=limits).root)


def versions(out: Output, name: str) -> None:
    """List the version in use and the kept ones."""

    async def known() -> tuple[Version, ...]:
        async with Runtime.open(out.loaded) as runtime:
            return await runtime.manager.versions.list(name)

    found = anyio.run(known)
    heads = [out.text(key) for key in ("version_hash", "version", "field_size", "version_since")]
    rows = [(v.sha256[:12], v.declared, str(v.size), _format_replaced_at(out, v)) for v in found]
    out.finish({"versions": [asdict(version) for version in found]}, lambda: out.table(heads, rows))


def _format_replaced_at(out: Output, version: Version) -> str:
    if version.is_current:
        return out.text("version_pinned" if version.is_pinned else "version_now")
    return datetime.fromtimestamp(version.at, UTC).astimezone().isoformat(" ", "seconds")


def rollback(out: Output, name: str, version: str) -> None:
    """Let a kept version be used again."""

    async def back() -> tuple[InstallResult, Version]:
        async with Runtime.open(out.loaded) as runtime:
            done = await runtime.manager.versions.rollback(name, version)
            return done, (await runtime.manager.versions.list(name))[0]

    done, now = anyio.run(back)
    print_change(out, done, "rolled_back", version=_version_label(now))


def pin(out: Output, name: str, version: str) -> None:
    """Hold a skill to a version."""

    async def hold() -> Version:
        async with Runtime.open(out.loaded) as runtime:
            return await runtime.manager.versions.pin(name, version)

    held = anyio.run(hold)
    line = out.text("pinned", name=name, version=_version_label(held))
    out.finish({"name": name, "pinned": held.sha256}, lambda: out.line(line))


def unpin(out: Output, name: str) -> None:
    """Let a skill change again."""

    async def let_go() -> bool:
        async with Runtime.open(out.loaded) as runtime:
            return await runtime.manager.versions.unpin(name)

    has_changed = anyio.run(let_go)
    line = out.text("unpinned" if has_changed else "unpinned_not", name=name)
    data = {"name": name, "pinned": None, "changed": has_changed}
    out.finish(data, lambda: out.line(line))


def _version_label(version: Version) -> str:
    return " ".join(filter(None, (version.declared, f"({version.sha256[:12]})")))


def diff(out: Output, name: str, old: str, new: str) -> None:
    """Show what is different between two versions."""

    async def differences() -> VersionDiff:
        async with Runtime.open(out.loaded) as runtime:
            return await runtime.manager.versions.diff(name, old, new)

    found = anyio.run(differences)
    data = {"changes": [asdict(change) for change in found.changes]}
    out.finish(data, lambda: _print_diff(out, found))


def _print_diff(out: Output, difference: VersionDiff) -> None:
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
