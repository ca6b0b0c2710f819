"""Permission rules: who may call what. Data and matching only."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Self

from apexbridge.errors import ConfigError
from apexbridge.permissions.wildcards import (
    PathRoots,
    escape_pattern,
    path_matches,
    resolve_pattern,
    text_matches,
)

Effect = Literal["allow", "deny", "ask"]
DecisionReason = Literal[
    "rule", "managed", "grant", "approval", "harmless", "restricted", "unclear", "unsettled"
]

READ_TOOLS = frozenset({"Read", "Glob", "Grep"})
WRITE_TOOLS = frozenset({"Write", "Edit"})
_WORD_ENDS = (" ", "\t", "\n")
_EXAMPLE_ROOTS = PathRoots(project=Path("/project"), home=Path("/home"))


@dataclass(frozen=True, slots=True)
class ToolPattern:
    r"""A tool, with an exact or prefix argument.

    `Read` any call of it · `mcp__github__*`, the same as `mcp__github`: every tool that begins so ·
    `Skill(commit)` that argument only · `Bash(git add *)`, the same as `Bash(git add:*)`: that word
    and what follows it · `Bash(git * main)`: a star is anything, `\*` a star · `Read(src/**)`:
    paths, as in a `.gitignore`. `Read` speaks for Glob and Grep too, `Write` and `Edit` for each
    other.
    """

    tool: str
    argument: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the written form.

        Raises:
            ConfigError: If it names no tool, or its brackets do not close.
        """
        tool, bracket, rest = text.strip().partition("(")
        if not tool or any(char.isspace() for char in tool) or ")" in tool:
            raise _bad_pattern(text, "it names no tool")
        if not bracket:
            return cls(tool)
        if not rest.endswith(")"):
            raise _bad_pattern(text, "its bracket does not close")
        argument = rest[:-1].strip()
        if argument.endswith(":*"):
            argument = argument[:-2] + " *"
        return cls(tool, argument)

    def matches(self, tool: str, argument: str = "") -> bool:
        """Say whether a call falls under this pattern, its argument being no path."""
        return self.names(tool) and (self.argument is None or self._is_argument(tool, argument))

    def matches_path(
        self, tool: str, path: Path, ground: PathRoots | None, *, widely: bool
    ) -> bool:
        """Say whether a call falls under this pattern that is about a path; links are followed."""
        if not self.names(tool):
            return False
        return self.is_any or path_matches(self.argument or "", path, ground, widely=widely)

    @property
    def is_any(self) -> bool:
        """Whether it holds for every argument."""
        return self.argument is None or self.argument == "*"

    def names(self, tool: str) -> bool:
        """Say whether it speaks of a tool at all."""
        if self.tool.endswith("*"):
            return tool.startswith(self.tool[:-1])
        if self.tool.startswith("mcp__") and tool.startswith(f"{self.tool}__"):
            return True
        return tool in _covered_tools(self.tool)

    def _is_argument(self, tool: str, argument: str) -> bool:
        pattern = self.argument or ""
        if pattern == "*":
            return True
        if not pattern.endswith(" *"):
            return text_matches(pattern, argument)
        # `review:*` means `review` and `review:x`, but never `reviewer`.
        prefix = pattern[:-2]
        ends = (*_WORD_ENDS, ":") if tool == "Skill" else _WORD_ENDS
        return text_matches(prefix, argument) or any(
            text_matches(f"{prefix}{end}*", argument) for end in ends
        )

    def __str__(self) -> str:
        return self.tool if self.argument is None else f"{self.tool}({self.argument})"


def _covered_tools(tool: str) -> Collection[str]:
    """The tools that a name in a rule stands for."""
    if tool == "Read":
        return READ_TOOLS
    return WRITE_TOOLS if tool in WRITE_TOOLS else {tool}


def unknown_tools(patterns: Iterable[ToolPattern], known: Iterable[str]) -> tuple[str, ...]:
    """The patterns, as written, that name no known tool."""
    names = tuple(known)
    return tuple(str(p) for p in patterns if not any(p.names(name) for name in names))


def _bad_pattern(text: str, detail: str) -> ConfigError:
    return ConfigError(detail, code="tool_pattern_invalid", pattern=text)


