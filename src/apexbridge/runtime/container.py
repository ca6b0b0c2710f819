"""Composition root: `Runtime` builds every service of one project, and closes them in order."""

import logging
import time
import uuid
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import (
    AbstractContextManager,
    ExitStack,
    aclosing,
    asynccontextmanager,
)
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from apexbridge.activation.scripts import ScriptCall
from apexbridge.audit import AuditLog
from apexbridge.catalog.catalog import Catalog, CatalogRules, TouchResult
from apexbridge.catalog.consent import CONSENTS_FILE, ConsentCheck, InstallerStore
from apexbridge.catalog.path_activation import PathActivation
from apexbridge.catalog.trust import TrustStore
from apexbridge.catalog.usage import UsageCache, UsageStore
from apexbridge.errors import StorageError
from apexbridge.events import Event, EventBus, EventSink, FilesSkipped
from apexbridge.extensions import Extensions
from apexbridge.lifecycle.crash_cleanup import remove_temporary_files
from apexbridge.lifecycle.states import SkillStates
from apexbridge.lifecycle.store import SkillStore
from apexbridge.permissions.engine import Approver
from apexbridge.retrieval.results import SearchResults
from apexbridge.runtime.data_dir_lock import data_dir_lock, ensure_skills_dir, make_private
from apexbridge.runtime.dependency_service import DependencyService
from apexbridge.runtime.index_service import IndexService
from apexbridge.runtime.script_runner import ScriptRunner
from apexbridge.runtime.source_factory import SourceChanges, SourceFactory
from apexbridge.runtime.state_check import STATES, StateCheck
from apexbridge.runtime.watcher import Watcher, background_tasks
from apexbridge.sandbox.base import ExecutionResult
from apexbridge.settings import Config, load
from apexbridge.skills.model import Problem, Skill
from apexbridge.sources.directory_scanner import NestedDiscovery
from apexbridge.sources.git_excludes import GitUser
from apexbridge.sources.scan_cache import ScanCache
from apexbridge.tools.base import ToolResult

if TYPE_CHECKING:  # imported when first used: most commands need neither
    from apexbridge.lifecycle.manager import SkillManager
    from apexbridge.runtime.chat_service import ChatService
    from apexbridge.runtime.install_service import InstallService
    from apexbridge.secrets.store import SecretStore

log = logging.getLogger(__name__)


