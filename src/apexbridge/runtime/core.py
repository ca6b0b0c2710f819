"""Runtime: everything there is, for one project."""

import logging
import math
import sys
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, closing, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Self

import anyio
import anyio.to_thread

from apexbridge.activation.scripts import ScriptCall, execute_skill
from apexbridge.audit import AuditLog
from apexbridge.catalog.catalog import Catalog, Rules, Touched
from apexbridge.catalog.trust import TrustStore, refuse_untrusted
from apexbridge.catalog.usage import UsageStore
from apexbridge.catalog.waking import Waking
from apexbridge.events import Cause, Event
from apexbridge.extensions import Extensions
from apexbridge.lifecycle.states import States
from apexbridge.lifecycle.store import SkillStore
from apexbridge.retrieval.results import Results
from apexbridge.runtime.living import Living, beside
from apexbridge.runtime.places import Places
from apexbridge.sandbox import spawn
from apexbridge.sandbox.base import MIB, ExecutionResult, Sandbox, SandboxLimits
from apexbridge.sandbox.bubblewrap import BubblewrapSandbox
from apexbridge.sandbox.cgroup import Cgroups
from apexbridge.sandbox.ladder import Choice, can_run, choose
from apexbridge.sandbox.landlock import LandlockSandbox
from apexbridge.sandbox.launcher import Launcher
from apexbridge.sandbox.plain import PlainSandbox
from apexbridge.sandbox.pool import WarmPool
from apexbridge.sandbox.process import Backend
from apexbridge.sandbox.seatbelt import SeatbeltSandbox
from apexbridge.sandbox.users import SlotUsers
from apexbridge.sandbox.workshop import Workshop
from apexbridge.sandbox.workspace import Workspaces
from apexbridge.settings import Loaded, load
from apexbridge.skills.model import Origin, Problem, Skill
from apexbridge.sources.bundled import BundledSource
from apexbridge.sources.nested import Nesting
from apexbridge.sources.remembered import ScanMemory

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What this system has to bound runs with, beyond what every system has."""

    groups: Cgroups | None = None
    users: SlotUsers | None = None


class Runtime:
    """Sources, catalogue and everything built on them, for one project."""

    def __init__(self, loaded: Loaded, extensions: Extensions) -> None:
        self.loaded = loaded
        self.extensions = extensions
        self._sinks = extensions.event_sinks()
        self.trust = TrustStore(loaded.data / "trust.db")
        self.usage = UsageStore(loaded.data / "usage.db")
        self.store = SkillStore(loaded.data / "skills")
        self.states = States(loaded.data / "states.json")
        memory = ScanMemory(loaded.data / "scans.db")
        places = Places(loaded, memory, lambda source_id: self.living.changed(source_id))
        found, outside = places.sources()
        rules = Rules(
            precedence=loaded.settings.skills.precedence,
            trust=self.trust,
            nesting=Nesting(loaded.project, loaded.settings.skills.project_paths),
            nested=places.nested,
            disabled=self.states.disabled,
        )
        given = extensions.sources(loaded.project)
        self.catalog = Catalog((*found, *given), rules, self.emit, outside)
        watches = loaded.settings.skills.watch
        self.living = Living(self.catalog, self._follow, watches=watches)
        self._choice: Choice | None = None
        self._choosing = anyio.Lock()
        self.bounds = Bounds()
        self.audit = AuditLog(loaded.data / "audit.jsonl")
        self._workshop: Workshop | None = None
        self._stack = ExitStack()
        self._workspaces = Workspaces(loaded.workspaces)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        loaded: Loaded | None = None,
        *,
        extensions: Extensions | None = None,
        lives: bool = False,
    ) -> AsyncGenerator[Self]:
        """Build everything, scan every source, and take it down at the end of the block.

        One that `lives` sees changes on disk and of servers as they happen, its index too; it
        must be closed by the task that opened it.

        Raises:
            ConfigError: If the settings or an extension make no sense.
        """
        runtime = cls(loaded or load(), extensions or Extensions.installed())
        with runtime._stack:
            try:
                await runtime._recover()
                if lives:
                    await runtime.living.begin()
                else:
                    await runtime.refresh()
                async with beside(runtime.living.run) if lives else nullcontext():
                    yield runtime
            finally:
                try:
                    if "searching" in vars(runtime):
                        with anyio.CancelScope(shield=True):
                            await runtime.searching.close()
                finally:
                    await runtime.catalog.close()
                    runtime.usage.close()

    async def _follow(self, names: Collection[str]) -> None:
        """Bring the index up to a change, if anyone has asked for the index."""
        if "searching" in vars(self):
            await self.searching.vectorise(only=names)

    async def _recover(self) -> None:
        """Do away with what a crash left unfinished, before anything is read."""
        keep = self.loaded.settings.skills.undo_days * 86_400
        found = await anyio.to_thread.run_sync(partial(self.store.recover, keep_seconds=keep))
        if found.unfinished or found.expired:
            log.info("Left over: %d unfinished, %d expired", found.unfinished, found.expired)

    @cached_property
    def manager(self):  # its type would load what it is made of
        """Installs, edits and removes skills."""
        from apexbridge.lifecycle.manager import SkillManager, Surroundings

        return SkillManager(
            self.store,
            self.states,
            self.audit,
            Surroundings(
                find=self.catalog.get,
                known=lambda: {skill.name: skill.summary for skill in self.catalog.skills},
                embed=lambda skill, body: self.searching.make_entry(skill, body),
                put=lambda skill, entry: self.searching.put_entry(skill, entry),
                follow=self._follow_name,
            ),
        )

    async def _follow_name(self, name: str, cause: Cause) -> None:
        """Bring catalogue and index up to what lies on disk under a name."""
        await self.catalog.refresh([f"{Origin.INSTALLED}:{self.store.root}"], cause=cause)
        if "searching" in vars(self):
            await self.searching.vectorise(only=[name])

    async def touch(self, paths: Iterable[Path], waking: Waking) -> Touched:
        """Wake and find the skills that touched files concern; the index takes in new ones."""
        touched = await self.catalog.touch(paths, waking)
        if touched.found:
            await self._follow(touched.found)
        return touched

    async def refresh(self) -> None:
        """Scan every source again; one that is down is a problem beside the others."""
        await self.catalog.refresh()

    def emit(self, event: Event) -> None:
        """Tell every listener; one that fails keeps nothing from the others, and ends nothing."""
        for sink in self._sinks:
            try:
                sink(event)
            except Exception:
                log.warning("A listener failed", exc_info=True)

    async def approve(self, skills: Sequence[Skill]) -> None:
        """Let skills act in the state they are in: run scripts and hooks, lend tools.

        Raises:
            StorageError: If the approval cannot be written down.
        """
        await self._change_trust("trust", skills, lambda: self.trust.approve(skills, time.time()))

    async def revoke(self, skills: Sequence[Skill]) -> None:
        """Take approvals back; from now on the skills can only be read.

        Raises:
            StorageError: If that cannot be written down.
        """
        marks = [skill.fingerprint.sha256 for skill in skills if skill.fingerprint]
        await self._change_trust("untrust", skills, lambda: self.trust.revoke(marks))

    async def _change_trust(
        self, what: str, skills: Sequence[Skill], change: Callable[[], None]
    ) -> None:
        facts = [
            {"skill": s.name, "sha256": s.fingerprint.sha256 if s.fingerprint else ""}
            for s in skills
        ]

        def recorded() -> None:
            for fact in facts:
                self.audit.record(what, **fact)
            change()

        await anyio.to_thread.run_sync(recorded)
        await self.catalog.settle()

    async def choose_sandbox(self, *, tries_all: bool = False) -> Choice:
        """Find out, by trying, which sandbox works here; once."""
        async with self._choosing:
            if self._choice is None:
                await anyio.to_thread.run_sync(self._workspaces.sweep)
                self.bounds = Bounds(groups=Cgroups.detect(), users=SlotUsers.detect())
                self._choice = await choose(self._candidates(self.bounds), tries_all=tries_all)
                users = self.bounds.users
                if users is not None and self._choice.sandbox is not None:
                    users.is_enabled = await can_run(self._choice.sandbox)
            return self._choice

    def _candidates(self, bounds: Bounds) -> list[Sandbox]:
        if sys.platform == "darwin":
            return [SeatbeltSandbox()]
        if sys.platform != "linux":
            return []  # a system none of the backends is made for
        launcher = self._stack.enter_context(closing(Launcher(bounds.groups, bounds.users)))
        return [BubblewrapSandbox(launcher), LandlockSandbox(launcher)]

    @cached_property
    def searching(self):  # its type would load what it is made of
        """The index and all that is done with it; nothing is loaded before it is asked for."""
        from apexbridge.runtime.searching import Searching

        catalog = self.catalog
        return Searching(self.loaded, lambda: catalog.snapshot.skills, catalog.content, self.usage)

    async def search(
        self,
        query: str,
        *,
        query_en: str | None = None,
        query_zh: str | None = None,
        limit: int = 5,
    ) -> Results:
        """Find the skills that fit a request best; brings the index up to date on first use."""
        index = await self.searching.index()
        return await index.search(query, query_en=query_en, query_zh=query_zh, limit=limit)

    async def execute_skill(
        self, name: str, arguments: Sequence[str] = (), *, script: str = ""
    ) -> ExecutionResult:
        """Run a skill's script by the skill's name, within the limits that settings have.

        Raises:
            SkillNotFoundError: If there is no such skill.
            SandboxUnavailableError: If nothing isolates here and running without is not allowed.
            ToolInputError: If the skill has no such script.
            PermissionError: If the script is not executable.
        """
        return await self.execute(
            ScriptCall(
                skill=self.catalog.get(name),
                script=script,
                arguments=tuple(arguments),
                limits=self.limits(),
            )
        )

    async def execute(self, call: ScriptCall, *, is_unsafe: bool = False) -> ExecutionResult:
        """Run a skill's script in the sandbox that works here; `is_unsafe` asks for none.

        Raises:
            SandboxUnavailableError: If none does and running without is not allowed.
            ToolInputError: If the skill has no such script.
            PermissionError: If the script is not executable.
            PermissionDeniedError: If nobody approved what the skill holds now.
        """
        await anyio.to_thread.run_sync(lambda: refuse_untrusted(call.skill, self.trust.approved()))
        await anyio.to_thread.run_sync(self.usage.record, call.skill.name, time.time())
        if call.skill.root is None:
            call = replace(call, skill=await self._with_folder(call.skill))
        call = replace(call, hosts=(*call.hosts, *self._granted_hosts(call.skill)))
        choice = await self.choose_sandbox()
        is_allowed = self.loaded.settings.sandbox.allow_unsandboxed and choice.sandbox is None
        if (is_unsafe or is_allowed) and spawn.is_supported():
            return await self._execute_plain(call, "flag" if is_unsafe else "setting")
        if self._workshop is None:
            for trial in choice.failed():
                log.warning("%s is there and does not isolate: %s", trial.name, trial.reason)
            self._workshop = self._open_workshop(choice.require())
        return await execute_skill(call, self._workshop)

    async def _with_folder(self, skill: Skill) -> Skill:
        """A bundled skill in a zipped package is written out before its scripts can run."""
        source = self.catalog.source_of(skill).source
        if isinstance(source, BundledSource):
            return replace(skill, root=await source.folder(skill))
        return skill

    def _granted_hosts(self, skill: Skill) -> Iterator[str]:
        for grant in self.loaded.settings.sandbox.hosts:
            name, _, host = grant.partition("=")
            if name == skill.name:
                yield host

    async def _execute_plain(self, call: ScriptCall, why: str) -> ExecutionResult:
        """Without isolation, which is said on every run and recorded before it."""
        log.warning("Running a script of %s without isolation", call.skill.name)
        facts = {"skill": call.skill.name, "script": call.script, "by": why}
        await anyio.to_thread.run_sync(lambda: self.audit.record("run_unsandboxed", **facts))
        return await execute_skill(call, Workshop(PlainSandbox(), self._workspaces))

    def _open_workshop(self, sandbox: Sandbox) -> Workshop:
        room = self.loaded.settings.sandbox.warm
        if not room or not isinstance(sandbox, Backend):
            return Workshop(sandbox, self._workspaces)
        pool = WarmPool(sandbox, self._workspaces, room=room)
        return Workshop(sandbox, self._workspaces, self._stack.enter_context(closing(pool)))

    def limits(self) -> SandboxLimits:
        """The limits of a run, as settings have them."""
        chosen = self.loaded.settings.sandbox
        return SandboxLimits(
            wall_seconds=chosen.wall_seconds,
            cpu_seconds=math.ceil(chosen.wall_seconds),
            memory_bytes=chosen.memory_mib * MIB,
            output_bytes=chosen.output_mib * MIB,
            workspace_bytes=chosen.workspace_mib * MIB,
            file_bytes=chosen.workspace_mib * MIB,
            processes=chosen.processes,
        )

    def problems_of(self, skill: Skill) -> tuple[Problem, ...]:
        """What the skill's own source found wrong with what it holds."""
        return self.catalog.source_of(skill).scan.problems
