"""MCP server: request handlers for tools, prompts and resources of one runtime."""

import difflib
import json
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any

import anyio
from mcp import MCPError, types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
)

from apexbridge.agent.tool_calls import ToolCallOutcome
from apexbridge.api_keys import Scope
from apexbridge.errors import (
    ApexBridgeError,
    ConfigError,
    SkillNotInvocableError,
    ToolNotFoundError,
)
from apexbridge.events import CatalogChanged, Event
from apexbridge.mcp_server import resources
from apexbridge.mcp_server.permissions import (
    EXEC,
    READ,
    Context,
    ElicitationApprover,
    ScopeCheck,
    ToolCaller,
    can_elicit,
    file_owner,
    scope_error,
)
from apexbridge.mcp_server.prompts import join_arguments, to_prompt, to_prompt_result
from apexbridge.mcp_server.resources import PAGE_SIZE, SkillsExtension, paginate
from apexbridge.mcp_server.run_files import (
    RUN_SCHEME,
    RUN_TEMPLATE,
    read_run_file,
    resource_links,
)
from apexbridge.mcp_server.schemas import LoadedSkill, RunResult, SearchResults
from apexbridge.mcp_server.skill_files import ManifestCache, serves_files
from apexbridge.mcp_server.tools import LoadTool, RunTool, SearchTool, VisibleSkills
from apexbridge.runtime import Runtime
from apexbridge.runtime.hidden_paths import HiddenPaths
from apexbridge.runtime.watcher import background_tasks
from apexbridge.settings import Config
from apexbridge.skills.document import inline_commands
from apexbridge.skills.model import Skill
from apexbridge.tools.base import Tool
from apexbridge.tools.typed import arguments_schema

