"""Runtime: everything there is, for one project."""

import difflib
import logging
import math
import sys
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, closing
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import anyio
import anyio.to_thread

from apexbridge.activation.scripts import ScriptCall, execute_skill
from apexbridge.audit import AuditLog
from apexbridge.catalog.merge import Merged, merge
from apexbridge.errors import SkillNotFoundError, SourceError
from apexbridge.events import CatalogChanged, Event
from apexbridge.extensions import Extensions
from apexbridge.retrieval.results import Results
from apexbridge.runtime.places import find_sources
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
from apexbridge.skills.model import Problem, Skill, SkillContent
from apexbridge.sources.base import Scan, SkillSource

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """A source, and what came of scanning it."""

    source: SkillSource
    scan: Scan


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
        self.catalog = Merged()
        self.sources: tuple[SourceState, ...] = ()
        self._sinks = extensions.event_sinks()
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
        cls, loaded: Loaded | None = None, *, extensions: Extensions | None = None
    ) -> AsyncGenerator[Self]:
        """Build everything, scan every source, and take it down at the end of the block.

        Raises:
            ConfigError: If the settings or an extension make no sense.
        """
        runtime = cls(loaded or load(), extensions or Extensions.installed())
        with runtime._stack:
            try:
                await runtime.refresh()
                yield runtime
            finally:
                if "searching" in vars(runtime):
                    await runtime.searching.close()

    async def refresh(self) -> None:
        """Scan every source again; one that is down is a problem beside the others."""
        found, outside = find_sources(self.loaded)
        sources = (*found, *self.extensions.sources(self.loaded.project))
        scans: dict[str, Scan] = {}

        async def scan(source: SkillSource) -> None:
            try:
                scans[source.id] = await source.scan()
            except SourceError as error:
                down = Problem(code=error.code, where=source.id, details=error.details)
                scans[source.id] = Scan(problems=(down,))

        async with anyio.create_task_group() as tasks:
            for source in sources:
                tasks.start_soon(scan, source)
        self.sources = tuple(SourceState(source=s, scan=scans[s.id]) for s in sources)
        order = [state.scan for state in self.sources]
        before = self.catalog
        precedence = self.loaded.settings.skills.precedence
        self.catalog = merge((*order, Scan(problems=tuple(outside))), precedence)
        self._announce(before, self.catalog)

    def _announce(self, before: Merged, after: Merged) -> None:
        old = {skill.name: skill.fingerprint for skill in before.skills}
        new = {skill.name: skill.fingerprint for skill in after.skills}
        event = CatalogChanged(
            added=tuple(name for name in new if name not in old),
            removed=tuple(name for name in old if name not in new),
            changed=tuple(name for name in new if name in old and old[name] != new[name]),
            cause="refresh",
        )
        if event.added or event.removed or event.changed:
            self.emit(event)

    def emit(self, event: Event) -> None:
        """Tell every listener."""
        for sink in self._sinks:
            sink(event)

    def skill(self, name: str) -> Skill:
        """Find a skill by name.

        Raises:
            SkillNotFoundError: With the names that come near.
        """
        wanted = name.strip().removeprefix("/")
        for skill in self.catalog.skills:
            if skill.name == wanted:
                return skill
        known = [skill.name for skill in self.catalog.skills]
        raise SkillNotFoundError(wanted, near=difflib.get_close_matches(wanted, known, n=3))

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

        return Searching(self.loaded, lambda: self.catalog.skills, self.content)

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
                skill=self.skill(name),
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
        """
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
        states = [s for s in self.sources if s.source.id == skill.provenance.source_id]
        return tuple(problem for state in states for problem in state.scan.problems)

    async def content(self, skill: Skill) -> SkillContent:
        """Read a skill's body through the source that listed it."""
        for state in self.sources:
            if state.source.id == skill.provenance.source_id:
                return await state.source.content(skill)
        raise SkillNotFoundError(skill.name)
