"""`update`, `versions`, `rollback`, `pin` and `diff`."""

import tempfile
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import anyio

from apexbridge.cli.keeping import finish_change, show_inspection
from apexbridge.cli.output import Out, visible
from apexbridge.errors import PermissionDeniedError, StorageError
from apexbridge.lifecycle.archive import ArchiveLimits
from apexbridge.lifecycle.changes import Done
from apexbridge.lifecycle.difference import Difference, FileChange, compare
from apexbridge.lifecycle.inspecting import inspect_skill
from apexbridge.lifecycle.intake import take_in
from apexbridge.lifecycle.kept import Version
from apexbridge.runtime import Runtime
from apexbridge.runtime.policies import archive_limits


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateOrder:
    """What to update to, and how readily."""

    path: Path
    allow_older: bool
    despite_findings: bool
    yes: bool


def update(out: Out, order: UpdateOrder) -> None:
    """Show the new version and what is different in it, ask, and put it in the old one's place."""
    if not order.path.exists():
        raise StorageError(code="path_missing", path=order.path)
    limits = archive_limits(out.loaded.settings.install)
    inspection = inspect_skill(order.path, renames=True, limits=limits)
    show_inspection(out, inspection)

    async def change() -> Done:
        async with Runtime.open(out.loaded) as runtime:
            name = inspection.skill.name
            now, *_ = await runtime.manager.versions(name)
            difference = await anyio.to_thread.run_sync(
                partial(_difference, order.path, runtime.store.folder(name), limits)
            )
            # One that is held is refused below: nobody needs to read what will not come.
            if now.sha256 != inspection.sha256 and not now.is_pinned:
                _draw(out, difference)
                if not order.yes and not out.asks("update_ask", name=name):
                    raise PermissionDeniedError(code="not_agreed")
            return await runtime.manager.update(
                order.path,
                seen=now.sha256,
                allows_older=order.allow_older,
                blocks_at=None if order.despite_findings else "policy",
            )

    done = anyio.run(change)
    finish_change(out, done, "updated" if done.has_changed else "updated_not")


def _difference(path: Path, now: Path, limits: ArchiveLimits) -> Difference:
    with tempfile.TemporaryDirectory(prefix="apexbridge-") as place:
        return compare(now, take_in(path, Path(place), renames=True, limits=limits).root)


def versions(out: Out, name: str) -> None:
    """List the version in use and the kept ones."""

    async def known() -> tuple[Version, ...]:
        async with Runtime.open(out.loaded) as runtime:
            return await runtime.manager.versions(name)

    found = anyio.run(known)
    heads = [out.word(key) for key in ("version_hash", "version", "field_size", "version_since")]
    rows = [(v.sha256[:12], v.declared, str(v.size), _since(out, v)) for v in found]
    out.finish({"versions": [asdict(version) for version in found]}, lambda: out.table(heads, rows))


def _since(out: Out, version: Version) -> str:
    if version.is_current:
        return out.word("version_pinned" if version.is_pinned else "version_now")
    return datetime.fromtimestamp(version.at, UTC).astimezone().isoformat(" ", "seconds")


def rollback(out: Out, name: str, version: str) -> None:
    """Let a kept version be used again."""

    async def back() -> tuple[Done, Version]:
        async with Runtime.open(out.loaded) as runtime:
            done = await runtime.manager.rollback(name, version)
            return done, (await runtime.manager.versions(name))[0]

    done, now = anyio.run(back)
    finish_change(out, done, "rolled_back", version=_called(now))


def pin(out: Out, name: str, version: str) -> None:
    """Hold a skill to a version."""

    async def hold() -> Version:
        async with Runtime.open(out.loaded) as runtime:
            return await runtime.manager.pin(name, version)

    held = anyio.run(hold)
    line = out.word("pinned", name=name, version=_called(held))
    out.finish({"name": name, "pinned": held.sha256}, lambda: out.line(line))


def unpin(out: Out, name: str) -> None:
    """Let a skill change again."""

    async def let_go() -> bool:
        async with Runtime.open(out.loaded) as runtime:
            return await runtime.manager.unpin(name)

    has_changed = anyio.run(let_go)
    line = out.word("unpinned" if has_changed else "unpinned_not", name=name)
    data = {"name": name, "pinned": None, "changed": has_changed}
    out.finish(data, lambda: out.line(line))


def _called(version: Version) -> str:
    return " ".join(filter(None, (version.declared, f"({version.sha256[:12]})")))


def diff(out: Out, name: str, old: str, new: str) -> None:
    """Show what is different between two versions."""

    async def differences() -> Difference:
        async with Runtime.open(out.loaded) as runtime:
            return await runtime.manager.diff(name, old, new)

    found = anyio.run(differences)
    data = {"changes": [asdict(change) for change in found.changes]}
    out.finish(data, lambda: _draw(out, found))


def _draw(out: Out, difference: Difference) -> None:
    if not difference.changes:
        out.line(out.word("diff_none"))
    for change in difference.changes:
        what = out.word(f"diff_{change.what}")
        out.line(f"{what}: {visible(change.path)}{_note(out, change)}")
        for line in change.lines:
            out.line(f"  {visible(line)}")


def _note(out: Out, change: FileChange) -> str:
    before, after = change.executable
    notes = [
        out.word("diff_cut") if change.is_cut else "",
        out.word("diff_runs") if after and not before else "",
        out.word("diff_runs_not") if before and not after and change.what == "changed" else "",
    ]
    said = ", ".join(filter(None, notes))
    return f" ({said})" if said else ""