_INSTRUCTIONS = (
    "Skills are instructions for kinds of tasks, some with scripts. Search for one that fits the "
    "task (search_skills), read it (load_skill) and follow it; run its scripts with run_skill."
)
_READ_ONLY_TOOLS = frozenset({"Calculate", "Now"})
_SKILL_TOOLS = frozenset({"Skill", "SkillSearch", "SkillScript", "skills_list", "skills_load"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ExposedTool:
    """Tool under its MCP name; permission rules use its internal name."""

    name: str
    tool: Callable[[Context], Tool]
    scope: Scope
    output: type | None = None


class McpServer:
    """MCP server of one runtime, independent of the transport."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        has_scope: ScopeCheck | None = None,
        elicits: bool = False,
        page_size: int = PAGE_SIZE,
    ) -> None:
        self._runtime, self._has_scope = runtime, has_scope
        self._elicits, self._page_size = elicits, page_size
        self._caller = ToolCaller(runtime)
        self._skills = VisibleSkills(
            runtime, ManifestCache(runtime.catalog), self._caller.is_denied
        )
        self._tools = {exposed.name: exposed for exposed in self._exposed_tools()}
        self._bus = InMemorySubscriptionBus()
        self._subscriptions = ListenHandler(self._bus)
        self._sessions: list[ServerSession] = []
        self.server = self._server()

    def _server(self) -> Server[Any]:
        server = Server[Any](
            "apexbridge",
            version=version("apexbridge"),
            instructions=_INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_subscriptions_listen=self._subscriptions,
        )
        extension = SkillsExtension(self._skills, self._guarded, self._page_size)
        server.extensions[extension.identifier] = extension.settings()
        for binding in extension.methods():
            server.add_request_handler(binding.method, binding.params_type, binding.handler)
        return server

    @property
    def options(self) -> InitializationOptions:
        """Initialization options of the session-based protocol."""
        changes = NotificationOptions(prompts_changed=True, resources_changed=True)
        return self.server.create_initialization_options(changes)

    def close_subscriptions(self) -> None:
        """End all subscriptions to list changes, which have no end of their own."""
        self._subscriptions.close()

    def notify_sessions(self) -> None:
        """Send list changes to sessions as well; for transports with one connection."""

        async def on_initialized(ctx: Context, params: types.NotificationParams) -> None:
            self._sessions.append(ctx.session)

        self.server.add_notification_handler(
            "notifications/initialized", types.NotificationParams, on_initialized
        )

    @asynccontextmanager
    async def change_notifications(self) -> AsyncGenerator[None]:
        """Notify clients of changed prompt and resource lists, for the duration of the block."""
        sender, receiver = anyio.create_memory_object_stream[None](1)

        def on_event(event: Event) -> None:
            if isinstance(event, CatalogChanged) and not sender.statistics().current_buffer_used:
                sender.send_nowait(None)

        async def notify() -> None:
            async for _ in receiver:
                await self._bus.publish(PromptsListChanged())
                await self._bus.publish(ResourcesListChanged())
                for session in self._sessions:
                    await session.send_prompt_list_changed()
                    await session.send_resource_list_changed()

        with sender, receiver, self._runtime.listen(on_event):
            async with background_tasks(notify):
                yield

    # Authorization.

    def _allows(self, ctx: Context, scope: Scope) -> bool:
        return self._has_scope is None or (
            ctx.request is not None and self._has_scope(ctx.request.scope, scope)
        )

    def _require(self, ctx: Context, scope: Scope) -> None:
        if not self._allows(ctx, scope):
            raise scope_error(ctx.request.scope if ctx.request else None, scope)

    @contextmanager
    def _guarded(self, ctx: Context) -> Generator[None]:
        """Require the scope `skills:read`, and convert errors of the block to JSON-RPC errors."""
        try:
            self._require(ctx, READ)
            yield
        except ApexBridgeError as error:
            raise to_mcp_error(error, self._runtime.config) from None

    # Tools.

    def _exposed_tools(self) -> list[ExposedTool]:
        def run_tool(ctx: Context) -> Tool:
            async def report(progress: float, message: str) -> None:
                await ctx.session.report_progress(progress, message=message)

            return RunTool(self._skills, report, file_owner(ctx))

        search, load = SearchTool(self._skills), LoadTool(self._skills)
        own = [
            ExposedTool(
                name="search_skills", tool=lambda _: search, scope=READ, output=SearchResults
            ),
            ExposedTool(name="load_skill", tool=lambda _: load, scope=READ, output=LoadedSkill),
            ExposedTool(name="run_skill", tool=run_tool, scope=EXEC, output=RunResult),
        ]
        return [*own, *self._built_in()]

    def _built_in(self) -> list[ExposedTool]:
        tools = {tool.spec.name: tool for tool in self._runtime.chat_service.registry}
        exposed = list[ExposedTool]()
        for name in dict.fromkeys(self._runtime.config.settings.server.mcp_tools):
            if name not in tools or name in _SKILL_TOOLS:
                known = ", ".join(sorted(tools.keys() - _SKILL_TOOLS))
                raise ConfigError(f"server.mcp_tools: unknown tool '{name}'; known tools: {known}")
            scope: Scope = READ if name in _READ_ONLY_TOOLS else EXEC
            exposed.append(
                ExposedTool(name=name, tool=partial(_constant_tool, tools[name]), scope=scope)
            )
        return exposed

    async def _list_tools(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        tools = [
            _to_tool(exposed, exposed.tool(ctx))
            for exposed in self._tools.values()
            if self._allows(ctx, exposed.scope)
        ]
        return types.ListToolsResult(tools=tools)

    async def _call_tool(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        try:
            exposed = self._find_tool(ctx, params.name)
        except ApexBridgeError as error:
            raise to_mcp_error(error, self._runtime.config) from None
        approver = None
        if self._elicits and can_elicit(ctx):
            approver = ElicitationApprover(
                ctx, params.input_responses, self._runtime.config.language
            )
        arguments = json.dumps(params.arguments or {}, ensure_ascii=False)
        outcome = await self._caller.call(
            exposed.tool(ctx), str(ctx.request_id), arguments, approver
        )
        if approver is not None and approver.requests:
            return types.InputRequiredResult(input_requests=dict(approver.requests))
        return _to_result(outcome, exposed.output)

    def _find_tool(self, ctx: Context, name: str) -> ExposedTool:
        exposed = self._tools.get(name)
        if exposed is None:
            raise ToolNotFoundError(
                name[:200], near=difflib.get_close_matches(name[:200], self._tools, n=3)
            )
        self._require(ctx, exposed.scope)
        return exposed

    # Prompts.

    def _user_skills(self) -> list[Skill]:
        return [skill for skill in self._skills.skills() if skill.manifest.user_invocable]

    async def _list_prompts(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        with self._guarded(ctx):
            cursor = params.cursor if params else None
            page, following = paginate(self._user_skills(), cursor, self._page_size)
            prompts = [to_prompt(skill, self._runtime.config.language) for skill in page]
            return types.ListPromptsResult(prompts=prompts, next_cursor=following)

    async def _get_prompt(
        self, ctx: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        with self._guarded(ctx):
            skill = self._skills.get(params.name)
            if not skill.manifest.user_invocable:
                raise SkillNotInvocableError(code="skill_for_models_only", name=skill.name)
            if await self._runs_code(skill):
                self._require(ctx, EXEC)
            arguments = join_arguments(skill, params.arguments or {})
            return to_prompt_result(skill, await self._caller.invoke(skill.name, arguments))

    async def _runs_code(self, skill: Skill) -> bool:
        """Return whether rendering the prompt runs commands, or a subagent."""
        if skill.manifest.context == "fork":
            return True
        if not skill.may_run_shell:
            return False
        body = (await self._runtime.catalog.content(skill)).body
        return next(inline_commands(body), None) is not None

    # Resources.

    async def _list_resources(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        with self._guarded(ctx):
            served = [skill for skill in self._skills.skills() if serves_files(skill)]
            page, following = paginate(served, params.cursor if params else None, self._page_size)
            listed = [
                resources.to_resource(skill, file)
                for skill in page
                for file in (await self._skills.manifests.get(skill)).files.values()
            ]
            return types.ListResourcesResult(resources=listed, next_cursor=following)

    async def _list_templates(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        description = "A file that a script made, as `run_skill` names it."
        made = types.ResourceTemplate(
            name="run", uri_template=RUN_TEMPLATE, description=description
        )
        return types.ListResourceTemplatesResult(
            resource_templates=[resources.skill_template(), made]
        )

    async def _read_resource(
        self, ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        with self._guarded(ctx):
            if uri.startswith(RUN_SCHEME):
                files = self._runtime.script_runner.files
                return await read_run_file(files, uri, file_owner(ctx))
            return await resources.read_resource(self._skills, uri)


def _constant_tool(tool: Tool, ctx: Context) -> Tool:
    return tool


def _to_tool(exposed: ExposedTool, tool: Tool) -> types.Tool:
    spec = tool.spec
    return types.Tool(
        name=exposed.name,
        description=spec.description,
        input_schema=dict(spec.input_schema),
        output_schema=arguments_schema(exposed.output) if exposed.output else None,
        annotations=types.ToolAnnotations(read_only_hint=spec.read_only),
    )


def _to_result(outcome: ToolCallOutcome, output: type | None) -> types.CallToolResult:
    """Convert the outcome of a tool call; a denied or failed call has its error code in `_meta`."""
    result = outcome.result
    data: Mapping[str, Any] | None = result.data if output and not outcome.code else None
    links = resource_links(data) if data and output is RunResult else ()
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=result.text), *links],
        structured_content=dict(data) if data else None,
        is_error=result.is_error,
        _meta={"code": outcome.code} if outcome.code else None,
    )


def to_mcp_error(error: ApexBridgeError, config: Config) -> MCPError:
    """Convert an error to a JSON-RPC error; tool calls report errors in their result instead."""
    text, hidden = error.localized(config.language), HiddenPaths.from_config(config)
    message, advice = hidden.hide(text.message), hidden.hide(text.hint)
    hint = f"\n{advice}" if advice else ""
    data = {"code": error.code, "hint": advice}
    return MCPError(types.INVALID_PARAMS, f"[{error.code}] {message}{hint}", data)
