"""The door itself: every request of the protocol, answered from one runtime."""

import difflib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any, TypeVar

import anyio
from mcp import MCPError, types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
)

from apexbridge import locales
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
    ElicitationApprover,
    ScopeCheck,
    ToolCaller,
    can_elicit,
    scope_error,
)
from apexbridge.mcp_server.prompts import join_arguments, to_prompt, to_prompt_result
from apexbridge.mcp_server.resources import PAGE_SIZE, SkillsExtension, paginate
from apexbridge.mcp_server.schemas import LoadedSkill, RunResult, SearchResults
from apexbridge.mcp_server.skill_files import ManifestCache, serves_files
from apexbridge.mcp_server.tools import LoadTool, RunTool, SearchTool, VisibleSkills
from apexbridge.runtime import Runtime
from apexbridge.runtime.watcher import background_tasks
from apexbridge.skills.document import inline_commands
from apexbridge.skills.model import Skill
from apexbridge.tools.base import Tool
from apexbridge.tools.typed import arguments_schema


def to_mcp_error(error: ApexBridgeError, language: locales.Language) -> MCPError:
    """The error of a request that is no call of a tool."""
    said = error.localized(language)
    hint = f"\n{said.hint}" if said.hint else ""
    data = {"code": error.code, "hint": said.hint}
    return MCPError(types.INVALID_PARAMS, f"[{error.code}] {said.message}{hint}", data)


