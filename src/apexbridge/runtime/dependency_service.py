"""Dependencies of skills: lock, build with consent, use at a start, remove when unused."""

import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from apexbridge.activation.script_command import PreparedInterpreter, PrepareInterpreter
from apexbridge.activation.scripts import ScriptCall
from apexbridge.audit import AuditLog
from apexbridge.environments.build_sandbox import BuildLimits, BuildSandbox
from apexbridge.environments.import_scan import distributions_of
from apexbridge.environments.installed import require_dependencies
from apexbridge.environments.lookup import (
    ECOSYSTEMS,
    EnvironmentLookup,
    SkillDependencies,
    lock_key,
)
from apexbridge.environments.needs import Ecosystem, SkillNeeds
from apexbridge.environments.node_builder import NodeBuilder
from apexbridge.environments.package_index import PackageIndex, find_index
from apexbridge.environments.python_builder import PythonBuilder, python_mounts
from apexbridge.environments.selection import select
from apexbridge.environments.store import Environment, EnvironmentStore, Lock
from apexbridge.errors import DependencyError, PermissionDeniedError, ScriptStartError
from apexbridge.lifecycle.store import SkillStore
from apexbridge.sandbox import interpreters
from apexbridge.sandbox.backend_selection import SandboxSelection
from apexbridge.sandbox.backends import BubblewrapSandbox, UnsandboxedBackend
from apexbridge.sandbox.base import MIB, ExecutionResult, Sandbox
from apexbridge.sandbox.interpreters import Interpreter
from apexbridge.settings import Config
from apexbridge.skills import tree
from apexbridge.skills.model import Fingerprint, Skill

log = logging.getLogger(__name__)

