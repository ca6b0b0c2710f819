"""Decide allow, deny or ask for one request; a pure function.

The strictest answer wins. A grant, an approval or harmlessness allows only what no rule refuses or
asks about, and a restriction refuses whatever else allows it.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

from apexbridge.errors import PermissionDeniedError
from apexbridge.permissions.rules import (
    Decision,
    PermissionContext,
    PermissionRequest,
    Restriction,
    Rule,
    ToolPattern,
    evaluate_request,
    pattern_applies,
)
from apexbridge.permissions.shell_evaluation import SHELL_TOOL, evaluate_shell

Answer = Literal["once", "always", "no"]
ToolsMode = Literal["preapprove", "restrict", "advise"]
"""What a skill's `allowed-tools` do: lend them, refuse all others, or only tell."""


class Approver(Protocol):
    """Settles an `ask`: a terminal prompts, a server refuses, a test answers."""

    async def __call__(self, request: PermissionRequest, decision: Decision) -> Answer:
        """Answer for a person."""
        ...


def skill_grants(
    skill: str, tools: Sequence[ToolPattern], mode: ToolsMode
) -> tuple[tuple[ToolPattern, ...], Restriction | None]:
    """What a skill's `allowed-tools` grant, and what they forbid. None declared do neither."""
    granted = tuple(tools) if mode == "preapprove" else ()
    is_bound = mode == "restrict" and tools
    return granted, Restriction(skill=skill, tools=tuple(tools)) if is_bound else None


def decide(
    request: PermissionRequest,
    rules: Iterable[Rule],
    granted: Iterable[ToolPattern] = (),
    standing: PermissionContext | None = None,
) -> Decision:
    """Judge one request: refusals first, then questions, then whatever allows it, else ask."""
    standing = standing or PermissionContext()
    rules, granted = tuple(rules), tuple(granted)
    judge = evaluate_shell if request.tool == SHELL_TOOL else evaluate_request
    decision = judge(request, rules, granted, standing)
    if decision.effect != "deny":
        for bound in standing.restrictions:
            if not _is_permitted_by(request, bound.tools, standing):
                return Decision(effect="deny", why="restricted", about=bound.skill)
    return decision


def _is_permitted_by(
    request: PermissionRequest, tools: tuple[ToolPattern, ...], standing: PermissionContext
) -> bool:
    ground = PermissionContext(ground=standing.ground)
    if request.tool == SHELL_TOOL:
        return evaluate_shell(request, (), tools, ground).effect == "allow"
    return any(pattern_applies(pattern, request, standing, widely=False) for pattern in tools)


def permission_error(
    request: PermissionRequest, decision: Decision, *, answer: Answer | None = None
) -> PermissionDeniedError:
    """The error for a request that was not allowed, in words that say why."""
    about = {"tool": request.tool, "argument": request.argument[:200], "about": decision.about}
    if decision.why == "restricted":
        return PermissionDeniedError(code="tool_restricted", **about, skill=decision.about)
    if decision.effect == "deny" and decision.rule is not None:
        detail = f": {decision.rule.reason}" if decision.rule.reason else ""
        pattern = str(decision.rule.pattern)
        return PermissionDeniedError(detail, code="rule_denied", **about, pattern=pattern)
    code = "person_denied" if answer == "no" else "nobody_allowed"
    return PermissionDeniedError(code=code, **about)
