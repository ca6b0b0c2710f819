"""One server a data folder: the lock that says whose it is."""

import logging
import os
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Self

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from apexbridge.activation.scripts import ScriptCall
from apexbridge.audit import AuditLog
from apexbridge.catalog.catalog import Catalog, CatalogRules, TouchResult
from apexbridge.catalog.path_activation import PathActivation
from apexbridge.catalog.trust import TrustStore
from apexbridge.catalog.usage import UsageStore
from apexbridge.errors import StorageError
from apexbridge.events import Event, EventSink
from apexbridge.extensions import Extensions
from apexbridge.file_lock import try_file_lock
from apexbridge.lifecycle.states import SkillStates
from apexbridge.lifecycle.store import SkillStore
from apexbridge.paths import storage_errors
from apexbridge.permissions.engine import Approver
from apexbridge.retrieval.results import SearchResults
from apexbridge.runtime.index_service import IndexService
from apexbridge.runtime.script_runner import ScriptRunner, ScriptRunnerDeps
from apexbridge.runtime.source_factory import SourceFactory
from apexbridge.runtime.watcher import Watcher, background_tasks
from apexbridge.sandbox.base import ExecutionResult
from apexbridge.settings import Config, load
from apexbridge.skills.model import Problem, Skill
from apexbridge.sources.directory_scanner import NestedDiscovery
from apexbridge.sources.scan_cache import ScanCache
from apexbridge.tools.base import ToolResult

LOCK_FILE = "instance.lock"


@contextmanager
def data_dir_lock(data: Path) -> Generator[None]:
    """Be the only server of a data folder, for as long as this process lives and wants to.

    Commands share the folder with a server: each change is safe on its own. Two servers would
    each answer from what only they have seen.

    Raises:
        StorageError: `data_in_use` if another has it, with the number of its process.
    """
    path = data / LOCK_FILE
    with try_file_lock(path) as descriptor:
        if descriptor is None:
            raise StorageError(code="data_in_use", path=data, process=_lock_holder(path))
        with storage_errors(path):
            os.ftruncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
        yield


