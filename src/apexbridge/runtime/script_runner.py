"""Script runner: run skill scripts and inline commands in the strongest sandbox that works here."""

import logging
import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from apexbridge.activation.scripts import ScriptCall, run_script
from apexbridge.audit import AuditLog
from apexbridge.catalog.catalog import Catalog
from apexbridge.catalog.trust import TrustStore, require_trust
from apexbridge.catalog.usage import UsageStore
from apexbridge.errors import SandboxUnavailableError, ToolFailedError
from apexbridge.lifecycle.store import SkillStore
from apexbridge.runtime.dependency_service import DependencyService
from apexbridge.runtime.file_store import FileStore, new_id, put_or_warn
from apexbridge.runtime.permission_rules import permission_rules, refuse_denied_script
from apexbridge.runtime.protected_paths import protected_paths
from apexbridge.runtime.run_store import RunStore
from apexbridge.runtime.script_secrets import ScriptSecrets
from apexbridge.sandbox import child_process, interpreters
from apexbridge.sandbox.backend_selection import SandboxSelection, is_runnable, select_backend
from apexbridge.sandbox.backends import (
    BubblewrapSandbox,
    LandlockSandbox,
    SeatbeltSandbox,
    UnsandboxedBackend,
)
from apexbridge.sandbox.base import MIB, ExecutionResult, Sandbox, SandboxLimits
from apexbridge.sandbox.cgroup import Cgroups
from apexbridge.sandbox.execution import Backend
from apexbridge.sandbox.launcher import Launcher
from apexbridge.sandbox.script_executor import ScriptExecutor, ScriptJob
from apexbridge.sandbox.uid_pool import UidPool
from apexbridge.sandbox.warm_pool import WarmPool
from apexbridge.sandbox.workspace import Workspaces
from apexbridge.settings import Config
from apexbridge.skills.model import Skill
from apexbridge.sources.bundled import BundledSource

log = logging.getLogger(__name__)


INLINE_TIMEOUT = 120.0
_SHELLS = {"bash": ("bash", ("--noprofile", "--norc", "-c")), "powershell": ("pwsh", ("-Command",))}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceControls:
    """Optional resource limits of this machine: cgroups, and one uid for each running script."""

    groups: Cgroups | None = None
    users: UidPool | None = None


