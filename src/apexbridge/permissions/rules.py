"""Permission rules: tool patterns, requests and decisions, and the evaluation of one request."""

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
    "rule",
    "managed",
    "grant",
    "consent",
    "approval",
    "harmless",
    "restricted",
    "unclear",
    "unsettled",
]

READ_TOOLS = frozenset({"Read", "Glob", "Grep"})
WRITE_TOOLS = frozenset({"Write", "Edit"})
_WORD_ENDS = (" ", "\t", "\n")
_EXAMPLE_ROOTS = PathRoots(project=Path("/project"), home=Path("/home"))


@dataclass(frozen=True, slots=True)
class ToolPattern:
    r"""A tool name, with an optional pattern for its argument.

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
        """Parse the written form, such as `Bash(git add *)`.

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
        """Match a call whose argument is not a path."""
        return self.names(tool) and (self.argument is None or self._is_argument(tool, argument))

    def matches_path(self, tool: str, path: Path, roots: PathRoots | None, *, widely: bool) -> bool:
        """Match a call by its path, symlinks resolved."""
        if not self.names(tool):
            return False
        return self.is_any or path_matches(self.argument or "", path, roots, widely=widely)

    @property
    def is_any(self) -> bool:
        """True if it matches every argument."""
        return self.argument is None or self.argument == "*"

    def names(self, tool: str) -> bool:
        """Match the tool's name alone."""
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
    """Return the tools that a name in a rule covers."""
    if tool == "Read":
        return READ_TOOLS
    return WRITE_TOOLS if tool in WRITE_TOOLS else {tool}


def unknown_tools(patterns: Iterable[ToolPattern], known: Iterable[str]) -> tuple[str, ...]:
    """Return the patterns, as written, that match no known tool."""
    names = tuple(known)
    return tuple(str(p) for p in patterns if not any(p.names(name) for name in names))


def _bad_pattern(text: str, detail: str) -> ConfigError:
    return ConfigError(detail, code="tool_pattern_invalid", pattern=text)


def split_patterns(text: str) -> tuple[str, ...]:
    """Split a list of patterns at whitespace and commas outside of brackets."""
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
    """A permission rule; `examples` must match it, and are checked on construction."""

    effect: Effect
    pattern: ToolPattern
    reason: str = ""
    examples: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for example in self.examples:
            if not self._matches_example(example):
                raise _bad_pattern(str(self.pattern), f"its example {example!r} does not match it")

    def _matches_example(self, example: str) -> bool:
        tool = self.pattern.tool
        if tool in READ_TOOLS | WRITE_TOOLS:
            path = _EXAMPLE_ROOTS.project / example
            return self.pattern.matches_path(tool, path, _EXAMPLE_ROOTS, widely=False)
        return self.pattern.matches(tool, example)


def resolve_symlinks(rules: Iterable[Rule], roots: PathRoots) -> tuple[Rule, ...]:
    """Add to each deny or ask rule the symlink target of its path.

    Reads the file system, so it runs when rules are loaded. Allow rules are not widened this way.
    """
    followed = list[Rule]()
    for rule in rules:
        followed.append(rule)
        pattern = rule.pattern
        written = "" if pattern.is_any else pattern.argument
        if pattern.tool in READ_TOOLS | WRITE_TOOLS and written and rule.effect != "allow":
            real = resolve_pattern(written, roots)
            if real is not None:
                followed.append(replace(rule, pattern=ToolPattern(pattern.tool, real), examples=()))
    return tuple(followed)


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionRequest:
    """A call described for the rules: tool, argument, path, working directory."""

    tool: str
    argument: str = ""
    summary: str = ""
    harmless: bool = False
    path: Path | None = None
    """The resolved path that is read or written; path rules match against it."""
    cwd: Path | None = None
    """Working directory of a shell command: relative redirections are resolved from it."""
    sha256: str = ""
    """Hash of the skill's files: a stored approval is for exactly this hash."""
    is_managed: bool = False
    """True if the administrator installed the skill."""
    is_consented: bool = False
    """True if its installer, or a person by `trust`, has agreed to the skill with these files."""
    reasons: tuple[str, ...] = ()
    """Why a skill needs consent, in the words of its frontmatter."""

    @property
    def target(self) -> Path | None:
        """The path of the request; None if unknown."""
        if self.path is None and self.argument.startswith("/"):
            return Path(self.argument)
        return self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The effect, the reason, the deciding rule, and rules a person could add."""

    effect: Effect
    why: DecisionReason = "unsettled"
    rule: Rule | None = None
    about: str = ""
    """The decisive part of the request: one command of several, or the restricting skill."""
    suggestions: tuple[Rule, ...] = ()


_STRICTEST_FIRST: tuple[Effect, ...] = ("deny", "ask", "allow")
_MAX_ABOUT_CHARS = 200
_TOP = 2  # the root and a name in it: its folder would be everything


@dataclass(frozen=True, slots=True, kw_only=True)
class Restriction:
    """The only tools that are permitted while a skill is active."""

    skill: str
    tools: tuple[ToolPattern, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionContext:
    """Session state for decisions, besides rules and grants. Empty permits nothing."""

    roots: PathRoots | None = None
    """Without it, a path rule that needs it denies, and never allows."""
    restrictions: tuple[Restriction, ...] = ()
    approved: frozenset[str] = frozenset()
    """Hashes of skills that a person approved for always."""


def evaluate_request(
    request: PermissionRequest,
    rules: Sequence[Rule],
    granted: Sequence[ToolPattern],
    context: PermissionContext,
) -> Decision:
    """Evaluate a request that is not a shell command."""
    about = request.argument[:_MAX_ABOUT_CHARS]
    for effect in _STRICTEST_FIRST:
        for rule in rules:
            if rule.effect != effect:
                continue
            widely = effect != "allow"  # in doubt a deny rule matches, an allow rule does not
            if pattern_applies(rule.pattern, request, context, widely=widely):
                return Decision(effect=effect, why="rule", rule=rule, about=about)
    if request.is_managed or request.is_consented:
        return Decision(effect="allow", why="managed" if request.is_managed else "consent")
    if any(pattern_applies(pattern, request, context, widely=False) for pattern in granted):
        return Decision(effect="allow", why="grant")
    if request.sha256 and request.sha256 in context.approved:
        return Decision(effect="allow", why="approval")
    if request.harmless:
        return Decision(effect="allow", why="harmless")
    about = _shorten("; ".join(request.reasons)) or about
    return Decision(effect="ask", about=about, suggestions=_suggest_rules(request))


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_ABOUT_CHARS else f"{text[: _MAX_ABOUT_CHARS - 1]}…"


def pattern_applies(
    pattern: ToolPattern, request: PermissionRequest, context: PermissionContext, *, widely: bool
) -> bool:
    """Match a pattern against a request; a deny rule matches `widely`, in doubt too."""
    if request.tool not in READ_TOOLS | WRITE_TOOLS:
        return pattern.matches(request.tool, request.argument)
    path = request.target
    if path is None:
        return pattern.names(request.tool) and (pattern.is_any or widely)
    return pattern.matches_path(request.tool, path, context.roots, widely=widely)


def _suggest_rules(request: PermissionRequest) -> tuple[Rule, ...]:
    path = request.target
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
    """Build allow rules for a tool, one for each argument that is not empty."""
    patterns = (ToolPattern(tool, argument) for argument in arguments if argument)
    return tuple(Rule(effect="allow", pattern=pattern) for pattern in patterns)