Context = ServerRequestContext[Any, Any]
Result = TypeVar("Result")
_INSTRUCTIONS = (
    "Skills are instructions for kinds of tasks, some with scripts. Search for one that fits the "
    "task (search_skills), read it (load_skill) and follow it; run its scripts with run_skill."
)
_READ_ONLY_TOOLS = frozenset({"Calculate", "Now"})
_SKILL_TOOLS = frozenset({"Skill", "SkillSearch", "SkillScript", "skills_list", "skills_load"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ExposedTool:
    """A tool as clients see it; it is judged by the name it has among ourselves."""

    name: str
    tool: Callable[[Context], Tool]
    scope: Scope
    gives: type | None = None


class McpServer:
    """Answers clients of one runtime."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        may: ScopeCheck | None = None,
        asks: bool = False,
        page: int = PAGE_SIZE,
    ) -> None:
        self._runtime, self._may, self._asks, self._page = runtime, may, asks, page
        self._permissions = ToolCaller(runtime)
        self._shelf = VisibleSkills(
            runtime, ManifestCache(runtime.catalog), self._permissions.is_denied
        )
        self._offered = {offered.name: offered for offered in self._all_offered()}
        self._bus = InMemorySubscriptionBus()
        self._listening = ListenHandler(self._bus)
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
            on_subscriptions_listen=self._listening,
        )
        extension = SkillsExtension(self._shelf, partial(self._answer, READ), self._page)
        server.extensions[extension.identifier] = extension.settings()
        for binding in extension.methods():
            server.add_request_handler(binding.method, binding.params_type, binding.handler)
        return server

    @property
    def options(self) -> InitializationOptions:
        """What a client of the older kind is told that stays connected."""
        changes = NotificationOptions(prompts_changed=True, resources_changed=True)
        return self.server.create_initialization_options(changes)

    def stop_telling(self) -> None:
        """End every client's waiting for changes, in an orderly way: nothing else ends it."""
        self._listening.close()

    def remember_sessions(self) -> None:
        """Tell clients of the older kind of changes too; only where one connection is served."""

        async def remember(ctx: Context, params: types.NotificationParams) -> None:
            self._sessions.append(ctx.session)

        self.server.add_notification_handler(
            "notifications/initialized", types.NotificationParams, remember
        )

    @asynccontextmanager
    async def telling(self) -> AsyncGenerator[None]:
        """Tell clients that lists changed, for the length of the block."""
        sender, receiver = anyio.create_memory_object_stream[None](1)

        def hear(event: Event) -> None:
            if isinstance(event, CatalogChanged) and not sender.statistics().current_buffer_used:
                sender.send_nowait(None)

        async def tell() -> None:
            async for _ in receiver:
                await self._bus.publish(PromptsListChanged())
                await self._bus.publish(ResourcesListChanged())
                for session in self._sessions:
                    await session.send_prompt_list_changed()
                    await session.send_resource_list_changed()

        with sender, receiver, self._runtime.listen(hear):
            async with background_tasks(tell):
                yield

    # Who may ask.

    def _can(self, ctx: Context, scope: Scope) -> bool:
        return self._may is None or (
            ctx.request is not None and self._may(ctx.request.scope, scope)
        )

    def _require(self, ctx: Context, scope: Scope) -> None:
        if not self._can(ctx, scope):
            raise scope_error(ctx.request.scope if ctx.request else None, scope)

    async def _answer(
        self, scope: Scope, ctx: Context, work: Callable[[], Awaitable[Result]]
    ) -> Result:
        try:
            self._require(ctx, scope)
            return await work()
        except ApexBridgeError as error:
            raise to_mcp_error(error, self._runtime.config.language) from None

    # Tools.

    def _all_offered(self) -> list[ExposedTool]:
        def running(ctx: Context) -> Tool:
            async def report(progress: float, message: str) -> None:
                await ctx.session.report_progress(progress, message=message)

            return RunTool(self._shelf, report)

        search, load = SearchTool(self._shelf), LoadTool(self._shelf)
        own = [
            ExposedTool(
                name="search_skills",
                tool=partial(_constant_tool, search),
                scope=READ,
                gives=SearchResults,
            ),
            ExposedTool(
                name="load_skill", tool=partial(_constant_tool, load), scope=READ, gives=LoadedSkill
            ),
            ExposedTool(name="run_skill", tool=running, scope=EXEC, gives=RunResult),
        ]
        return [*own, *self._built_in()]

    def _built_in(self) -> list[ExposedTool]:
        tools = {tool.spec.name: tool for tool in self._runtime.chat_service.registry}
        offered = list[ExposedTool]()
        for name in dict.fromkeys(self._runtime.config.settings.server.mcp_tools):
            if name not in tools or name in _SKILL_TOOLS:
                there = ", ".join(sorted(tools.keys() - _SKILL_TOOLS))
                raise ConfigError(f"server.mcp_tools: there is no tool '{name}', but {there}")
            scope: Scope = READ if name in _READ_ONLY_TOOLS else EXEC
            offered.append(
                ExposedTool(name=name, tool=partial(_constant_tool, tools[name]), scope=scope)
            )
        return offered

    async def _list_tools(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        tools = [
            _tool_wire(offered, offered.tool(ctx))
            for offered in self._offered.values()
            if self._can(ctx, offered.scope)
        ]
        return types.ListToolsResult(tools=tools)

    async def _call_tool(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        try:
            offered = self._find_tool(ctx, params.name)
        except ApexBridgeError as error:
            raise to_mcp_error(error, self._runtime.config.language) from None
        asking = None
        if self._asks and can_elicit(ctx):
            asking = ElicitationApprover(ctx, params.input_responses, self._runtime.config.language)
        written = json.dumps(params.arguments or {}, ensure_ascii=False)
        handled = await self._permissions.carry_out(
            offered.tool(ctx), str(ctx.request_id), written, asking
        )
        if asking is not None and asking.open:
            return types.InputRequiredResult(input_requests=dict(asking.open))
        return _to_result(handled, has_shape=offered.gives is not None)

    def _find_tool(self, ctx: Context, name: str) -> ExposedTool:
        offered = self._offered.get(name)
        if offered is None:
            raise ToolNotFoundError(
                name[:200], near=difflib.get_close_matches(name[:200], self._offered, n=3)
            )
        self._require(ctx, offered.scope)
        return offered

    # Prompts.

    def _user_skills(self) -> list[Skill]:
        return [skill for skill in self._shelf.skills() if skill.manifest.user_invocable]

    async def _list_prompts(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        async def work() -> types.ListPromptsResult:
            cursor = params.cursor if params else None
            page, following = paginate(self._user_skills(), cursor, self._page)
            prompts = [to_prompt(skill, self._runtime.config.language) for skill in page]
            return types.ListPromptsResult(prompts=prompts, next_cursor=following)

        return await self._answer(READ, ctx, work)

    async def _get_prompt(
        self, ctx: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        async def work() -> types.GetPromptResult:
            skill = self._shelf.get(params.name)
            if not skill.manifest.user_invocable:
                raise SkillNotInvocableError(code="skill_for_models_only", name=skill.name)
            if await self._acts(skill):
                self._require(ctx, EXEC)
            arguments = join_arguments(skill, params.arguments or {})
            return to_prompt_result(skill, await self._permissions.invoke(skill.name, arguments))

        return await self._answer(READ, ctx, work)

    async def _acts(self, skill: Skill) -> bool:
        """Whether filling it in does anything: it runs commands, or a model that may use tools."""
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
        async def work() -> types.ListResourcesResult:
            served = [skill for skill in self._shelf.skills() if serves_files(skill)]
            page, following = paginate(served, params.cursor if params else None, self._page)
            listed = [
                resources.to_resource(skill, file)
                for skill in page
                for file in (await self._shelf.entries.of(skill)).files.values()
            ]
            return types.ListResourcesResult(resources=listed, next_cursor=following)

        return await self._answer(READ, ctx, work)

    async def _list_templates(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=resources.resource_templates())

    async def _read_resource(
        self, ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        return await self._answer(
            READ, ctx, lambda: resources.read_resource(self._shelf, str(params.uri))
        )


def _constant_tool(tool: Tool, ctx: Context) -> Tool:
    return tool


def _tool_wire(offered: ExposedTool, tool: Tool) -> types.Tool:
    spec = tool.spec
    return types.Tool(
        name=offered.name,
        description=spec.description,
        input_schema=dict(spec.input_schema),
        output_schema=arguments_schema(offered.gives) if offered.gives else None,
        annotations=types.ToolAnnotations(read_only_hint=spec.read_only),
    )


def _to_result(handled: ToolCallOutcome, *, has_shape: bool) -> types.CallToolResult:
    """What a call came to; what was refused or failed carries its code."""
    result = handled.result
    data: Mapping[str, Any] | None = result.data if has_shape and not handled.code else None
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=result.text)],
        structured_content=dict(data) if data else None,
        is_error=result.is_error,
        _meta={"code": handled.code} if handled.code else None,
    )
