"""Scripts and commands in the sandbox that works here, within the limits that settings have."""

import logging
import math
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import anyio.to_thread

from apexbridge.activation.scripts import ScriptCall, run_script
from apexbridge.audit import AuditLog
from apexbridge.catalog.catalog import Catalog
from apexbridge.catalog.trust import TrustStore, require_trust
from apexbridge.catalog.usage import UsageStore
from apexbridge.errors import ToolFailedError
from apexbridge.runtime.run_store import RunStore
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceControls:
    """What this system has to bound runs with, beyond what every system has."""

    groups: Cgroups | None = None
    users: UidPool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptRunnerDeps:
    """What is asked and written at each run."""

    catalog: Catalog
    trust: TrustStore
    usage: UsageStore
    audit: AuditLog


class ScriptRunner:
    """Finds a sandbox when one is first needed, and lets go of it at the end."""

    def __init__(self, config: Config, books: ScriptRunnerDeps) -> None:
        self._config = config
        self._books = books
        self._choice: SandboxSelection | None = None
        self._choosing = anyio.Lock()
        self.bounds = ResourceControls()
        self._workshop: ScriptExecutor | None = None
        self._stack = ExitStack()
        self._workspaces = Workspaces(config.workspaces)
        self._survey: SandboxSelection | None = None
        self.runs = RunStore(config.data / "runs.db")
        self._stack.callback(self.runs.close)

    def close(self) -> None:
        """Let go of everything."""
        self._stack.close()

    @property
    def sandbox_kind(self) -> str:
        """The sandbox that scripts run in; empty as long as none was tried."""
        if self._choice is None:
            return ""
        return self._choice.sandbox.name if self._choice.sandbox else "none"

    async def choose_sandbox(self, *, tries_all: bool = False) -> SandboxSelection:
        """Find out, by trying, which sandbox works here; once.

        Whoever `tries_all` is told of the others too, also where one was chosen before.
        """
        async with self._choosing:
            if self._choice is None:
                await anyio.to_thread.run_sync(self._workspaces.sweep)
                self.bounds = ResourceControls(groups=Cgroups.detect(), users=UidPool.detect())
                self._choice = await select_backend(
                    self._candidates(self.bounds), tries_all=tries_all
                )
                users = self.bounds.users
                if users is not None and self._choice.sandbox is not None:
                    users.is_enabled = await is_runnable(self._choice.sandbox)
                self._survey = self._choice if tries_all else None
            if tries_all and self._survey is None:
                self._survey = await select_backend(self._candidates(self.bounds), tries_all=True)
            return self._survey if tries_all and self._survey else self._choice

    def _candidates(self, bounds: ResourceControls) -> list[Sandbox]:
        if sys.platform == "darwin":
            return [SeatbeltSandbox()]
        if sys.platform != "linux":
            return []  # a system none of the backends is made for
        launcher = self._stack.enter_context(closing(Launcher(bounds.groups, bounds.users)))
        return [BubblewrapSandbox(launcher), LandlockSandbox(launcher)]

    async def execute(self, call: ScriptCall, *, is_unsafe: bool = False) -> ExecutionResult:
        """Run a skill's script in the sandbox that works here; `is_unsafe` asks for none.

        Raises:
            SandboxUnavailableError: If none does and running without is not allowed.
            ToolInputError: If the skill has no such script.
            PermissionError: If the script is not executable.
            PermissionDeniedError: If nobody approved what the skill holds now.
        """
        await anyio.to_thread.run_sync(
            lambda: require_trust(call.skill, self._books.trust.approved())
        )
        await anyio.to_thread.run_sync(self._books.usage.record, call.skill.name, time.time())
        if call.skill.root is None:
            call = replace(call, skill=await self._with_folder(call.skill))
        call = replace(call, hosts=(*call.hosts, *self._granted_hosts(call.skill)))
        choice = await self.choose_sandbox()
        is_allowed = self._config.settings.sandbox.allow_unsandboxed and choice.sandbox is None
        began, result = time.time(), None
        try:
            if (is_unsafe or is_allowed) and child_process.is_supported():
                result = await self._execute_plain(call, "flag" if is_unsafe else "setting")
            else:
                result = await run_script(call, await self.workshop())
        except anyio.get_cancelled_exc_class():
            self.runs.put(call, None, began=began)
            raise
        self.runs.put(call, result, began=began)
        return result

    async def workshop(self) -> ScriptExecutor:
        """Where commands are run: in the sandbox that works here.

        Raises:
            SandboxUnavailableError: If none does.
        """
        choice = await self.choose_sandbox()
        if self._workshop is None:
            for trial in choice.failed():
                log.warning("%s is there and does not isolate: %s", trial.name, trial.reason)
            self._workshop = self._open_workshop(choice.require())
        return self._workshop

    async def _with_folder(self, skill: Skill) -> Skill:
        """A bundled skill in a zipped package is written out before its scripts can run."""
        source = self._books.catalog.source_of(skill).source
        if isinstance(source, BundledSource):
            return replace(skill, root=await source.folder(skill))
        return skill

    def _granted_hosts(self, skill: Skill) -> Iterator[str]:
        for grant in self._config.settings.sandbox.hosts:
            name, _, host = grant.partition("=")
            if name == skill.name:
                yield host

    async def _execute_plain(self, call: ScriptCall, why: str) -> ExecutionResult:
        """Without isolation, which is said on every run and recorded before it."""
        log.warning("Running a script of %s without isolation", call.skill.name)
        facts = {"skill": call.skill.name, "script": call.script, "by": why}
        await anyio.to_thread.run_sync(lambda: self._books.audit.record("run_unsandboxed", **facts))
        return await run_script(call, ScriptExecutor(UnsandboxedBackend(), self._workspaces))

    def _open_workshop(self, sandbox: Sandbox) -> ScriptExecutor:
        room = self._config.settings.sandbox.warm
        if not room or not isinstance(sandbox, Backend):
            return ScriptExecutor(sandbox, self._workspaces)
        pool = WarmPool(sandbox, self._workspaces, capacity=room)
        return ScriptExecutor(sandbox, self._workspaces, self._stack.enter_context(closing(pool)))

    def limits(self) -> SandboxLimits:
        """The limits of a run, as settings have them."""
        chosen = self._config.settings.sandbox
        return SandboxLimits(
            wall_seconds=chosen.wall_seconds,
            cpu_seconds=math.ceil(chosen.wall_seconds),
            memory_bytes=chosen.memory_mib * MIB,
            output_bytes=chosen.output_mib * MIB,
            workspace_bytes=chosen.workspace_mib * MIB,
            file_bytes=chosen.workspace_mib * MIB,
            processes=chosen.processes,
        )


