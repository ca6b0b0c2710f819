"""A skill is invoked: the one function for every way in.

The user's `/name`, the model's tool, a skill within a skill, a child session, the library and the
doors all come here. It checks, runs hooks, fills in, runs commands in the text, counts the use, and
tells what happened. What the session must do about it comes back as data.
"""

import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol

import anyio.to_thread

from apexbridge.activation.template import (
    CommandPart,
    Substitutions,
    expand,
    expand_variables,
    is_command_success,
    is_text_only,
    wrap_skill,
)
from apexbridge.catalog.catalog import Catalog
from apexbridge.catalog.path_activation import PathActivation
from apexbridge.errors import (
    ApexBridgeError,
    PermissionDeniedError,
    SkillNotFoundError,
    SkillNotInvocableError,
    SourceError,
    ToolFailedError,
)
from apexbridge.events import SkillActivated, SkillRefused, SlashUsedByModel, Trigger
from apexbridge.messages import UserMessage
from apexbridge.permissions.engine import ToolsMode, skill_grants
from apexbridge.permissions.hook_protocol import HookEvent
from apexbridge.permissions.rules import PermissionRequest, ToolPattern
from apexbridge.sandbox.base import ExecutionResult
from apexbridge.skills import tree
from apexbridge.skills.model import Origin, Skill
from apexbridge.tools.base import Grants, SubagentRequest, ToolContext, ToolResult
from apexbridge.tools.truncation import truncate_text


def skill_variables(skill: Skill, project: Path, context: ToolContext) -> dict[str, str]:
    """What the variables in a skill's text stand for."""
    found = {
        "CLAUDE_PROJECT_DIR": str(project),
        "CLAUDE_SESSION_ID": context.session_id,
        "CLAUDE_EFFORT": context.effort,
    }
    if skill.root is not None:
        found["CLAUDE_SKILL_DIR"] = str(skill.root)
    return found


def granted_tools(skill: Skill, variables: Mapping[str, str]) -> tuple[ToolPattern, ...]:
    """The tools that a skill brings along; none while nobody approved it."""
    if not skill.is_trusted:
        return ()
    return tuple(
        ToolPattern(p.tool, p.argument and expand_variables(p.argument, variables))
        for p in skill.tools
    )


def build_grants(skill: Skill, variables: Mapping[str, str]) -> Grants:
    """What a skill lends to the session that invoked it; nothing while nobody approved it."""
    if not skill.is_trusted:
        return Grants(skill=skill.name, root=skill.root)
    model = skill.manifest.model
    return Grants(
        skill=skill.name,
        root=skill.root,
        tools=granted_tools(skill, variables),
        denied=tuple(map(ToolPattern.parse, skill.manifest.disallowed_tools)),
        hooks=skill.hooks,
        model=None if model == "inherit" else model,
        effort=skill.manifest.effort,
    )


REFUSALS: Mapping[str, int] = {
    "skill_name_missing": 1,
    "skill_not_found": 2,
    "skill_for_users_only": 4,
    "skill_for_models_only": 4,
    "skill_no_prompt": 5,
    "skill_out_of_reach": 6,
    "skill_asleep": 7,
    "permission_denied": 8,
    "rule_denied": 8,
    "person_denied": 8,
    "nobody_allowed": 8,
    "tool_restricted": 8,
    "hook_blocked": 8,
}
"""The numbers that the founding documents give to refusals, by our codes."""

_MODEL_TRIGGERS: frozenset[Trigger] = frozenset({"model", "nested", "fork"})
_REMOTE_ORIGINS = frozenset({Origin.MCP, Origin.REMOTE})
_OPERATOR_ORIGINS = frozenset({Origin.MANAGED, Origin.BUNDLED})
"""Whoever runs this machine put these skills there, with this package or on purpose."""


