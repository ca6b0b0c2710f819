"""MCP prompts: one for each user-invocable skill."""

import re
import shlex
from collections.abc import Mapping, Sequence

from mcp import types

from apexbridge import locales
from apexbridge.errors import RequestError, SkillNotInvocableError
from apexbridge.messages import UserMessage
from apexbridge.skills.model import Skill
from apexbridge.tools.base import ToolResult

DEFAULT_ARGUMENT = "arguments"
MAX_ARGUMENT_CHARS = 100_000
_MAX_DESCRIPTION = 1_024
_REQUIRED_ARGUMENT = re.compile(r"<([^<>\[\]]+)>")


def to_prompt(skill: Skill, language: locales.Language) -> types.Prompt:
    """Convert a skill to an MCP prompt, with the argument names of its frontmatter."""
    hint = (
        skill.manifest.argument_hint or locales.localize("prompt_arguments", {}, language).message
    )
    needed = set(_REQUIRED_ARGUMENT.findall(skill.manifest.argument_hint or ""))
    names = skill.manifest.arguments or (DEFAULT_ARGUMENT,)
    return types.Prompt(
        name=skill.name,
        description=skill.summary[:_MAX_DESCRIPTION],
        arguments=[
            types.PromptArgument(name=name, description=hint, required=name in needed)
            for name in names
        ],
    )


def join_arguments(skill: Skill, given: Mapping[str, str]) -> str:
    """Join prompt arguments to the text that a user would type after the slash command.

    Raises:
        RequestError: If an argument is unknown, missing or too long.
    """
    prompt = to_prompt(skill, "en").arguments or []
    known = [argument.name for argument in prompt]
    unknown = [name for name in given if name not in known]
    if unknown:
        detail = f"'{unknown[0][:100]}' is not an argument; known arguments: {', '.join(known)}"
        raise RequestError(detail, param=unknown[0][:100])
    if sum(map(len, given.values())) > MAX_ARGUMENT_CHARS:
        raise RequestError(f"the arguments have more than {MAX_ARGUMENT_CHARS} characters")
    for argument in prompt:
        if argument.required and not given.get(argument.name, "").strip():
            raise SkillNotInvocableError(
                code="argument_missing",
                name=skill.name,
                argument=argument.name,
                hint=skill.manifest.argument_hint or argument.name,
            )
    if not skill.manifest.arguments:
        return given.get(DEFAULT_ARGUMENT, "")
    return _quote_words([given.get(name, "") for name in known])


def _quote_words(values: Sequence[str]) -> str:
    """Quote values as shell words; trailing empty ones were not given."""
    while values and not values[-1]:
        values = values[:-1]
    return " ".join(map(shlex.quote, values))


def to_prompt_result(skill: Skill, result: ToolResult) -> types.GetPromptResult:
    """Convert the result of an invocation to user messages."""
    texts = [message.text for message in result.messages if isinstance(message, UserMessage)]
    return types.GetPromptResult(
        description=skill.summary[:_MAX_DESCRIPTION],
        messages=[
            types.PromptMessage(role="user", content=types.TextContent(type="text", text=text))
            for text in texts or [result.text]
        ],
    )