_MODULE_MISSING = re.compile(
    rb"ModuleNotFoundError: No module named '([^'\n]+)'"
    rb"|Cannot find (?:package|module) '([@\w][^'\n]*)'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildReport:
    """Result of a build."""

    skill: str
    environments: dict[Ecosystem, Environment]
    dropped: tuple[str, ...] = ()
    """Guesses that the package index does not have."""


class DependencyService:
    """Resolve, build and select environments for the skills of one data folder."""

    def __init__(
        self,
        config: Config,
        skills: SkillStore,
        audit: AuditLog,
        select_sandbox: Callable[[], Awaitable[SandboxSelection]],
    ) -> None:
        self._config, self._skills, self._audit = config, skills, audit
        self._select_sandbox = select_sandbox
        self.store = EnvironmentStore(config.data / "environments")
        self._lookup = EnvironmentLookup(self.store)
        self._building = anyio.Lock()
        self._failed = set[str]()

    def is_allowed(self, *, agreed: bool) -> bool:
        """Return whether packages may be built: by the setting, or because a person agreed."""
        policy = self._config.settings.dependencies.build
        return policy == "always" or (policy == "ask" and agreed)

    async def show(self, skill: Skill, *, verifies: bool = False) -> SkillDependencies:
        """Read what a skill needs and what is there; `verifies` reads its environments' files."""
        return await anyio.to_thread.run_sync(
            partial(self._lookup.show, skill, verifies=verifies), abandon_on_cancel=True
        )

    async def lacks(self, needs: SkillNeeds) -> bool:
        """Return whether a build would be needed for a skill that is not installed yet."""
        return await anyio.to_thread.run_sync(self._lookup.lacks, needs)

    async def lock(self, skill: Skill, *, upgrades: bool = False) -> dict[Ecosystem, Lock]:
        """Resolve what is missing to exact versions with hashes; `upgrades` resolves anew.

        Raises:
            PermissionDeniedError: If the setting forbids it.
            DependencyError: If there is no resolution, or no sandbox for it.
        """
        self._require_allowed()
        async with self._building_for(skill):
            found = await self.show(skill)
            return {one: await self._lock(found, one, upgrades=upgrades)
                    for one in ECOSYSTEMS if _is_needed(found, one, upgrades=upgrades)}  # fmt: skip

    async def build(self, skill: Skill, *, upgrades: bool = False) -> BuildReport:
        """Build what a skill needs, for a person or key that agreed to it.

        What exists is used; nothing is half there afterwards, whatever fails.

        Raises:
            PermissionDeniedError: If the setting forbids it.
            DependencyError: If it fails; the reason is in it.
        """
        self._require_allowed()
        async with self._building_for(skill):
            found = await self.show(skill)
            built, dropped = dict(found.environments), list[str]()
            for ecosystem in ECOSYSTEMS:
                if _is_needed(found, ecosystem, upgrades=upgrades):
                    lock = await self._lock(found, ecosystem, upgrades=upgrades)
                    dropped += lock.dropped
                    if lock.packages:
                        built[ecosystem] = await self._build(skill, lock)
            keys = {str(one): environment.key for one, environment in built.items()}
            await anyio.to_thread.run_sync(self._lookup.record, skill, keys)
        return BuildReport(skill=skill.name, environments=built, dropped=tuple(dropped))

    async def build_by_setting(self, skill: Skill) -> None:
        """Build at a first run if the setting says so; a failure is told by the run itself."""
        key = skill.fingerprint.sha256 if skill.fingerprint else skill.name
        if self._config.settings.dependencies.build != "always" or key in self._failed:
            return
        try:
            if (await self.show(skill)).missing:
                await self.build(skill)
        except DependencyError as error:
            self._failed.add(key)
            log.warning("Cannot build the packages of %s: %s", skill.name, error)

    @asynccontextmanager
    async def _building_for(self, skill: Skill) -> AsyncGenerator[None]:
        """Build one at a time: a second request for the same packages finds them built."""
        async with self._building:
            try:
                yield
            except DependencyError as error:
                error.details["skill"] = skill.name  # for the command in the hint
                raise

    def _require_allowed(self) -> None:
        if not self.is_allowed(agreed=True):
            raise PermissionDeniedError(code="dependencies_disabled")

    async def _lock(
        self, found: SkillDependencies, ecosystem: Ecosystem, *, upgrades: bool
    ) -> Lock:
        interpreter = await self._interpreter(ecosystem)
        texts = found.needs.texts(ecosystem)
        key = await anyio.to_thread.run_sync(lock_key, ecosystem, texts, interpreter)
        known = await anyio.to_thread.run_sync(self.store.lock_of, key)
        if known is not None and not upgrades:
            return known
        builder = await self._builder(ecosystem, interpreter)
        lock = await builder.lock(found.needs.required(ecosystem))
        await anyio.to_thread.run_sync(self.store.put_lock, key, lock)
        return lock

    async def _build(self, skill: Skill, lock: Lock) -> Environment:
        builder = await self._builder(lock.ecosystem, await self._interpreter(lock.ecosystem))
        packages = ", ".join(lock.packages)
        record = partial(
            self._audit.record, "build_environment", skill=skill.name, packages=packages
        )
        # Audited before anything is fetched: a build that cannot be recorded must not happen.
        await anyio.to_thread.run_sync(record)
        return await builder.build(lock)

    async def _interpreter(self, ecosystem: Ecosystem) -> Interpreter:
        found = await anyio.to_thread.run_sync(interpreters.find, ecosystem)
        if found is None:
            raise DependencyError(code="dependencies_tool", tool=ecosystem)
        return found

    async def _builder(
        self, ecosystem: Ecosystem, interpreter: Interpreter
    ) -> PythonBuilder | NodeBuilder:
        index = await anyio.to_thread.run_sync(self._index, ecosystem)
        sandbox, is_isolated = await self._sandbox()
        chosen = self._config.settings.dependencies
        is_python = ecosystem == "python"
        build = BuildSandbox(
            sandbox=sandbox,
            limits=BuildLimits(seconds=chosen.timeout_seconds, bytes=chosen.max_mib * MIB),
            is_isolated=is_isolated,
            read=python_mounts(interpreter) if is_python else interpreter.prefix,
        )
        if is_python:
            return PythonBuilder(store=self.store, sandbox=build, index=index, python=interpreter)
        return NodeBuilder(store=self.store, sandbox=build, index=index, node=interpreter)

    async def _sandbox(self) -> tuple[Sandbox, bool]:
        """Return the sandbox for builds; it must filter the network, as bubblewrap can."""
        selection = await self._select_sandbox()
        if isinstance(selection.sandbox, BubblewrapSandbox):
            return selection.sandbox, True
        if not self._config.settings.dependencies.allow_unsandboxed:
            reasons = "; ".join(f"{trial.name}: {trial.reason}" for trial in selection.trials)
            raise DependencyError(reasons or "bubblewrap", code="dependencies_sandbox")
        log.warning("Building packages without a sandbox, from wheels only")
        return UnsandboxedBackend(), False

    def _index(self, ecosystem: Ecosystem) -> PackageIndex:
        config, chosen = self._config, self._config.settings.dependencies
        url = chosen.python_index if ecosystem == "python" else chosen.npm_registry
        variables = config.package_variables
        return find_index(ecosystem, variables, config.home, chosen=url, file_hosts=chosen.hosts)

    def preparer(self, skill: Skill) -> PrepareInterpreter:
        """Return the choice of interpreters for the scripts of a skill."""

        def prepare(script: Path, found: Interpreter) -> PreparedInterpreter:
            chosen = select(found, self._lookup.environments(skill))
            if found.kind == "python" and not chosen.has_packages:
                require_dependencies(script, found, skill.name)
            return PreparedInterpreter(interpreter=chosen.interpreter, env=chosen.env)

        return prepare

    async def explain(self, call: ScriptCall, result: ExecutionResult) -> ExecutionResult:
        """Add to a run that ended for a missing module which packages would help."""
        missing = _MODULE_MISSING.search(result.stderr) if result.outcome == "failed" else None
        if missing is None or result.cause is not None:
            return result
        module = next(filter(None, missing.groups())).decode("utf-8", "replace")
        found = await self.show(call.skill)
        names = distributions_of(module) if missing[1] else (module,)
        is_built = not found.missing
        packages = ", ".join(names[:1]) if is_built else ", ".join(found.missing)
        code = "dependencies_undeclared" if is_built else "dependencies_missing"
        cause = ScriptStartError(
            code=code, script=call.script or call.skill.name, packages=packages or module,
            skill=call.skill.name,
        )  # fmt: skip
        return replace(result, cause=cause)

    async def collect_garbage(self, *, dry_run: bool = False) -> list[Environment]:
        """Remove environments of skills that are gone for good; returns those removed."""
        async with self._building:
            return await anyio.to_thread.run_sync(partial(self._collect, dry_run=dry_run))

    def _collect(self, *, dry_run: bool) -> list[Environment]:
        gone, unused = self._lookup.unused(frozenset(self._restorable()))
        changed = [one for one in self.store.all() if not self.store.is_unchanged(one)]
        removed = {found.key: found for found in (*unused, *changed)}
        if not dry_run:
            for fingerprint in gone:
                self.store.remove_use(fingerprint)
            for key in removed:
                self.store.remove(key)
            self.store.sweep()
        return list(removed.values())

    def _restorable(self) -> set[str]:
        """Return fingerprints of skills that `undo` and `rollback` can bring back."""
        found = {path.name for path in (self._skills.root / ".versions").glob("*/*")}
        for entry in self._skills.trash.list():
            mark = tree.fingerprint(self._skills.trash.folder(entry))
            if isinstance(mark, Fingerprint):
                found.add(mark.sha256)
        return found


def _is_needed(found: SkillDependencies, ecosystem: Ecosystem, *, upgrades: bool) -> bool:
    state = found.states[ecosystem]
    return state == "missing" or (upgrades and state == "built")