class Runtime:
    """The services of one project, each built once. Use `Runtime.open`."""

    def __init__(self, config: Config, extensions: Extensions) -> None:
        self.config, self.extensions = config, extensions
        self.events = EventBus(extensions.event_sinks())
        self.trust = TrustStore(config.data / "trust.db")
        self.installers = InstallerStore(config.data / CONSENTS_FILE)
        self.usage = UsageStore(config.data / "usage.db")
        self.store = SkillStore(config.data / "skills")
        self.states = SkillStates(config.data / STATES)
        self.state_check = StateCheck(config.data)
        self.audit = AuditLog(config.data / "audit.jsonl")
        changes = SourceChanges()
        factory = SourceFactory(config, ScanCache(config.data / "scans.db"), changes)
        sources, problems = factory.create_all()
        self.catalog = Catalog(
            (*sources, *extensions.sources(config.project)),
            catalog_rules(config, factory, self.trust, self.states),
            self.events.emit,
            problems,
        )
        self.index_service = IndexService(config, self.catalog, self.usage, emit=self.events.emit)
        self.watcher = Watcher(
            self.catalog, self.index_service, changes, watches=config.settings.skills.watch
        )
        self.script_runner = ScriptRunner(
            config, self.catalog, self.trust, self.usage, self.audit, self.store
        )
        self._manager: SkillManager | None = None
        self._chat_service: ChatService | None = None
        self._tasks: TaskGroup
        self._stack = ExitStack()
        self._stack.callback(self.script_runner.close)

    @property
    def manager(self) -> "SkillManager":
        """Install, edit, version and remove skills."""
        if self._manager is None:
            from apexbridge.lifecycle.manager import ManagerStores, SkillManager
            from apexbridge.runtime.policies import install_policy

            self._manager = SkillManager(
                ManagerStores(self.store, self.states, self.usage, self.audit),
                self.catalog,
                self.index_service,
                install_policy(self.config.settings.install),
            )
        return self._manager

    def installer(self, *, allows_ssh: bool = False) -> "InstallService":
        """Install skills by address; `allows_ssh` lets git use the keys of the user."""
        from apexbridge.runtime.install_factory import create_install_service

        parts = self.config, self.manager, self.store, self.script_runner
        return create_install_service(*parts, allows_ssh=allows_ssh)

    @property
    def secret_store(self) -> "SecretStore":
        """Secrets of skills; imported here, for most processes never need it."""
        from apexbridge.runtime.secret_preparation import open_secret_store

        return open_secret_store(self.config)

    @property
    def dependencies(self) -> DependencyService:
        """Packages of skills: what they need, locks, builds, removal."""
        return self.script_runner.dependencies

    @property
    def chat_service(self) -> "ChatService":
        """Sessions and turns; the model client is created at the first use."""
        if self._chat_service is None:
            from apexbridge.runtime.agent_factory import AgentFactory
            from apexbridge.runtime.chat_service import ChatService
            from apexbridge.runtime.model_factory import open_model

            agents = AgentFactory(
                self.config,
                self.catalog,
                self.index_service,
                self.script_runner,
                UsageCache(self.usage),
                extra_tools=self.extensions.tools(self.config.project),
            )
            self._chat_service = ChatService(agents, open_model(self.config), self._tasks)
        return self._chat_service

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        config: Config | None = None,
        *,
        extensions: Extensions | None = None,
        lives: bool = False,
        is_server: bool = False,
    ) -> AsyncGenerator[Self]:
        """Build all services, scan every source, and close everything at the end of the block.

        It must be closed by the task that opened it. With `lives`, file watchers and notifications
        keep catalog and index current. A server locks its data directory.

        Raises:
            ConfigError: If settings or an extension are invalid.
            StorageError: `data_in_use` if another server has locked the data directory.
        """
        runtime = cls(config or load(), extensions or Extensions.installed())
        with runtime._stack as stack:
            if is_server:
                stack.enter_context(data_dir_lock(runtime.config.data))
                ensure_skills_dir(runtime.store.root)
            try:
                await runtime._recover(is_server=is_server)
                if lives:
                    await runtime.watcher.begin()
                else:
                    await runtime.refresh()
                # A one-shot command ends before a language model answers: only long-lived
                # processes ask it for tags.
                background = [runtime.watcher.run, runtime.index_service.run_tagging]
                background += [runtime.index_service.sync_at_start] if is_server else []
                async with background_tasks(*(background if lives else ())) as runtime._tasks:
                    yield runtime
            finally:
                await runtime._close()

    async def _recover(self, *, is_server: bool) -> None:
        """Remove what a crash left unfinished, before anything is read."""
        keep = self.config.settings.skills.undo_days * 86_400
        await anyio.to_thread.run_sync(make_private, self.config.data)
        if is_server:
            await anyio.to_thread.run_sync(remove_temporary_files, self.config.data)
        try:
            found = await anyio.to_thread.run_sync(partial(self.store.recover, keep_seconds=keep))
        except StorageError as error:  # a read-only data directory can still be read
            log.info("Cannot remove unfinished changes: %s", error)
            return
        if found.expired:  # what was needed by them alone
            await self.dependencies.collect_garbage()
        if found.unfinished or found.expired:
            log.info("Removed: %d unfinished, %d expired", found.unfinished, found.expired)

    async def _close(self) -> None:
        try:
            with anyio.CancelScope(shield=True):
                if self._chat_service is not None:
                    await self._chat_service.close()
                await self.index_service.close()
        finally:
            await self.catalog.close()
            self.usage.close()

    async def chat(
        self,
        text: str,
        *,
        session: str = "",
        model: str = "",
        skills: Sequence[str] = (),
        files: Sequence[Path] = (),
        approver: Approver | None = None,
    ) -> AsyncGenerator[Event]:
        """Run a turn, and yield its events as they happen; the last one is `TurnFinished`.

        A `session` id continues a session, also a stored one. Copies of `files`, which may be
        folders, are readable for tools and scripts. Without an approver, whatever the permission
        rules leave open is denied.

        Raises:
            ApexBridgeError: If the model, or a skill that was named explicitly, cannot be used.
            OSError: If a file cannot be read.
        """
        from apexbridge.agent.turn import TurnRequest

        session = session or uuid.uuid4().hex
        request = TurnRequest(text=text, model=model, skills=tuple(skills), approver=approver)
        if files:
            folder, skipped = await self.chat_service.attach_from_disk(session, files)
            request = replace(request, files=folder, skipped_files=skipped)
            if skipped:
                left = FilesSkipped(session_id=session, files=skipped)
                self.events.emit(left)
                yield left
        turn = self.chat_service.stream(session, request)
        async with aclosing(turn) as events:
            async for event in events:
                self.events.emit(event)
                yield event

    async def invoke_skill(
        self, name: str, arguments: str = "", *, session: str = "", approver: Approver | None = None
    ) -> ToolResult:
        """Invoke a skill without a model call: an inline one adds its text to the session.

        A forked skill returns the final text of its subagent.

        Raises:
            SkillNotFoundError: With the closest names.
            SkillNotInvocableError: If its text is empty, or its source unreachable.
            PermissionDeniedError: By a rule, a hook or a person.
        """
        from apexbridge.activation.activator import Invocation

        invocation = Invocation(name=name, arguments=arguments, trigger="api")
        return await self.chat_service.invoke(
            session or uuid.uuid4().hex, invocation, self.events.emit, approver=approver
        )

    async def search(
        self,
        query: str,
        *,
        query_en: str | None = None,
        query_zh: str | None = None,
        limit: int = 5,
    ) -> SearchResults:
        """Search skills by keywords and embedding; the first search syncs the index."""
        return await self.index_service.search(
            query, query_en=query_en, query_zh=query_zh, limit=limit
        )

    async def execute_skill(
        self, name: str, arguments: Sequence[str] = (), *, script: str = ""
    ) -> ExecutionResult:
        """Run a script of a skill in the sandbox, within the resource limits of settings.

        Raises:
            SkillNotFoundError: If there is no such skill.
            SandboxUnavailableError: If no backend isolates and running without is not allowed.
            ToolInputError: If the skill has no such script.
            PermissionError: If the script is not executable.
        """
        return await self.script_runner.execute(
            ScriptCall(
                skill=self.catalog.get(name),
                script=script,
                arguments=tuple(arguments),
                limits=self.script_runner.limits(),
            )
        )

    async def touch(self, paths: Iterable[Path], path_activation: PathActivation) -> TouchResult:
        """Activate and discover the skills that concern touched files, and index new ones."""
        touched = await self.catalog.touch(paths, path_activation)
        if touched.found:
            await self.index_service.reindex(touched.found)
        return touched

    async def refresh(self) -> None:
        """Scan every source again; an unreachable one is a problem beside the others."""
        await self.catalog.refresh()

    def listen(self, sink: EventSink) -> AbstractContextManager[None]:
        """Subscribe to every event for the length of a `with` block."""
        return self.events.listen(sink)

    async def approve(self, skills: Sequence[Skill]) -> None:
        """Trust skills with their present content: they may run scripts, hooks and grant tools.

        Raises:
            StorageError: If the approval cannot be stored.
        """

        def approve() -> None:
            self._audit_trust("trust", skills)
            self.trust.approve(skills, time.time())

        await anyio.to_thread.run_sync(approve)
        await self.catalog.reapply_trust()

    async def revoke(self, skills: Sequence[Skill]) -> None:
        """Revoke trust: from now on the skills can only be read.

        Raises:
            StorageError: If that cannot be stored.
        """

        def revoke() -> None:
            self._audit_trust("untrust", skills)
            self.trust.revoke([s.fingerprint.sha256 for s in skills if s.fingerprint])
            for skill in skills:
                if skill.provenance.writable:
                    self.installers.forget(skill.name)

        await anyio.to_thread.run_sync(revoke)
        await self.catalog.reapply_trust()

    def _audit_trust(self, action: Literal["trust", "untrust"], skills: Sequence[Skill]) -> None:
        # Audited first: a change of trust that cannot be recorded must not happen.
        for skill in skills:
            sha256 = skill.fingerprint.sha256 if skill.fingerprint else ""
            self.audit.record(action, skill=skill.name, sha256=sha256)

    async def has_consent(self, skill: Skill) -> bool:
        """Return whether the model may use the skill with its present files without asking."""
        check = ConsentCheck(self.trust, self.installers)
        return await anyio.to_thread.run_sync(check.is_given, skill)

    def problems_of(self, skill: Skill) -> tuple[Problem, ...]:
        """Return the problems that the scan of the skill's source reported."""
        return self.catalog.source_of(skill).scan.problems


def catalog_rules(
    config: Config, factory: SourceFactory, trust: TrustStore, states: SkillStates
) -> CatalogRules:
    """Build the catalog's rules: precedence, trust, nested discovery and disabled skills."""
    return CatalogRules(
        precedence=config.settings.skills.precedence,
        trust=trust,
        nesting=NestedDiscovery(
            config.project,
            config.settings.skills.project_paths,
            GitUser(home=config.home, config_home=config.config_home or config.home / ".config"),
        ),
        nested=factory.create_nested,
        disabled=states.disabled_or_last,
    )