def _lock_holder(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii") or "?"
    except (OSError, UnicodeDecodeError):
        return "?"


def ensure_skills_dir(skills: Path) -> None:
    """Make the folder that skills are installed into, as far as that is possible.

    For one that is missing the folder above it is watched, and a server writes there all the time.
    """
    with suppress(OSError):
        skills.mkdir(exist_ok=True, mode=0o700)


log = logging.getLogger(__name__)


class Runtime:
    """Sources, catalogue and everything built on them, for one project."""

    def __init__(self, config: Config, extensions: Extensions) -> None:
        self.config = config
        self.extensions = extensions
        self._sinks = list(extensions.event_sinks())
        self.trust = TrustStore(config.data / "trust.db")
        self.usage = UsageStore(config.data / "usage.db")
        self.store = SkillStore(config.data / "skills")
        self.states = SkillStates(config.data / "states.json")
        memory = ScanCache(config.data / "scans.db")
        places = SourceFactory(config, memory, lambda source_id: self.watcher.changed(source_id))
        found, outside = places.sources()
        rules = CatalogRules(
            precedence=config.settings.skills.precedence,
            trust=self.trust,
            nesting=NestedDiscovery(config.project, config.settings.skills.project_paths),
            nested=places.nested,
            disabled=self.states.disabled,
        )
        given = extensions.sources(config.project)
        self.catalog = Catalog((*found, *given), rules, self.emit, outside)
        watches = config.settings.skills.watch
        self.index_service = IndexService(config, self.catalog, self.usage)
        self.watcher = Watcher(self.catalog, self.index_service.reindex, watches=watches)
        self.audit = AuditLog(config.data / "audit.jsonl")
        books = ScriptRunnerDeps(
            catalog=self.catalog, trust=self.trust, usage=self.usage, audit=self.audit
        )
        self.script_runner = ScriptRunner(config, books)
        self._tasks: TaskGroup
        self._stack = ExitStack()
        self._stack.callback(self.script_runner.close)

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
        """Build everything, scan every source, and take it down at the end of the block.

        It must be closed by the task that opened it. One that `lives` sees changes on disk and of
        servers as they happen, its index too. A server has its data folder to itself.

        Raises:
            ConfigError: If the settings or an extension make no sense.
            StorageError: `data_in_use` if another server has the data folder.
        """
        runtime = cls(config or load(), extensions or Extensions.installed())
        with runtime._stack as stack:
            if is_server:
                stack.enter_context(data_dir_lock(runtime.config.data))
                ensure_skills_dir(runtime.store.root)
            try:
                await runtime._recover()
                if lives:
                    await runtime.watcher.begin()
                else:
                    await runtime.refresh()
                # A one-shot command ends before the language model answers: only long-lived
                # processes ask it for tags.
                background = [runtime.watcher.run, runtime.index_service.run_tagging]
                async with background_tasks(*(background if lives else [])) as runtime._tasks:
                    yield runtime
            finally:
                try:
                    with anyio.CancelScope(shield=True):
                        if "chat_service" in vars(runtime):
                            await runtime.chat_service.close()
                        await runtime.index_service.close()
                finally:
                    await runtime.catalog.close()
                    runtime.usage.close()

    async def _recover(self) -> None:
        """Do away with what a crash left unfinished, before anything is read."""
        keep = self.config.settings.skills.undo_days * 86_400
        try:
            found = await anyio.to_thread.run_sync(partial(self.store.recover, keep_seconds=keep))
        except StorageError as error:  # reading goes on where writing is not allowed
            log.info("What was left unfinished cannot be done away with: %s", error)
            return
        if found.unfinished or found.expired:
            log.info("Left over: %d unfinished, %d expired", found.unfinished, found.expired)

    @cached_property
    def manager(self):  # its type would load what it is made of
        """Installs, edits and removes skills."""
        from apexbridge.lifecycle.manager import SkillManager
        from apexbridge.runtime.policies import install_policy

        return SkillManager(
            self.store,
            self.states,
            self.audit,
            self.catalog,
            self.index_service,
            install_policy(self.config.settings.install),
        )

    @cached_property
    def chat_service(self):  # its type would load what it is made of
        """Conversations; nothing is loaded before the first one."""
        from apexbridge.runtime.chat_service import ChatDeps, ChatService

        async def search(query: str, limit: int = 5) -> SearchResults:
            return await self.search(query, limit=limit)

        return ChatService(
            self.config,
            ChatDeps(
                catalog=self.catalog,
                script_runner=self.script_runner,
                usage=self.usage,
                search=search,
                touch=self.touch,
                tasks=self._tasks,
                tools=self.extensions.tools(self.config.project),
            ),
        )

    async def chat(
        self,
        text: str,
        *,
        session: str = "",
        model: str = "",
        skills: Sequence[str] = (),
        approver: Approver | None = None,
    ) -> AsyncGenerator[Event]:
        """Ask something, and see what happens as it happens; the last event is `TurnFinished`.

        The same `session` goes on with a conversation, also with one of another day. Without an
        approver, what rules do not settle is refused.

        Raises:
            ApexBridgeError: If the model, or a skill that was asked for by name, cannot be used.
        """
        from apexbridge.agent.turn import TurnRequest
        from apexbridge.runtime.chat_stream import stream_turn

        request = TurnRequest(text=text, model=model, skills=tuple(skills), approver=approver)
        turn = stream_turn(self.chat_service, session or uuid.uuid4().hex, request)
        async with aclosing(turn) as events:
            async for event in events:
                self.emit(event)
                yield event

    async def invoke_skill(
        self, name: str, arguments: str = "", *, session: str = "", approver: Approver | None = None
    ) -> ToolResult:
        """Invoke a skill without asking the model: inline its text stands in the session then.

        A forked skill's text is what its child session answered.

        Raises:
            SkillNotFoundError: With the names that come near.
            SkillNotInvocableError: If it has nothing to say, or cannot be reached.
            PermissionDeniedError: If a rule, a hook or a person said no.
        """
        from apexbridge.activation.activator import Invocation

        wish = Invocation(name=name, arguments=arguments, trigger="api")
        return await self.chat_service.invoke(
            session or uuid.uuid4().hex, wish, self.emit, approver=approver
        )

    async def touch(self, paths: Iterable[Path], waking: PathActivation) -> TouchResult:
        """Wake and find the skills that touched files concern; the index takes in new ones."""
        touched = await self.catalog.touch(paths, waking)
        if touched.found:
            await self.index_service.reindex(touched.found)
        return touched

    async def refresh(self) -> None:
        """Scan every source again; one that is down is a problem beside the others."""
        await self.catalog.refresh()

    @contextmanager
    def listen(self, sink: EventSink) -> Generator[None]:
        """Let somebody be told of everything that happens, for the length of the block."""
        self._sinks.append(sink)
        try:
            yield
        finally:
            self._sinks.remove(sink)

    def emit(self, event: Event) -> None:
        """Tell every listener; one that fails keeps nothing from the others, and ends nothing."""
        for sink in tuple(self._sinks):
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
        await self.catalog.reapply_trust()

    async def search(
        self,
        query: str,
        *,
        query_en: str | None = None,
        query_zh: str | None = None,
        limit: int = 5,
    ) -> SearchResults:
        """Find the skills that fit a request best; brings the index up to date on first use."""
        return await self.index_service.search(
            query, query_en=query_en, query_zh=query_zh, limit=limit
        )

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
        return await self.script_runner.execute(
            ScriptCall(
                skill=self.catalog.get(name),
                script=script,
                arguments=tuple(arguments),
                limits=self.script_runner.limits(),
            )
        )

    def problems_of(self, skill: Skill) -> tuple[Problem, ...]:
        """What the skill's own source found wrong with what it holds."""
        return self.catalog.source_of(skill).scan.problems
