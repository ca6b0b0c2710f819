"""Agent factory: build the agent of a project with tools, permission rules and hooks."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from apexbridge.activation.activator import ActivationContext, Activator
from apexbridge.activation.agent_profiles import AgentProfiles
from apexbridge.activation.scripts import ScriptCall
from apexbridge.agent.loop import Agent, AgentDeps
from apexbridge.agent.permission_checker import PermissionChecker
from apexbridge.agent.project_instructions import ProjectInstructions
from apexbridge.agent.session_pool import SessionFactory, SessionPool
from apexbridge.agent.session_store import SessionStore
from apexbridge.agent.skill_announcer import (
    SKILL_TOOLS,
    AnnouncementOptions,
    SkillAnnouncer,
    SkillSearch,
)
from apexbridge.agent.skills_section import SectionCache
from apexbridge.agent.turn import TurnLimits
from apexbridge.catalog.catalog import Catalog
from apexbridge.catalog.consent import CONSENTS_FILE, ConsentCheck, InstallerStore
from apexbridge.catalog.listing_budget import ListingBudget
from apexbridge.catalog.trust import TrustStore
from apexbridge.catalog.usage import UsageCache
from apexbridge.errors import SkillNotFoundError
from apexbridge.hooks.commands import sandbox_runner
from apexbridge.hooks.runner import HookReply
from apexbridge.permissions.approvals import ApprovalStore
from apexbridge.permissions.engine import Approver
from apexbridge.permissions.hook_protocol import Hook, parse_hooks
from apexbridge.permissions.rules import resolve_symlinks
from apexbridge.permissions.wildcards import PathRoots
from apexbridge.runtime.agent_folders import agent_folders
from apexbridge.runtime.model_factory import ModelHandle
from apexbridge.runtime.permission_rules import permission_rules
from apexbridge.runtime.script_runner import ScriptRunner
from apexbridge.sandbox.base import ExecutionResult
from apexbridge.settings import Config
from apexbridge.settings.loader import SHIP_FILE
from apexbridge.skills.model import Skill
from apexbridge.sources.remote.http_client import FetchLimits, post
from apexbridge.tools.base import Tool, ToolRegistry
from apexbridge.tools.builtin.skill_script import SkillScriptTool
from apexbridge.tools.builtin.skills import (
    SkillSearchTool,
    SkillsListTool,
    SkillsLoadTool,
    SkillTool,
)
from apexbridge.tools.builtin.toolset import builtin_tools

_MAX_HOOK_REPLY = 1024 * 1024
_HARMLESS_TOOLS = SKILL_TOOLS - {"SkillScript"} | {"Calculate", "Now", "Platform"}


class AgentFactory:
    """Build agents that share tools, permissions and sessions, and differ in model and approver."""

    def __init__(
        self,
        config: Config,
        catalog: Catalog,
        index: SkillSearch,
        script_runner: ScriptRunner,
        usage: UsageCache,
        *,
        extra_tools: Sequence[Tool] = (),
    ) -> None:
        self._config, self._catalog, self._index = config, catalog, index
        self._script_runner, self._usage = script_runner, usage
        self.files = script_runner.files
        self.permissions = create_permission_checker(config)
        self.session_store = SessionStore(config.data / "sessions.db")
        self.sessions = SessionPool(
            self.session_store,
            SessionFactory(
                config.project,
                catalog,
                hooks=tuple(configured_hooks(config)),
                run_hook=sandbox_runner(script_runner.executor),
                post_hook=_post_hook,
                tools_mode=config.settings.agent.allowed_tools,
            ),
        )
        sources = [state.source for state in catalog.states]
        consents = ConsentCheck(
            TrustStore(config.data / "trust.db"), InstallerStore(config.data / CONSENTS_FILE)
        )
        self.activator = Activator(
            catalog,
            script_runner,
            usage,
            agents=AgentProfiles(tuple(agent_folders(config, sources))),
            runs_commands=config.settings.agent.inline_commands,
            has_consent=consents.is_given,
        )
        self.registry = self._create_registry(extra_tools)
        self._instructions = ProjectInstructions(config.project, config.settings.agent.instructions)
        mode = config.settings.agent.skills_section
        is_ship = mode == "auto" and (config.project / SHIP_FILE).is_file()
        self._has_section = mode == "always" or is_ship

    def create(self, model: ModelHandle, approver: Approver | None) -> Agent:
        """Build an agent for a model; `approver` answers for a person."""
        settings = self._config.settings
        permissions = replace(self.permissions, approver=approver)
        section = SectionCache(self._catalog, permissions.is_skill_denied)
        announcer = SkillAnnouncer(
            self._catalog,
            self._index,
            permissions,
            self._usage,
            AnnouncementOptions(
                threshold=settings.index.threshold,
                budget=ListingBudget.for_window(
                    model.window, settings.agent.listing_description_chars
                ),
                section=section if self._has_section else None,
            ),
        )
        return Agent(
            AgentDeps(
                model=model.client,
                model_name=model.name,
                registry=self.registry,
                catalog=self._catalog,
                index=self._index,
                sessions=self.sessions,
                activator=self.activator,
                permissions=permissions,
                announcer=announcer,
                instructions=self._instructions,
                project=self._config.project,
                readable=self._config.additional_dirs,
                limits=TurnLimits(
                    rounds=settings.agent.max_rounds,
                    tokens=settings.agent.token_budget,
                    seconds=settings.agent.timeout_seconds,
                    depth=settings.agent.max_subagent_depth,
                    children=settings.agent.max_subagents,
                    window=model.window,
                    redacts=settings.agent.redact_credentials,
                ),
            )
        )

    def acting_tools(self) -> frozenset[str]:
        """Return the tools that read or change files or run code, and all of extensions."""
        return frozenset(tool.spec.name for tool in self.registry) - _HARMLESS_TOOLS

    def _create_registry(self, extra_tools: Sequence[Tool]) -> ToolRegistry:
        catalog, runner, registry = self._catalog, self._script_runner, ToolRegistry()
        builtin = builtin_tools(
            runner.executor,
            limits=runner.limits,
            may_read=self.permissions.may_read,
        )
        for tool, aliases in builtin:
            registry.add(tool, aliases=aliases)
        registry.add(SkillTool(self.activator, self._activation_context))
        seen = (self._activation_context, self.permissions.is_skill_denied)
        threshold = self._config.settings.index.threshold
        search = SkillSearchTool(self._index.search, catalog, *seen, threshold=threshold)
        registry.add(search, aliases=("VectorSearch",))
        may_read = self.permissions.may_read
        registry.add(
            SkillScriptTool(self._execute, self._find_runnable, self._is_isolated, may_read)
        )
        registry.add(SkillsListTool(self._list_skills, *seen))
        registry.add(SkillsLoadTool(catalog, *seen))
        for tool in extra_tools:
            registry.add(tool)
        return registry

    def _list_skills(self) -> Sequence[Skill]:
        return self._catalog.skills

    def _activation_context(self, session_id: str) -> ActivationContext:
        return self.sessions.running(session_id).activation_context(self._config.project)

    def _find_runnable(self, name: str, session_id: str) -> Skill:
        """Find a skill whose script the model may run: an active one, or one it may invoke."""
        session, skill = self._activation_context(session_id), self._catalog.get(name)
        if skill.name in session.active:
            return skill
        if self.permissions.is_skill_denied(skill.name):
            raise SkillNotFoundError(skill.name)
        return self._catalog.get_for_model(skill.name, session.path_activation)

    async def _execute(self, call: ScriptCall) -> ExecutionResult:
        limited = replace(call, limits=self._script_runner.limits())
        return await self._script_runner.execute(limited)

    def _is_isolated(self) -> bool:
        return not self._config.settings.sandbox.allow_unsandboxed


def create_permission_checker(config: Config) -> PermissionChecker:
    """Build the permission checker by the rules of settings and the approvals stored on disk."""
    roots = PathRoots.resolved(config.project, config.home)
    return PermissionChecker(
        rules=resolve_symlinks(tuple(permission_rules(config)), roots),
        approvals=ApprovalStore(config.data / "approvals.json", config.project),
        roots=roots,
    )


def configured_hooks(config: Config) -> Iterator[Hook]:
    """Yield the hooks that settings register in every session."""
    for event, declared in config.settings.hooks.items():
        yield from parse_hooks(event, declared)


async def _post_hook(url: str, body: bytes, seconds: float) -> HookReply:
    limits = FetchLimits.from_cidr(seconds=seconds, max_bytes=_MAX_HOOK_REPLY)
    return HookReply(*await post(url, body, limits))
