"""`update`, `versions`, `rollback`, `pin` and `diff`."""

import tempfile
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import anyio
import typer

from apexbridge.cli.commands.install import print_change, print_inspection
from apexbridge.cli.options import AllowFindings, Json, Name, Quiet, Yes
from apexbridge.cli.output import Output, command_output, sanitize
from apexbridge.errors import PermissionDeniedError, StorageError
from apexbridge.lifecycle.transactions import InstallResult
from apexbridge.lifecycle.unpack_and_validate import inspect_skill, stage_skill
from apexbridge.lifecycle.version_store import FileChange, Version, VersionDiff, diff_folders
from apexbridge.lifecycle.zip.archive import ArchiveLimits
from apexbridge.runtime import Runtime
from apexbridge.runtime.policies import archive_limits

app = typer.Typer()


@app.command()
def update(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(help="A zip or folder with a newer version of a skill.")],
    allow_downgrade: Annotated[
        bool, typer.Option("--allow-downgrade", help="Accept a lower version number.")
    ] = False,
    allow_findings: AllowFindings = False,
    yes: Yes = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Update an installed skill after showing the diff; the old version is kept."""
    with command_output(context, json=json, quiet=quiet) as out:
        options = UpdateOptions(
            path=path, allow_downgrade=allow_downgrade, allow_findings=allow_findings, yes=yes
        )
        _update(out, options)


@app.command()
def versions(context: typer.Context, name: Name, json: Json = False, quiet: Quiet = False) -> None:
    """List the versions of an installed skill."""
    with command_output(context, json=json, quiet=quiet) as out:
        _list_versions(out, name)


@app.command()
def rollback(
    context: typer.Context,
    name: Name,
    version: Annotated[
        str, typer.Argument(help="A version, a hash or its prefix [the previous one].")
    ] = "",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Roll a skill back to an earlier version."""
    with command_output(context, json=json, quiet=quiet) as out:
        _rollback(out, name, version)


@app.command()
def pin(
    context: typer.Context,
    name: Name,
    version: Annotated[
        str, typer.Argument(help="A version, a hash or its prefix [the one in use].")
    ] = "",
    off: Annotated[bool, typer.Option("--off", help="Unpin the skill.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Pin a skill to a version: no update, edit or rollback."""
    with command_output(context, json=json, quiet=quiet) as out:
        if off:
            _unpin(out, name)
        else:
            _pin(out, name, version)


@app.command()
def diff(
    context: typer.Context,
    name: Name,
    old: Annotated[str, typer.Argument(help="The earlier version [the previous one].")] = "",
    new: Annotated[str, typer.Argument(help="The later version [the one in use].")] = "",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show the diff between two versions of a skill."""
    with command_output(context, json=json, quiet=quiet) as out:

        async def compare_versions() -> VersionDiff:
            async with Runtime.open(out.config) as runtime:
                return await runtime.manager.versions.diff(name, old, new)

        found = anyio.run(compare_versions)
        data = {"changes": [asdict(change) for change in found.changes]}
        out.finish(data, lambda: _print_diff(out, found))


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateOptions:
    """Options of `update`."""

    path: Path
    allow_downgrade: bool
    allow_findings: bool
    yes: bool


def _update(out: Output, options: UpdateOptions) -> None:
    """Print the new version and its diff, ask for confirmation, and update."""
    if not options.path.exists():
        raise StorageError(code="path_missing", path=options.path)
    limits = archive_limits(out.config.settings.install)
    inspection = inspect_skill(options.path, renames=True, limits=limits)
    print_inspection(out, inspection)

    async def change() -> InstallResult:
        async with Runtime.open(out.config) as runtime:
            name = inspection.skill.name
            now, *_ = await runtime.manager.versions.list(name)
            difference = await anyio.to_thread.run_sync(
                partial(_difference, options.path, runtime.store.folder(name), limits)
            )
            # A pinned skill is refused below, so no diff is shown for it.
            if now.sha256 != inspection.sha256 and not now.is_pinned:
                _print_diff(out, difference)
                if not options.yes and not out.confirm("update_ask", name=name):
                    raise PermissionDeniedError(code="not_agreed")
            return await runtime.manager.update(
                options.path,
                expected_sha256=now.sha256,
                allows_older=options.allow_downgrade,
                blocks_at=None if options.allow_findings else "policy",
            )

    done = anyio.run(change)
    print_change(out, done, "updated" if done.has_changed else "update_unchanged")


def _difference(path: Path, now: Path, limits: ArchiveLimits) -> VersionDiff:
    with tempfile.TemporaryDirectory(prefix="apexbridge-") as place:
        return diff_folders(now, stage_skill(path, Path(place), renames=True, limits=limits).root)


def _list_versions(out: Output, name: str) -> None:
    """Print the current version and the stored ones."""

    async def known() -> tuple[Version, ...]:
        async with Runtime.open(out.config) as runtime:
            return await runtime.manager.versions.list(name)

    found = anyio.run(known)
    heads = [out.text(key) for key in ("version_hash", "version", "field_size", "version_since")]
    rows = [(v.sha256[:12], v.declared, str(v.size), _format_replaced_at(out, v)) for v in found]
    out.finish({"versions": [asdict(version) for version in found]}, lambda: out.table(heads, rows))


def _format_replaced_at(out: Output, version: Version) -> str:
    if version.is_current:
        return out.text("version_pinned" if version.is_pinned else "version_now")
    return datetime.fromtimestamp(version.at, UTC).astimezone().isoformat(" ", "seconds")


def _rollback(out: Output, name: str, version: str) -> None:
    """Roll back to a stored version."""

    async def back() -> tuple[InstallResult, Version]:
        async with Runtime.open(out.config) as runtime:
            done = await runtime.manager.versions.rollback(name, version)
            return done, (await runtime.manager.versions.list(name))[0]

    done, now = anyio.run(back)
    print_change(out, done, "rolled_back", version=_version_label(now))


def _pin(out: Output, name: str, version: str) -> None:
    """Pin a skill to a version."""

    async def hold() -> Version:
        async with Runtime.open(out.config) as runtime:
            return await runtime.manager.versions.pin(name, version)

    held = anyio.run(hold)
    line = out.text("pinned", name=name, version=_version_label(held))
    out.finish({"name": name, "pinned": held.sha256}, lambda: out.line(line))


def _unpin(out: Output, name: str) -> None:
    """Unpin a skill."""

    async def unpin() -> bool:
        async with Runtime.open(out.config) as runtime:
            return await runtime.manager.versions.unpin(name)

    has_changed = anyio.run(unpin)
    line = out.text("unpinned" if has_changed else "not_pinned", name=name)
    data = {"name": name, "pinned": None, "changed": has_changed}
    out.finish(data, lambda: out.line(line))


def _version_label(version: Version) -> str:
    return " ".join(filter(None, (version.declared, f"({version.sha256[:12]})")))


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