class ScriptRunner:
    """Select a sandbox backend at the first use, and run scripts in it; records every run."""

    def __init__(
        self,
        config: Config,
        catalog: Catalog,
        trust: TrustStore,
        usage: UsageStore,
        audit: AuditLog,
        skills: SkillStore,
    ) -> None:
        self._config, self._catalog = config, catalog
        self.dependencies = DependencyService(config, skills, audit, self.select_sandbox)
        self._trust, self._usage, self._audit = trust, usage, audit
        self._rules = tuple(permission_rules(config))
        self._selection: SandboxSelection | None = None
        self._full_selection: SandboxSelection | None = None
        self._selection_lock = anyio.Lock()
        self.controls = ResourceControls()
        self._executor: ScriptExecutor | None = None
        self._stack = ExitStack()
        self._workspaces = Workspaces(config.workspaces)
        self.runs = RunStore(config.data / "runs.db")
        sandbox = config.settings.sandbox
        self.files = FileStore(
            config.data / "files",
            max_bytes=sandbox.kept_files_mib * MIB,
            days=sandbox.kept_files_days,
        )
        self._stack.callback(self.runs.close)

    def close(self) -> None:
        """Stop the launcher and the warm pool, and close the run history."""
        self._stack.close()

    @property
    def sandbox_kind(self) -> str:
        """Return the name of the selected backend; empty before the first selection."""
        if self._selection is None:
            return ""
        return self._selection.sandbox.name if self._selection.sandbox else "none"

    async def select_sandbox(self, *, tries_all: bool = False) -> SandboxSelection:
        """Probe the backends, and select the first that isolates; once a process.

        With `tries_all` the result has a trial of every backend, for diagnostics.
        """
        async with self._selection_lock:
            if self._selection is None:
                await anyio.to_thread.run_sync(self._workspaces.sweep)
                await anyio.to_thread.run_sync(self.files.expire)
                self.controls = ResourceControls(groups=Cgroups.detect(), users=UidPool.detect())
                self._selection = await select_backend(
                    self._candidates(self.controls), tries_all=tries_all
                )
                users = self.controls.users
                if users is not None and self._selection.sandbox is not None:
                    users.is_enabled = await is_runnable(self._selection.sandbox)
                self._full_selection = self._selection if tries_all else None
            if tries_all and self._full_selection is None:
                candidates = self._candidates(self.controls)
                self._full_selection = await select_backend(candidates, tries_all=True)
            return self._full_selection if tries_all and self._full_selection else self._selection

    def _candidates(self, controls: ResourceControls) -> list[Sandbox]:
        if sys.platform == "darwin":
            return [SeatbeltSandbox()]
        if sys.platform != "linux":
            return []
        launcher = self._stack.enter_context(closing(Launcher(controls.groups, controls.users)))
        return [BubblewrapSandbox(launcher), LandlockSandbox(launcher)]

    async def execute(self, call: ScriptCall, *, is_unsafe: bool = False) -> ExecutionResult:
        """Run a skill's script in the selected sandbox; `is_unsafe` runs it without one.

        The files that it made are part of the result, and are kept for some days.

        Raises:
            SandboxUnavailableError: If no backend isolates and running without is not allowed.
            ToolInputError: If the skill has no such script.
            PermissionError: If the script is not executable.
            PermissionDeniedError: By a deny rule, or if its present content is not trusted.
        """
        refuse_denied_script(self._rules, call.skill.name, call.script)
        call = replace(call, skill=await self._catalog.recheck(call.skill))
        await anyio.to_thread.run_sync(self._require_trust, call.skill)
        await anyio.to_thread.run_sync(self._usage.record, call.skill.name, time.time())
        secrets = await self._prepare_secrets(call, is_unsafe=is_unsafe)
        call = secrets.call if secrets else call
        if call.skill.root is None:
            call = replace(call, skill=await self._extract_bundled(call.skill))
        call = replace(call, hosts=(*call.hosts, *self._granted_hosts(call.skill)))
        await self.dependencies.build_by_setting(call.skill)
        selection = await self.select_sandbox()
        is_allowed = self._config.settings.sandbox.allow_unsandboxed and selection.sandbox is None
        began, result, run_id = time.time(), None, new_id("run")
        try:
            if (is_unsafe or is_allowed) and child_process.is_supported():
                result = await self._execute_unsandboxed(call, "flag" if is_unsafe else "setting")
            else:
                prepare = self.dependencies.preparer(call.skill)
                result = await run_script(call, await self.executor(), prepare)
                result = await self.dependencies.explain(call, result)
        except anyio.get_cancelled_exc_class():
            self.runs.put(call, None, began=began, run_id=run_id)
            raise
        result = await anyio.to_thread.run_sync(secrets.redact, result) if secrets else result
        self.runs.put(call, result, began=began, run_id=run_id)
        keep = partial(put_or_warn, self.files, run_id, call.owner, result.produced)
        folder = await anyio.to_thread.run_sync(keep) if result.produced else None
        return replace(result, run_id=run_id, folder=folder)

    async def _prepare_secrets(self, call: ScriptCall, *, is_unsafe: bool) -> ScriptSecrets | None:
        """Prepare the secrets that a skill declares; nothing is loaded for one without any.

        Raises:
            PermissionDeniedError: If a required one was not given or granted.
            SandboxUnavailableError: Where there is no egress proxy, which alone knows the values.
        """
        if not call.skill.manifest.secrets:
            return None
        from apexbridge.runtime.secret_preparation import prepare_secrets

        prepared = await anyio.to_thread.run_sync(prepare_secrets, call, self._config, self._audit)
        if prepared is not None:
            selection = await self.select_sandbox()
            if is_unsafe or not isinstance(selection.sandbox, BubblewrapSandbox):
                raise SandboxUnavailableError(code="secrets_need_proxy", name=call.skill.name)
        return prepared

    async def run_inline_command(self, command: str, *, skill: Skill, cwd: Path) -> ExecutionResult:
        """Run a shell command; skill and working directory are readable, nothing is writable.

        Raises:
            ToolFailedError: If the shell that the skill declares is not installed.
            SandboxUnavailableError: If no backend isolates.
        """
        name, flags = _SHELLS[skill.manifest.shell]
        shell = interpreters.find(name)
        if shell is None:
            raise ToolFailedError(f"there is no {name} here", name=skill.name)
        directories = [path for path in (cwd, skill.root) if path is not None]
        readable = await anyio.to_thread.run_sync(_resolve_all, directories)
        job = ScriptJob(
            interpreter=shell,
            flags=(*flags, command),
            read=readable,
            cwd=readable[0],
            env={
                "PATH": "/usr/local/bin:/usr/bin:/bin",
                "LANG": "C.UTF-8",
                "CLAUDE_SKILL_DIR": str(skill.root or ""),
            },
            limits=replace(self.limits(), wall_seconds=INLINE_TIMEOUT, output_bytes=MIB),
        )
        return await (await self.executor()).run(job)

    async def executor(self) -> ScriptExecutor:
        """Return the executor of the selected sandbox."""
        selection = await self.select_sandbox()
        if self._executor is None:
            for trial in selection.failed():
                log.warning("Sandbox %s does not isolate: %s", trial.name, trial.reason)
            self._executor = self._create_executor(selection.require())
        return self._executor

    def limits(self) -> SandboxLimits:
        """Return the resource limits of a run by settings."""
        chosen = self._config.settings.sandbox
        return SandboxLimits(
            wall_seconds=chosen.timeout_seconds,
            cpu_seconds=math.ceil(chosen.timeout_seconds),
            memory_bytes=chosen.memory_mib * MIB,
            output_bytes=chosen.output_mib * MIB,
            workspace_bytes=chosen.workspace_mib * MIB,
            file_bytes=chosen.workspace_mib * MIB,
            processes=chosen.processes,
        )

    def _require_trust(self, skill: Skill) -> None:
        require_trust(skill, self._trust.approved())

    async def _extract_bundled(self, skill: Skill) -> Skill:
        """Extract a bundled skill of a zipped package to disk, where its scripts can run."""
        source = self._catalog.source_of(skill).source
        if isinstance(source, BundledSource):
            return replace(skill, root=await source.folder(skill))
        return skill

    def _granted_hosts(self, skill: Skill) -> Iterator[str]:
        for grant in self._config.settings.sandbox.hosts:
            name, _, host = grant.partition("=")
            if name == skill.name:
                yield host

    async def _execute_unsandboxed(self, call: ScriptCall, why: str) -> ExecutionResult:
        log.warning("Running a script of %s without a sandbox", call.skill.name)
        record = partial(
            self._audit.record, "run_unsandboxed", skill=call.skill.name, script=call.script, by=why
        )
        # Audited before it runs: a run that cannot be recorded must not happen.
        await anyio.to_thread.run_sync(record)
        prepare = self.dependencies.preparer(call.skill)
        executor = ScriptExecutor(UnsandboxedBackend(), self._workspaces)
        return await self.dependencies.explain(call, await run_script(call, executor, prepare))

    def _create_executor(self, sandbox: Sandbox) -> ScriptExecutor:
        protected = _resolve_all(protected_paths(self._config))
        pool_size = self._config.settings.sandbox.warm_pool_size
        if not pool_size or not isinstance(sandbox, Backend):
            return ScriptExecutor(sandbox, self._workspaces, protected=protected)
        pool = WarmPool(sandbox, self._workspaces, capacity=pool_size)
        self._stack.enter_context(closing(pool))
        return ScriptExecutor(sandbox, self._workspaces, pool, protected=protected)


def _resolve_all(paths: Sequence[Path]) -> tuple[Path, ...]:
    return tuple(path.resolve() for path in paths)
