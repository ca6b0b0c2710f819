"""`sync` and `outdated`: the skills of the lock file, and newer states of installed ones."""

from pathlib import Path
from typing import NamedTuple

from apexbridge.cli.commands.install import print_inspection
from apexbridge.cli.commands.lock import update_service
from apexbridge.cli.output import ExitCode, Output, exit_code_for
from apexbridge.cli.runtime_call import with_runtime
from apexbridge.errors import ApexBridgeError, PermissionDeniedError, StorageError
from apexbridge.lifecycle.lockfile import LOCK_FILE
from apexbridge.lifecycle.source_records import display_source
from apexbridge.runtime import Runtime
from apexbridge.runtime.update_service import SyncPlan, UpdateService, UpdateStatus

_SHORT = 12


def sync(out: Output, *, frozen: bool, lock: Path | None, allow_findings: bool, yes: bool) -> None:
    """Install exactly what the lock file says, after everything was fetched and verified."""
    path = out.config.project / (lock or LOCK_FILE)
    if not path.exists():
        raise StorageError(code="path_missing", path=path)

    async def run(runtime: Runtime) -> Synced:
        service = update_service(runtime, runtime.installer(allows_ssh=True))
        async with service.plan_sync(path, is_frozen=frozen) as plan:
            await _confirm(out, runtime, plan, yes=yes)
            errors = await _apply(service, plan, allows_findings=allow_findings)
            if not frozen:
                done = [step.name for step in plan.steps if step.name not in errors]
                await service.write_lock(path, done, adds=True)
        return Synced(plan, errors)

    _print_synced(out, with_runtime(out, run))


class Synced(NamedTuple):
    """A plan that was carried out, and the errors by skill."""

    plan: SyncPlan
    errors: dict[str, ApexBridgeError]


async def _confirm(out: Output, runtime: Runtime, plan: SyncPlan, *, yes: bool) -> None:
    """Show what comes, and ask: a lock file may be part of a cloned repository.

    Raises:
        PermissionDeniedError: `not_agreed`.
    """
    installer = runtime.installer(allows_ssh=True)
    for step in plan.steps:
        print_inspection(out, await installer.inspect(step.new.offers, step.new.skill))
    names = ", ".join(step.name for step in plan.steps)
    if names and not yes and not out.confirm("sync_ask", names=names):
        raise PermissionDeniedError(code="not_agreed")


async def _apply(
    service: UpdateService, plan: SyncPlan, *, allows_findings: bool
) -> dict[str, ApexBridgeError]:
    errors = dict[str, ApexBridgeError]()
    for step in plan.steps:
        try:
            await service.apply(step, allows_findings=allows_findings)
        except ApexBridgeError as error:
            errors[step.name] = error
    return errors


def _print_synced(out: Output, synced: Synced) -> None:
    plan, errors = synced

    def draw() -> None:
        for step in plan.steps:
            error = errors.get(step.name)
            if error is None:
                out.line(out.text("synced", name=step.name))
            else:
                message = error.localized(out.language).message
                out.line(out.text("add_failed", name=step.name, message=message, code=error.code))
        done = len(plan.steps) - len(errors)
        out.line(out.text("sync_total", done=done, same=len(plan.unchanged), failed=len(errors)))

    data = {
        "installed": [step.name for step in plan.steps if step.name not in errors],
        "unchanged": list(plan.unchanged),
        "failed": {
            name: {"code": e.code, **e.localized(out.language)._asdict()}
            for name, e in errors.items()
        },
    }
    first = next(iter(errors.values()), None)
    out.finish(data, draw, exit_code_for(first) if first else ExitCode.OK)


def outdated(out: Output, *, names: list[str] | None) -> None:
    """Print which installed skills their sources have in a newer state."""

    async def run(runtime: Runtime) -> tuple[UpdateStatus, ...]:
        service = update_service(runtime, runtime.installer(allows_ssh=True))
        return await service.outdated(names or ())

    found = with_runtime(out, run)

    def draw() -> None:
        shown = [status for status in found if status.state != "current" or status.is_modified]
        keys = ("name", "state", "field_installed", "field_newest", "field_source")
        if shown:
            out.table([out.text(key) for key in keys], [_row(out, status) for status in shown])
        for status in found:
            if status.error is not None:
                out.note(f"{status.name}: {status.error.localized(out.language).message}")
        is_old = sum(status.state == "outdated" for status in found)
        out.line(out.text("outdated_total", count=is_old, total=len(found)))

    data = {"skills": [_to_json(out, status) for status in found]}
    is_bad = any(status.state in {"outdated", "gone", "failed"} for status in found)
    out.finish(data, draw, ExitCode.FAILURE if is_bad else ExitCode.OK)


def _row(out: Output, status: UpdateStatus) -> tuple[str, ...]:
    states = [out.text(f"update_{status.state}")]
    states += [out.text("update_modified")] if status.is_modified else []
    return (
        status.name,
        ", ".join(states),
        _label(status.version, status.installed),
        _label(status.newest_version, status.newest),
        f"{display_source(status.source)}{'@' if status.ref else ''}{status.ref}",
    )


def _label(version: str, revision: str) -> str:
    short = revision.removeprefix("sha256:")[:_SHORT]
    return " ".join(filter(None, (version, short and f"({short})")))


def _to_json(out: Output, status: UpdateStatus) -> dict[str, object]:
    error = status.error
    return {
        "name": status.name,
        "state": status.state,
        "modified": status.is_modified,
        "source": status.source,
        "ref": status.ref,
        "revision": status.installed,
        "newest_revision": status.newest,
        "version": status.version,
        "newest_version": status.newest_version,
        "error": error and {"code": error.code, **error.localized(out.language)._asdict()},
    }
