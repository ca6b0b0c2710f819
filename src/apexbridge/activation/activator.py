"""Activator: invoke a skill, the one code path for every trigger.

A slash command, the model's Skill tool, a nested skill, a subagent, the library API and the
servers all call `Activator.activate`. It checks permissions, runs hooks, substitutes arguments,
runs inline commands in the sandbox, counts the use and emits events. Effects on the session are
returned as data.
"""

import hashlib
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, Self

import anyio.to_thread

from apexbridge.activation.agent_profiles import AgentProfiles
from apexbridge.activation.consent import consent_reasons
from apexbridge.activation.grants import build_grants, granted_tools, skill_variables
from apexbridge.activation.template import (
    CommandPart,
    Substitutions,
    expand,
    is_command_success,
    wrap_skill,
)
from apexbridge.catalog.builtin_commands import builtin_command
from apexbridge.catalog.catalog import Catalog
from apexbridge.catalog.path_activation import PathActivation
from apexbridge.catalog.usage import UsageCache
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
from apexbridge.tools.base import AgentProfile, SubagentRequest, ToolContext, ToolResult
from apexbridge.tools.truncation import truncate_text

REFUSALS: Mapping[str, int] = {
    "skill_name_missing": 1,
    "skill_not_found": 2,
    "skill_for_users_only": 4,
    "skill_for_models_only": 4,
    "skill_no_prompt": 5,
    "skill_is_command": 5,
    "skill_out_of_reach": 6,
    "skill_asleep": 7,
    "permission_denied": 8,
    "rule_denied": 8,
    "rule_asks": 8,
    "hook_asks": 8,
    "person_denied": 8,
    "nobody_allowed": 8,
    "consent_missing": 8,
    "approval_expired": 8,
    "tool_restricted": 8,
    "hook_blocked": 8,
    "fork_recursion": 9,
    "fork_too_deep": 9,
    "fork_too_many": 9,
    "agent_not_found": 10,
    "agent_invalid": 10,
}
"""Refusal numbers by error code: 1 to 6 as in Claude Code, the others are ours."""

_MODEL_TRIGGERS: frozenset[Trigger] = frozenset({"model", "nested", "fork"})
_FOLDER_VARIABLE = "${CLAUDE_SKILL_DIR}"
_REMOTE_ORIGINS = frozenset({Origin.MCP, Origin.REMOTE})
_OPERATOR_ORIGINS = frozenset({Origin.MANAGED, Origin.BUNDLED})
"""Skills that the operator of this machine deployed: with the package, or by policy."""


