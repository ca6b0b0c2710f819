"""`update`: a newer version from a path, or of skills by name from their recorded sources."""

import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio.to_thread

from apexbridge.cli.commands.deps import agrees_to_build, build_installed
from apexbridge.cli.commands.install import change_to_json, print_change, print_inspection
from apexbridge.cli.commands.lock import LockChoice, lock_choice, update_service, write_lock
from apexbridge.cli.commands.versions import print_diff
from apexbridge.cli.output import ExitCode, Output, exit_code_for
from apexbridge.cli.runtime_call import with_runtime
from apexbridge.errors import (
    ApexBridgeError,
    PermissionDeniedError,
    RequestError,
    StorageError,
)
from apexbridge.lifecycle.inspection import Inspection
from apexbridge.lifecycle.transactions import InstallResult
from apexbridge.lifecycle.unpack_and_validate import stage_skill
from apexbridge.lifecycle.version_store import VersionDiff, diff_folders
from apexbridge.lifecycle.zip.limits import ArchiveLimits
from apexbridge.runtime import Runtime
from apexbridge.runtime.update_service import NewVersion, UpdateService
from apexbridge.skills.model import Skill


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateOptions:
    """Options of `update`."""

    allow_downgrade: bool
    allow_findings: bool
    yes: bool
    lock: LockChoice


Results = dict[str, InstallResult | ApexBridgeError]


def update(
    out: Output,
    *,
    targets: list[str] | None,
    every: bool,
    allow_downgrade: bool,
    allow_findings: bool,
    lock: Path | None,
    no_lock: bool,
    yes: bool,
) -> None:
    """Print new versions and their diffs, ask for confirmation, and update."""
    words = targets or []
    if every == bool(words):
        raise RequestError(code="update_targets")
    options = UpdateOptions(
        allow_downgrade=allow_downgrade,
        allow_findings=allow_findings,
        yes=yes,
        lock=lock_choice(out, lock, no_lock=no_lock),
    )
    results = with_runtime(out, lambda runtime: _update(out, runtime, words, options))
    if len(results) == 1 and not every:
        (done,) = results.values()
        if isinstance(done, ApexBridgeError):
            raise done
        print_change(out, done, "updated" if done.has_changed else "update_unchanged")
        return
    _print_results(out, results)


async def _update(
    out: Output, runtime: Runtime, words: Sequence[str], options: UpdateOptions
) -> Results:
    records = await anyio.to_thread.run_sync(runtime.manager.sources.all)
    installer = runtime.installer(allows_ssh=True)
    service = update_service(runtime, installer)
    results: Results = {}
    for word in words or sorted(records):
        change = _Change(out, runtime, options)
        try:
            if word in records:
                results[word] = await change.from_source(service, word)
            else:
                done = await change.from_path(word, has_one=len(words) == 1)
                results[done.skill.name] = done
        except PermissionDeniedError:
            raise  # a person said no, or nobody could be asked: not a failure of one skill
        except ApexBridgeError as error:
            results[word] = error
    for done in results.values():
        if isinstance(done, InstallResult) and done.has_changed:
            await _build_packages(out, runtime, done.skill, yes=options.yes)
    names = [name for name, done in results.items() if isinstance(done, InstallResult)]
    await write_lock(runtime, installer, options.lock, names, adds=False)
    return results


async def _build_packages(out: Output, runtime: Runtime, skill: Skill, *, yes: bool) -> None:
    """Build what a new version declares, where `--yes` agreed to it; else name the command."""
    found = await runtime.dependencies.show(skill)
    agreed = yes and agrees_to_build(out, found.needs, skill.name, yes=True)
    await build_installed(out, runtime, skill, agreed=agreed)


class _Change:
    """One update: report, diff, question, change."""

    def __init__(self, out: Output, runtime: Runtime, options: UpdateOptions) -> None:
        self._out = out
        self._runtime = runtime
        self._options = options

    async def from_source(self, service: UpdateService, name: str) -> InstallResult:
        """Update a skill to the newest state of its source."""
        async with AsyncExitStack() as stack:
            new: NewVersion = await stack.enter_async_context(service.newest(name))
            now, *_ = await self._runtime.manager.versions.list(name)
            if now.sha256 != new.sha256:
                found = await self._runtime.installer().inspect(new.offers, new.skill)
                print_inspection(self._out, found)
                await self._show_and_ask(found, new.skill.path, now_is_pinned=now.is_pinned)
            return await service.update(
                new,
                expected_sha256=now.sha256,
                allows_older=self._options.allow_downgrade,
                allows_findings=self._options.allow_findings,
            )

    async def from_path(self, word: str, *, has_one: bool) -> InstallResult:
        """Update the skill that an archive or folder names."""
        path = self._runtime.config.project / word
        if not path.exists():
            if "/" not in word and word in {s.name for s in self._runtime.catalog.skills}:
                self._runtime.installer().record(word)  # raises: it has no source
            raise StorageError(code="path_missing", path=path if has_one else word)
        manager = self._runtime.manager
        found = await manager.inspect(path, renames="titles")
        print_inspection(self._out, found)
        now, *_ = await manager.versions.list(found.skill.name)
        if now.sha256 != found.sha256:
            await self._show_and_ask(found, path, now_is_pinned=now.is_pinned)
        return await manager.update(
            path,
            expected_sha256=now.sha256,
            allows_older=self._options.allow_downgrade,
            blocks_at=None if self._options.allow_findings else "policy",
        )

    async def _show_and_ask(self, found: Inspection, path: Path, *, now_is_pinned: bool) -> None:
        """Print the diff and ask; a pinned skill is refused later, so no diff is shown for it.

        Raises:
            PermissionDeniedError: `not_agreed`.
        """
        name = found.skill.name
        if now_is_pinned:
            return
        limits = self._runtime.manager.policy.limits
        difference = await anyio.to_thread.run_sync(
            partial(_difference, path, self._runtime.store.folder(name), limits)
        )
        print_diff(self._out, difference)
        if not self._options.yes and not self._out.confirm("update_ask", name=name):
            raise PermissionDeniedError(code="not_agreed")


def _difference(path: Path, now: Path, limits: ArchiveLimits) -> VersionDiff:
    with tempfile.TemporaryDirectory(prefix="apexbridge-") as place:
        return diff_folders(
            now, stage_skill(path, Path(place), renames="titles", limits=limits).root
        )


def _print_results(out: Output, results: Results) -> None:
    """Finish with each result; the exit code is that of the first failure."""
    errors = [done for done in results.values() if isinstance(done, ApexBridgeError)]

    def draw() -> None:
        for name, done in results.items():
            if isinstance(done, InstallResult):
                word = "updated" if done.has_changed else "update_unchanged"
                out.line(out.text(word, name=name))
            else:
                message = done.localized(out.language).message
                out.line(out.text("add_failed", name=name, message=message, code=done.code))
        if not results:
            out.line(out.text("update_nothing"))

    data = {
        "skills": [
            change_to_json(out, done)
            if isinstance(done, InstallResult)
            else {"name": name, "error": {"code": done.code, **done.localized()._asdict()}}
            for name, done in results.items()
        ]
    }
    out.finish(data, draw, exit_code_for(errors[0]) if errors else ExitCode.OK)
