"""Permission engine: decide allow, deny or ask for one request; a pure function.

The strictest effect wins. A grant, an approval or harmlessness allows only what no rule denies or
asks about, and a restriction denies whatever else allows it.
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

Answer = Literal["once", "always", "always_prefix", "no"]
"""A person's answer: `always` stores the exact request, `always_prefix` a rule for a skill's name
and those below it."""
ApproverReply = Literal["once", "always", "always_prefix", "no", "expired", "unasked"]
"""What an approver returns: an answer, or that none came in time, or that nobody could be asked."""
ToolsMode = Literal["preapprove", "restrict", "advise"]
"""Meaning of a skill's `allowed-tools`: grant them, deny all others, or inform only."""


class Approver(Protocol):
    """Human in the loop for an `ask`: a terminal prompts, a server refuses, a test answers."""

    async def __call__(self, request: PermissionRequest, decision: Decision) -> ApproverReply:
        """Return a person's answer, or why there is none."""
        ...


def skill_grants(
    skill: str, tools: Sequence[ToolPattern], mode: ToolsMode
) -> tuple[tuple[ToolPattern, ...], Restriction | None]:
    """Return the grants and the restriction that follow from a skill's `allowed-tools`."""
    granted = tuple(tools) if mode == "preapprove" else ()
    is_bound = mode == "restrict" and tools
    return granted, Restriction(skill=skill, tools=tuple(tools)) if is_bound else None


def decide(
    request: PermissionRequest,
    rules: Iterable[Rule],
    granted: Iterable[ToolPattern] = (),
    context: PermissionContext | None = None,
) -> Decision:
    """Evaluate one request: deny rules first, then ask rules, then whatever allows it, else ask."""
    context = context or PermissionContext()
    rules, granted = tuple(rules), tuple(granted)
    evaluate = evaluate_shell if request.tool == SHELL_TOOL else evaluate_request
    decision = evaluate(request, rules, granted, context)
    # Restrictions come last, so that no rule, grant or approval can widen them.
    if decision.effect != "deny":
        for bound in context.restrictions:
            if not _is_permitted_by(request, bound.tools, context):
                return Decision(effect="deny", why="restricted", about=bound.skill)
    return decision


def _is_permitted_by(
    request: PermissionRequest, tools: tuple[ToolPattern, ...], context: PermissionContext
) -> bool:
    roots = PermissionContext(roots=context.roots)
    if request.tool == SHELL_TOOL:
        return evaluate_shell(request, (), tools, roots).effect == "allow"
    return any(pattern_applies(pattern, request, context, widely=False) for pattern in tools)


def permission_error(
    request: PermissionRequest, decision: Decision, *, answer: ApproverReply | None = None
) -> PermissionDeniedError:
    """Build the error for a denied request, with the reason."""
    about = {"tool": request.tool, "argument": request.argument[:200], "about": decision.about}
    if decision.why == "restricted":
        return PermissionDeniedError(code="tool_restricted", **about, skill=decision.about)
    if decision.effect == "deny" and decision.rule is not None:
        detail = f": {decision.rule.reason}" if decision.rule.reason else ""
        pattern = str(decision.rule.pattern)
        return PermissionDeniedError(detail, code="rule_denied", **about, pattern=pattern)
    if answer == "no":
        return PermissionDeniedError(code="person_denied", **about)
    rule = decision.suggestions[0].pattern if decision.suggestions else request.tool
    if answer == "expired":
        return PermissionDeniedError(code="approval_expired", **about, rule=str(rule))
    return _unasked_error(request, decision, {**about, "rule": str(rule)})


def _unasked_error(
    request: PermissionRequest, decision: Decision, about: dict[str, str]
) -> PermissionDeniedError:
    if decision.effect == "allow":  # all rules allow it, so a hook wants a person to be asked
        return PermissionDeniedError(code="hook_asks", **about)
    if decision.rule is not None:  # an ask rule: neither an allow rule nor `trust` would help
        return PermissionDeniedError(code="rule_asks", **about, pattern=str(decision.rule.pattern))
    if request.reasons:
        return PermissionDeniedError(code="consent_missing", **about, name=request.argument)
    return PermissionDeniedError(code="nobody_allowed", **about)
