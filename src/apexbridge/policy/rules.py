"""Permission rules: who may call what. Data and matching only."""

from dataclasses import dataclass
from typing import Literal, Self

from apexbridge.errors import ConfigError

Effect = Literal["allow", "deny", "ask"]

_WORD_ENDS = (" ", "\t", "\n")


@dataclass(frozen=True, slots=True)
class ToolPattern:
    """A tool, with an exact or prefix argument.

    `Read` any call of it · `mcp__github__*` every tool that begins so · `Skill(commit)` that
    argument only · `Bash(git add *)`, the same as `Bash(git add:*)`: that word and what follows it.
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
        """Say whether a call falls under this pattern."""
        return self._is_tool(tool) and (self.argument is None or self._is_argument(tool, argument))

    def _is_tool(self, tool: str) -> bool:
        if self.tool.endswith("*"):
            return tool.startswith(self.tool[:-1])
        return tool == self.tool

    def _is_argument(self, tool: str, argument: str) -> bool:
        pattern = self.argument or ""
        if pattern == "*":
            return True
        if not pattern.endswith(" *"):
            return argument == pattern
        # `review:*` means `review` and `review:x`, but never `reviewer`.
        prefix = pattern[:-2]
        ends = (*_WORD_ENDS, ":") if tool == "Skill" else _WORD_ENDS
        return argument == prefix or argument.startswith(tuple(prefix + end for end in ends))

    def __str__(self) -> str:
        return self.tool if self.argument is None else f"{self.tool}({self.argument})"


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
            if not self.pattern.matches(self.pattern.tool, example):
                raise _bad_pattern(str(self.pattern), f"its example {example!r} does not match it")


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionRequest:
    """What a tool is about to do, said in the words rules are written in."""

    tool: str
    argument: str = ""
    summary: str = ""
    harmless: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The verdict, the rule behind it, and rules a person could add to settle it."""

    effect: Effect
    rule: Rule | None = None
    suggestions: tuple[Rule, ...] = ()