class InlineCommandRunner(Protocol):
    """Sandbox for the inline commands of a skill's text."""

    async def run_inline_command(self, command: str, *, skill: Skill, cwd: Path) -> ExecutionResult:
        """Run a shell command, within two minutes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """Name and arguments of a skill to invoke, and the trigger it came by."""

    name: str
    arguments: str = ""
    trigger: Trigger = "api"

    @classmethod
    def from_slash_command(cls, text: str) -> Self | None:
        """Parse `/name arguments`; None for other text, also for a path such as `/etc/x`."""
        name, *rest = text.strip().split(maxsplit=1) or [""]
        if not name.startswith("/") or len(name) < 2 or "/" in name[1:] or "." in name:
            return None
        return cls(name=name, arguments="".join(rest), trigger="user")

    @property
    def is_by_model(self) -> bool:
        """Return whether the model asked for it, not a person or a program."""
        return self.trigger in _MODEL_TRIGGERS


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationContext:
    """Facts of the invoking session that an activation depends on."""

    path_activation: PathActivation
    project: Path
    applied: Mapping[str, str] = field(default_factory=dict[str, str])
    """SHA-256 of the skill texts in the message history, by skill name."""
    active: frozenset[str] = frozenset()
    """Skills in the message history, and those whose subagent this session is."""
    tools_mode: ToolsMode = "preapprove"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fork:
    """The subagent that a forked skill is going to run as."""

    profile: AgentProfile
    agent_id: str


class Activator:
    """Invoke skills inline (their text becomes a message) or forked (as a subagent)."""

    def __init__(
        self,
        catalog: Catalog,
        commands: InlineCommandRunner,
        usage: UsageCache,
        *,
        agents: AgentProfiles,
        runs_commands: bool = True,
        has_consent: Callable[[Skill], bool] = lambda _: False,
    ) -> None:
        self._catalog, self._commands, self._usage = catalog, commands, usage
        self._agents, self._has_consent = agents, has_consent
        self._runs_commands = runs_commands

    async def activate(
        self, invocation: Invocation, session: ActivationContext, context: ToolContext
    ) -> ToolResult:
        """Invoke a skill; a forked one returns the final text of its subagent.

        Raises:
            SkillNotFoundError: With the closest names.
            SkillNotInvocableError: If it may not be invoked by this trigger, or is not active yet.
            PermissionDeniedError: By a rule, a hook or a person.
            ToolFailedError: If an inline command failed.
            SourceError: If its source is unreachable.
        """
        try:
            skill = await self._catalog.recheck(self._find(invocation, session, context))
            return await self._invoke(skill, invocation, session, context)
        except ApexBridgeError as error:
            context.emit(
                SkillRefused(
                    session_id=context.session_id,
                    skill=invocation.name,
                    code=error.code,
                    number=REFUSALS.get(error.code, 0),
                    trigger=invocation.trigger,
                    call_id=context.call_id,
                    details={name: str(value) for name, value in error.details.items()},
                )
            )
            raise

    def _find(
        self, invocation: Invocation, session: ActivationContext, context: ToolContext
    ) -> Skill:
        name = invocation.name.strip()
        if name.startswith("/"):
            name = name[1:].strip()
            if invocation.is_by_model:
                context.emit(SlashUsedByModel(session_id=context.session_id, skill=name))
        if not name:
            raise SkillNotInvocableError(code="skill_name_missing")
        if builtin_command(name) and self._catalog.snapshot.winner(name) is None:
            raise SkillNotInvocableError(code="skill_is_command", name=name)
        if invocation.is_by_model:
            return self._catalog.get_for_model(name, session.path_activation)
        skill = self._catalog.get(name)
        if invocation.trigger == "user" and not skill.manifest.user_invocable:
            raise SkillNotInvocableError(code="skill_for_models_only", name=skill.name)
        return skill

    async def _invoke(
        self, skill: Skill, invocation: Invocation, session: ActivationContext, context: ToolContext
    ) -> ToolResult:
        body = await self._read_body(skill, invocation.arguments)
        fork = await self._plan_fork(skill, context)
        facts = {
            "skill": skill.name,
            "arguments": invocation.arguments,
            "trigger": invocation.trigger,
        }
        request = await self._permission_request(skill, body, invocation)
        added = await self._check(request, facts, context)
        if _FOLDER_VARIABLE in body:
            skill = await self._with_folder(skill)
        text = await self._render(skill, body, invocation, session, context)
        text = "\n\n".join(filter(None, (text, added)))
        await anyio.to_thread.run_sync(self._usage.record, skill.name, time.time())
        context.emit(
            SkillActivated(
                session_id=context.session_id,
                skill=skill.name,
                mode=skill.manifest.context,
                trigger=invocation.trigger,
                argument_chars=len(invocation.arguments),
                call_id=context.call_id,
                agent_id=fork.agent_id if fork else "",
                agent=fork.profile.name if fork else "",
            )
        )
        if fork is None:
            result = await self._inline(skill, text, session, context)
        else:
            result = await self._fork(skill, text, fork, session, context)
        facts["response"] = result.text
        after = await context.fire(HookEvent.POST_SKILL, skill.name, facts)
        texts = filter(None, (result.text, after.reason, after.context))
        return replace(result, text="\n\n".join(texts))

    async def _permission_request(
        self, skill: Skill, body: str, invocation: Invocation
    ) -> PermissionRequest:
        # A person who names a skill has agreed to it; deny rules still apply.
        reasons = consent_reasons(skill, body) if invocation.is_by_model else ()
        return PermissionRequest(
            tool="Skill",
            argument=skill.name,
            summary=skill.description,
            harmless=not reasons,
            sha256=skill.fingerprint.sha256 if skill.fingerprint else "",
            is_managed=skill.provenance.origin in _OPERATOR_ORIGINS,
            is_consented=bool(reasons) and await anyio.to_thread.run_sync(self._has_consent, skill),
            reasons=reasons,
        )

    async def _check(
        self, request: PermissionRequest, facts: Mapping[str, str], context: ToolContext
    ) -> str:
        """Check permission, then run `PreSkill` hooks; return the context that they add."""
        await context.allow([request])
        verdict = await context.fire(HookEvent.PRE_SKILL, request.argument, facts)
        if verdict.outcome == "block":
            raise PermissionDeniedError(
                verdict.reason or "a hook said no", code="hook_blocked", name=request.argument
            )
        if verdict.asks:
            await context.allow([request], must_ask=True)
        return verdict.context

    async def _read_body(self, skill: Skill, arguments: str) -> str:
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

    async def _with_folder(self, skill: Skill) -> Skill:
        """Give a folder to a skill whose text refers to its files."""
        try:
            return await self._catalog.with_folder(skill)
        except SourceError as error:
            detail = str(error)
            raise SkillNotInvocableError(
                detail, code="skill_out_of_reach", name=skill.name
            ) from error

    async def _render(
        self,
        skill: Skill,
        body: str,
        invocation: Invocation,
        session: ActivationContext,
        context: ToolContext,
    ) -> str:
        """Substitute arguments and variables, and each inline command by its stdout."""
        # An MCP server or a remote one has substituted the arguments itself; its text must not
        # get a second expansion here, which would run commands that arguments brought in.
        if skill.provenance.origin in _REMOTE_ORIGINS:
            return body if skill.root is None else body.replace(_FOLDER_VARIABLE, str(skill.root))
        values = Substitutions(
            arguments=invocation.arguments,
            names=skill.manifest.arguments,
            variables=skill_variables(skill, session.project, context),
        )
        may_run = skill.may_run_shell and self._runs_commands
        tools = granted_tools(skill, values.variables)
        granted, _ = skill_grants(skill.name, tools, session.tools_mode)
        parts = list[str]()
        for part in expand(body, values, has_commands=may_run):
            if isinstance(part, str):
                parts.append(part)
            else:
                parts.append(await self._run_command(part, skill, granted, context))
        return "".join(parts)

    async def _run_command(
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
            summary=f"an inline command of the skill {skill.name}",
        )
        await context.allow([request], granted)
        result = await self._commands.run_inline_command(command.text, skill=skill, cwd=context.cwd)
        if not is_command_success(command.text, result):
            stderr = result.stderr.decode("utf-8", "replace").strip()
            detail = stderr or result.error or f"exit {result.exit_code}"
            raise ToolFailedError(
                detail, code="inline_command_failed", name=skill.name, command=command.text
            )
        return truncate_text(result.stdout.decode("utf-8", "replace").strip())

    async def _inline(
        self, skill: Skill, text: str, session: ActivationContext, context: ToolContext
    ) -> ToolResult:
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        grants = build_grants(skill, skill_variables(skill, session.project, context))
        data = {"skill": skill.name, "mode": "inline", "digest": digest}
        # A second copy of an equal text would only cost tokens.
        if session.applied.get(skill.name) == digest:
            note = f"The skill '{skill.name}' is above, with the same text. Follow it again."
            return ToolResult(text=note, grants=grants, data=data)
        files = await anyio.to_thread.run_sync(_list_files, skill)
        message = UserMessage(
            text=wrap_skill(skill, text, files),
            kind="skill",
            skill=skill.name,
            call_id=context.call_id,
        )
        return ToolResult(
            text=f"The skill '{skill.name}' is active: follow its instructions.",
            messages=(message,),
            grants=grants,
            data=data,
        )

    async def _plan_fork(self, skill: Skill, context: ToolContext) -> _Fork | None:
        """Choose profile and id of the subagent, before anything of the skill happens."""
        if skill.manifest.context != "fork":
            return None
        agent_id = f"{context.session_id}.{uuid.uuid4().hex[:6]}"
        return _Fork(profile=await self._agents.for_skill(skill), agent_id=agent_id)

    async def _fork(
        self, skill: Skill, text: str, fork: _Fork, session: ActivationContext, context: ToolContext
    ) -> ToolResult:
        files = await anyio.to_thread.run_sync(_list_files, skill)
        request = SubagentRequest(
            prompt=wrap_skill(skill, text, files),
            profile=fork.profile,
            grants=build_grants(skill, skill_variables(skill, session.project, context)),
            skill=skill.name,
            agent_id=fork.agent_id,
        )
        reply = await context.spawn(request)
        data = {"skill": skill.name, "mode": "fork", "agent_id": fork.agent_id}
        return ToolResult(text=reply, data={**data, "agent": fork.profile.name})


def _list_files(skill: Skill) -> tuple[str, ...]:
    """List the files of a skill; none of one whose directory cannot be read."""
    if skill.root is None:
        return ()
    try:
        return tuple(str(e.path) for e in tree.entries(skill.root) if e.kind == "file")
    except OSError:
        return ()