INLINE_TIMEOUT = 120.0
_SHELLS = {"bash": ("bash", ("--noprofile", "--norc", "-c")), "powershell": ("pwsh", ("-Command",))}


async def run_inline_command(
    executing: ScriptRunner, command: str, *, skill: Skill, cwd: Path
) -> ExecutionResult:
    """Run a command with the skill's folder and the workspace readable, and nothing writable.

    Raises:
        ToolFailedError: If the shell that the skill wants is not here.
        SandboxUnavailableError: If nothing isolates here.
    """
    name, flags = _SHELLS[skill.manifest.shell]
    shell = interpreters.find(name)
    if shell is None:
        raise ToolFailedError(f"there is no {name} here", name=skill.name)
    limits = executing.limits()
    places = [path for path in (cwd, skill.root) if path is not None]
    here, *folder = await anyio.to_thread.run_sync(lambda: [path.resolve() for path in places])
    job = ScriptJob(
        interpreter=shell,
        flags=(*flags, command),
        read=(here, *folder),
        cwd=here,
        env={
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "CLAUDE_SKILL_DIR": str(skill.root or ""),
        },
        limits=replace(limits, wall_seconds=INLINE_TIMEOUT, output_bytes=MIB),
    )
    workshop = await executing.workshop()
    return await workshop.run(job)
