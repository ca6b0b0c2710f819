"""Decide allow, deny or ask for one request; a pure function."""

from collections.abc import Iterable
from typing import Literal, Protocol

from apexbridge.policy.rules import Decision, Effect, PermissionRequest, Rule, ToolPattern

Answer = Literal["once", "always", "no"]

_STRICTEST_FIRST: tuple[Effect, ...] = ("deny", "ask", "allow")


class Approver(Protocol):
    """Settles an `ask`: a terminal prompts, a server refuses, a test answers."""

    async def __call__(self, request: PermissionRequest, decision: Decision) -> Answer:
        """Answer for a person."""
        ...


def decide(
    request: PermissionRequest, rules: Iterable[Rule], granted: Iterable[ToolPattern] = ()
) -> Decision:
    """Judge one request: the strictest matching rule, then grants and harmlessness, then ask."""
    matching = [rule for rule in rules if rule.pattern.matches(request.tool, request.argument)]
    for effect in _STRICTEST_FIRST:
        for rule in matching:
            if rule.effect == effect:
                return Decision(effect=effect, rule=rule)
    if request.harmless or any(p.matches(request.tool, request.argument) for p in granted):
        return Decision(effect="allow")
    return Decision(effect="ask", suggestions=_suggest(request))


def _suggest(request: PermissionRequest) -> tuple[Rule, ...]:
    head = request.argument.split(":", 1)[0].split(" ", 1)[0]
    return (
        Rule(effect="allow", pattern=ToolPattern(request.tool, request.argument)),
        Rule(effect="allow", pattern=ToolPattern(request.tool, f"{head} *")),
    )