class InlineCommandRunner(Protocol):
    """Runs a command that stands in a skill's text, in the sandbox."""

    async def __call__(self, command: str, *, skill: Skill, cwd: Path) -> ExecutionResult:
        """Run it, within two minutes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """A wish to use a skill."""

    name: str
    arguments: str = ""
    trigger: Trigger = "api"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationContext:
    """What the session that invokes a skill has seen so far."""

    waking: PathActivation
    project: Path
    applied: Mapping[str, str] = field(default_factory=dict[str, str])
    """The texts of skills that stand in the conversation already: a digest by name."""
    active: frozenset[str] = frozenset()
    """Skills that stand in the conversation, or whose task it is."""
    tools_mode: ToolsMode = "preapprove"


class Activator:
    """Invokes skills."""

    def __init__(
        self,
        catalog: Catalog,
        run: InlineCommandRunner,
        record: Callable[[str, float], object],
        *,
        runs_commands: bool = True,
    ) -> None:
        self._catalog = catalog
        self._run = run
        self._record = record
        self._runs_commands = runs_commands

    async def activate(
        self, wish: Invocation, situation: ActivationContext, context: ToolContext
    ) -> ToolResult:
        """Invoke a skill; inline it becomes a message, forked its child's last words.

        Raises:
            SkillNotFoundError: With the names that come near.
            SkillNotInvocableError: If it may not be called this way, or sleeps.
            PermissionDeniedError: If a rule, a hook or a person said no.
            ToolFailedError: If a command in its text failed.
            SourceError: If where it comes from cannot be reached.
        """
        try:
            skill = self._find(wish, situation, context)
            return await self._invoke(skill, wish, situation, context)
        except ApexBridgeError as error:
            context.emit(
                SkillRefused(
                    session_id=context.session_id,
                    skill=wish.name,
                    code=error.code,
                    trigger=wish.trigger,
                )
            )
            raise

    def _find(self, wish: Invocation, situation: ActivationContext, context: ToolContext) -> Skill:
        name = wish.name.strip()
        if name.startswith("/"):
            name = name[1:].strip()
            if wish.trigger in _MODEL_TRIGGERS:
                context.emit(SlashUsedByModel(session_id=context.session_id, skill=name))
        if not name:
            raise SkillNotInvocableError(code="skill_name_missing")
        if wish.trigger in _MODEL_TRIGGERS:
            return self._catalog.get_for_model(name, situation.waking)
        skill = self._catalog.get(name)
        if wish.trigger == "user" and not skill.manifest.user_invocable:
            raise SkillNotInvocableError(code="skill_for_models_only", name=skill.name)
        return skill

    async def _invoke(
        self, skill: Skill, wish: Invocation, situation: ActivationContext, context: ToolContext
    ) -> ToolResult:
        body = await self._body(skill, wish.arguments)
        request = _permission_request(skill, body, wish)
        await context.allow([request])
        facts = {"skill": skill.name, "arguments": wish.arguments, "trigger": wish.trigger}
        before = await context.fire(HookEvent.PRE_SKILL, skill.name, facts)
        if before.outcome == "block":
            raise PermissionDeniedError(
                before.reason or "a hook said no", code="hook_blocked", name=skill.name
            )
        if before.asks:
            await context.allow([request], must_ask=True)
        text = await self._text(skill, body, wish, situation, context)
        text = "\n\n".join(filter(None, (text, before.context)))
        await anyio.to_thread.run_sync(partial(self._record, skill.name, time.time()))
        mode = skill.manifest.context
        context.emit(
            SkillActivated(
                session_id=context.session_id,
                skill=skill.name,
                mode=mode,
                trigger=wish.trigger,
                argument_chars=len(wish.arguments),
            )
        )
        way = self._fork if mode == "fork" else self._inline
        result = await way(skill, text, situation, context)
        facts["response"] = result.text
        after = await context.fire(HookEvent.POST_SKILL, skill.name, facts)
        said = "\n\n".join(filter(None, (result.text, after.reason, after.context)))
        return replace(result, text=said)

    async def _body(self, skill: Skill, arguments: str) -> str:
        try:
            content = await self._catalog.content(skill, arguments)
        except (SkillNotFoundError, SourceError) as error:
            if skill.provenance.origin in _REMOTE_ORIGINS:
                detail = str(error)
                raise SkillNotInvocableError(
                    detail, code="skill_out_of_reach", name=skill.name
                ) from error
            raise
        if not content.body.strip():
            raise SkillNotInvocableError(code="skill_no_prompt", name=skill.name)
        return content.body

    async def _text(
        self,
        skill: Skill,
        body: str,
        wish: Invocation,
        situation: ActivationContext,
        context: ToolContext,
    ) -> str:
        """The body as the model is to read it, every command replaced by what it printed."""
        if skill.provenance.origin in _REMOTE_ORIGINS:  # its server has filled in what it wanted
            return body
        values = Substitutions(
            arguments=wish.arguments,
            names=skill.manifest.arguments,
            variables=skill_variables(skill, situation.project, context),
        )
        may_run = skill.may_run_shell and self._runs_commands
        granted = granted_tools(skill, values.variables)
        lent, _ = skill_grants(skill.name, granted, situation.tools_mode)
        parts = list[str]()
        for part in expand(body, values, has_commands=may_run):
            is_text = isinstance(part, str)
            parts.append(part if is_text else await self._printed(part, skill, lent, context))
        return "".join(parts)

    async def _printed(
        self,
        command: CommandPart,
        skill: Skill,
        granted: Sequence[ToolPattern],
        context: ToolContext,
    ) -> str:
        request = PermissionRequest(
            tool="Bash",
            argument=command.text,
            cwd=context.cwd,
            summary=f"a command in the text of {skill.name}",
        )
        await context.allow([request], granted)
        result = await self._run(command.text, skill=skill, cwd=context.cwd)
        if not is_command_success(command.text, result):
            said = result.stderr.decode("utf-8", "replace").strip()
            detail = said or result.error or f"exit {result.exit_code}"
            raise ToolFailedError(
                detail, code="inline_command_failed", name=skill.name, command=command.text
            )
        return truncate_text(result.stdout.decode("utf-8", "replace").strip())

    async def _inline(
        self, skill: Skill, text: str, situation: ActivationContext, context: ToolContext
    ) -> ToolResult:
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        grants = build_grants(skill, skill_variables(skill, situation.project, context))
        data = {"skill": skill.name, "mode": "inline", "digest": digest}
        if situation.applied.get(skill.name) == digest:
            note = f"The skill '{skill.name}' stands above, with this very text. Follow it again."
            return ToolResult(text=note, grants=grants, data=data)
        files = await anyio.to_thread.run_sync(_list_files, skill)
        message = UserMessage(text=wrap_skill(skill, text, files), kind="skill", skill=skill.name)
        return ToolResult(
            text=f"The skill '{skill.name}' is active: follow its instructions.",
            messages=(message,),
            grants=grants,
            data=data,
        )

    async def _fork(
        self, skill: Skill, text: str, situation: ActivationContext, context: ToolContext
    ) -> ToolResult:
        files = await anyio.to_thread.run_sync(_list_files, skill)
        request = SubagentRequest(
            prompt=wrap_skill(skill, text, files),
            agent=skill.manifest.agent or "general-purpose",
            grants=build_grants(skill, skill_variables(skill, situation.project, context)),
            skill=skill.name,
        )
        reply = await context.spawn(request)
        return ToolResult(text=reply, data={"skill": skill.name, "mode": "fork"})


def _permission_request(skill: Skill, body: str, wish: Invocation) -> PermissionRequest:
    """Who asks for a skill by its name has agreed to it; rules may still forbid it."""
    is_asked_for = wish.trigger not in _MODEL_TRIGGERS
    return PermissionRequest(
        tool="Skill",
        argument=skill.name,
        summary=skill.description,
        harmless=is_asked_for or is_text_only(skill, body),
        sha256=skill.fingerprint.sha256 if skill.fingerprint else "",
        is_managed=skill.provenance.origin in _OPERATOR_ORIGINS,
    )


def _list_files(skill: Skill) -> tuple[str, ...]:
    """What lies beside SKILL.md; a folder that cannot be read has nothing to offer."""
    if skill.root is None:
        return ()
    try:
        return tuple(str(e.path) for e in tree.entries(skill.root) if e.kind == "file")
    except OSError:
        return ()


Activate = Callable[[Invocation, ActivationContext, ToolContext], Awaitable[ToolResult]]