def split_patterns(text: str) -> tuple[str, ...]:
    """Cut a list of patterns at blanks and commas that stand outside of brackets."""
    parts, depth, current = list[str](), 0, ""
    for char in text:
        depth += (char == "(") - (char == ")" and depth > 0)
        if depth == 0 and (char.isspace() or char == ","):
            parts.append(current)
            current = ""
        else:
            current += char
    return tuple(part for part in (*parts, current) if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One line of policy; `examples` must match it, and are checked when it is made."""

    effect: Effect
    pattern: ToolPattern
    reason: str = ""
    examples: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for example in self.examples:
            if not self._speaks_of(example):
                raise _bad_pattern(str(self.pattern), f"its example {example!r} does not match it")

    def _speaks_of(self, example: str) -> bool:
        tool = self.pattern.tool
        if tool in READ_TOOLS | WRITE_TOOLS:
            path = _EXAMPLE_ROOTS.project / example
            return self.pattern.matches_path(tool, path, _EXAMPLE_ROOTS, widely=False)
        return self.pattern.matches(tool, example)


def resolve_symlinks(rules: Iterable[Rule], ground: PathRoots) -> tuple[Rule, ...]:
    """The rules, and for each that refuses or asks, the place that its path really leads to.

    Looks at the disk, so it is done when rules are loaded. What is allowed is not widened so.
    """
    followed = list[Rule]()
    for rule in rules:
        followed.append(rule)
        pattern = rule.pattern
        written = "" if pattern.is_any else pattern.argument
        if pattern.tool in READ_TOOLS | WRITE_TOOLS and written and rule.effect != "allow":
            real = resolve_pattern(written, ground)
            if real is not None:
                followed.append(replace(rule, pattern=ToolPattern(pattern.tool, real), examples=()))
    return tuple(followed)


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionRequest:
    """What a tool is about to do, said in the words rules are written in."""

    tool: str
    argument: str = ""
    summary: str = ""
    harmless: bool = False
    path: Path | None = None
    """What is read or written, where it really lies; rules for paths are held against this."""
    cwd: Path | None = None
    """Where a shell command starts: its relative redirections are judged from there."""
    sha256: str = ""
    """The state of the skill's files: a kept approval is for just this one."""
    is_managed: bool = False
    """Whether whoever runs this machine put the skill there."""

    @property
    def place(self) -> Path | None:
        """The path that it is about; None where nobody can tell."""
        if self.path is None and self.argument.startswith("/"):
            return Path(self.argument)
        return self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The verdict, why, the rule behind it, and rules a person could add to settle it."""

    effect: Effect
    why: DecisionReason = "unsettled"
    rule: Rule | None = None
    about: str = ""
    """The part of the request that was decisive: one command of several, or the skill behind it."""
    suggestions: tuple[Rule, ...] = ()


_STRICTEST_FIRST: tuple[Effect, ...] = ("deny", "ask", "allow")
_MAX_SUGGESTED_CHARS = 200
_TOP = 2  # the root and a name in it: its folder would be everything


@dataclass(frozen=True, slots=True, kw_only=True)
class Restriction:
    """The only tools that may be used while a skill is active."""

    skill: str
    tools: tuple[ToolPattern, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionContext:
    """What holds in a session, besides rules and grants. Empty means nothing."""

    ground: PathRoots | None = None
    """Without it, a path rule that needs it refuses, and never allows."""
    restrictions: tuple[Restriction, ...] = ()
    approved: frozenset[str] = frozenset()
    """The states of skills that a person approved for always."""


def evaluate_request(
    request: PermissionRequest,
    rules: Sequence[Rule],
    granted: Sequence[ToolPattern],
    standing: PermissionContext,
) -> Decision:
    """Judge a request that is no shell command."""
    about = request.argument[:_MAX_SUGGESTED_CHARS]
    for effect in _STRICTEST_FIRST:
        for rule in rules:
            widely = effect != "allow"
            if rule.effect == effect and pattern_applies(
                rule.pattern, request, standing, widely=widely
            ):
                return Decision(effect=effect, why="rule", rule=rule, about=about)
    if request.is_managed:
        return Decision(effect="allow", why="managed")
    if any(pattern_applies(pattern, request, standing, widely=False) for pattern in granted):
        return Decision(effect="allow", why="grant")
    if request.sha256 and request.sha256 in standing.approved:
        return Decision(effect="allow", why="approval")
    if request.harmless:
        return Decision(effect="allow", why="harmless")
    return Decision(effect="ask", about=about, suggestions=_suggest_rules(request))


def pattern_applies(
    pattern: ToolPattern, request: PermissionRequest, standing: PermissionContext, *, widely: bool
) -> bool:
    """Whether a pattern speaks of a request; a refusal is read `widely`."""
    if request.tool not in READ_TOOLS | WRITE_TOOLS:
        return pattern.matches(request.tool, request.argument)
    path = request.place
    if path is None:
        return pattern.names(request.tool) and (pattern.is_any or widely)
    return pattern.matches_path(request.tool, path, standing.ground, widely=widely)


def _suggest_rules(request: PermissionRequest) -> tuple[Rule, ...]:
    path = request.place
    if path is not None and request.tool in READ_TOOLS | WRITE_TOOLS:
        folder = f"/{path.parent}".rstrip("/")
        exact, wider = f"/{_literal(str(path))}", f"{_literal(folder)}/**"
        return allow_rules(request.tool, exact, wider if len(path.parts) > _TOP else "")
    if not request.argument:
        return (Rule(effect="allow", pattern=ToolPattern(request.tool)),)
    head = request.argument.split(":", 1)[0].split(" ", 1)[0]
    return allow_rules(request.tool, escape_pattern(request.argument), f"{escape_pattern(head)} *")


def _literal(path: str) -> str:
    return "".join(f"\\{char}" if char in "*?[\\" else char for char in path)


def allow_rules(tool: str, *arguments: str) -> tuple[Rule, ...]:
    """Rules that allow a tool with each argument that is not empty."""
    return tuple(
        Rule(effect="allow", pattern=ToolPattern(tool, argument))
        for argument in arguments
        if argument
    )
