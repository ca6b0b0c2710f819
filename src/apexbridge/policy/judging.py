"""One request that is no shell command held against rules, and what holds besides them."""

from collections.abc import Sequence
from dataclasses import dataclass

from apexbridge.policy.rules import (
    READING,
    WRITING,
    Decision,
    Effect,
    PermissionRequest,
    Rule,
    ToolPattern,
)
from apexbridge.policy.wildcards import Ground, escaped

_STRICTEST_FIRST: tuple[Effect, ...] = ("deny", "ask", "allow")
_SHOWN = 200
_TOP = 2  # the root and a name in it: its folder would be everything


@dataclass(frozen=True, slots=True, kw_only=True)
class Restriction:
    """The only tools that may be used while a skill is active."""

    skill: str
    tools: tuple[ToolPattern, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What holds in a session, besides rules and grants. Empty means nothing."""

    ground: Ground | None = None
    """Without it, a path rule that needs it refuses, and never allows."""
    restrictions: tuple[Restriction, ...] = ()
    approved: frozenset[str] = frozenset()
    """The states of skills that a person approved for always."""


def judge_one(
    request: PermissionRequest,
    rules: Sequence[Rule],
    granted: Sequence[ToolPattern],
    standing: Standing,
) -> Decision:
    """Judge a request that is no shell command."""
    about = request.argument[:_SHOWN]
    for effect in _STRICTEST_FIRST:
        for rule in rules:
            widely = effect != "allow"
            if rule.effect == effect and means(rule.pattern, request, standing, widely=widely):
                return Decision(effect=effect, why="rule", rule=rule, about=about)
    if request.is_managed:
        return Decision(effect="allow", why="managed")
    if any(means(pattern, request, standing, widely=False) for pattern in granted):
        return Decision(effect="allow", why="grant")
    if request.sha256 and request.sha256 in standing.approved:
        return Decision(effect="allow", why="approval")
    if request.harmless:
        return Decision(effect="allow", why="harmless")
    return Decision(effect="ask", about=about, suggestions=_suggest(request))


def means(
    pattern: ToolPattern, request: PermissionRequest, standing: Standing, *, widely: bool
) -> bool:
    """Whether a pattern speaks of a request; a refusal is read `widely`."""
    if request.tool not in READING | WRITING:
        return pattern.matches(request.tool, request.argument)
    path = request.place
    if path is None:
        return pattern.names(request.tool) and (pattern.is_any or widely)
    return pattern.matches_path(request.tool, path, standing.ground, widely=widely)


def _suggest(request: PermissionRequest) -> tuple[Rule, ...]:
    path = request.place
    if path is not None and request.tool in READING | WRITING:
        folder = f"/{path.parent}".rstrip("/")
        exact, wider = f"/{_literal(str(path))}", f"{_literal(folder)}/**"
        return allowing(request.tool, exact, wider if len(path.parts) > _TOP else "")
    if not request.argument:
        return (Rule(effect="allow", pattern=ToolPattern(request.tool)),)
    head = request.argument.split(":", 1)[0].split(" ", 1)[0]
    return allowing(request.tool, escaped(request.argument), f"{escaped(head)} *")


def _literal(path: str) -> str:
    return "".join(f"\\{char}" if char in "*?[\\" else char for char in path)


def allowing(tool: str, *arguments: str) -> tuple[Rule, ...]:
    """Rules that allow a tool with each argument that is not empty."""
    return tuple(
        Rule(effect="allow", pattern=ToolPattern(tool, argument))
        for argument in arguments
        if argument
    )
