"""Convert the prompts of an MCP server to skills."""

import hashlib
import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from apexbridge.errors import SkillNotInvocableError
from apexbridge.skills.model import Fingerprint, Problem, Provenance, Skill, SkillManifest
from apexbridge.skills.parser import MAX_DESCRIPTION, description_problems
from apexbridge.sources.mcp.connection import qualified_name, sanitize_line

MAX_NAME = 128
MAX_ARGUMENTS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """An argument of a prompt."""

    name: str
    is_required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A prompt as the server lists it."""

    name: str
    description: str = ""
    parameters: tuple[Parameter, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSkill:
    """A prompt and the skill made from it."""

    prompt: Prompt
    skill: Skill


def skills_from_prompts(
    prompts: Iterable[Prompt], *, server: str, provenance: Provenance, taken: Iterable[str]
) -> tuple[dict[str, PromptSkill], list[Problem]]:
    """Convert prompts to skills; on a name conflict the first wins, the other is a problem."""
    offered, problems = dict[str, PromptSkill](), list[Problem]()
    owners = dict.fromkeys(taken, "a skill")
    for prompt in prompts:
        name = qualified_name(server, prompt.name)
        own = f"the prompt '{sanitize_line(prompt.name, MAX_NAME)}'"
        wrong = _validate_prompt(prompt)
        if wrong:
            problems.append(_invalid(prompt, wrong))
        elif name in owners:
            details = {"name": name, "source": own, "winner": owners[name]}
            problems.append(Problem.warning("skill_shadowed", name, **details))
        else:
            owners[name] = own
            offered[name] = PromptSkill(prompt=prompt, skill=_skill(prompt, name, provenance))
            problems += description_problems(prompt.description, name)
    return offered, problems


def _validate_prompt(prompt: Prompt) -> str:
    names = [parameter.name for parameter in prompt.parameters]
    if not prompt.name.strip() or len(prompt.name) > MAX_NAME:
        return f"a name has 1 to {MAX_NAME} characters"
    if len(names) > MAX_ARGUMENTS:
        return f"more than {MAX_ARGUMENTS} arguments"
    if len(set(names)) < len(names):
        return "two arguments have the same name"
    if any(not name.strip() or len(name) > MAX_NAME for name in names):
        return f"an argument's name has 1 to {MAX_NAME} characters"
    return ""


def _invalid(prompt: Prompt, detail: str) -> Problem:
    name = sanitize_line(prompt.name, MAX_NAME)
    return Problem.error("skill_entry_invalid", name, name=name, detail=detail)


def _skill(prompt: Prompt, name: str, provenance: Provenance) -> Skill:
    description = sanitize_line(prompt.description, MAX_DESCRIPTION) or sanitize_line(
        prompt.name, MAX_NAME
    )
    manifest = SkillManifest.model_validate(
        {
            "name": name,
            "description": description,
            "arguments": [parameter.name for parameter in prompt.parameters],
            "argument-hint": argument_hint(prompt) or None,
        }
    )
    return Skill(
        name=name,
        description=description,
        manifest=manifest,
        provenance=provenance,
        fingerprint=_fingerprint(prompt),
    )


def _fingerprint(prompt: Prompt) -> Fingerprint:
    """Hash what the listing says; the text itself is generated at each call."""
    parameters = [[parameter.name, parameter.is_required] for parameter in prompt.parameters]
    said = json.dumps([prompt.name, prompt.description, parameters]).encode()
    return Fingerprint(size=len(said), files=1, sha256=hashlib.sha256(said).hexdigest())


def argument_hint(prompt: Prompt) -> str:
    """Format the arguments: `<required> [optional]`."""
    names = [(sanitize_line(each.name, MAX_NAME), each.is_required) for each in prompt.parameters]
    return " ".join(f"<{name}>" if is_required else f"[{name}]" for name, is_required in names)


def bind_arguments(offered: PromptSkill, arguments: str) -> dict[str, str]:
    """Bind shell-quoted words to the arguments by position; the last argument takes the rest.

    SkillNotInvocableError if a required argument is left without a word.
    """
    parameters = offered.prompt.parameters
    words = _words(arguments)
    if parameters and len(words) > len(parameters):
        last = len(parameters) - 1
        words = [*words[:last], " ".join(words[last:])]
    values = {parameter.name: word for parameter, word in zip(parameters, words, strict=False)}
    for parameter in parameters:
        if parameter.is_required and parameter.name not in values:
            raise SkillNotInvocableError(
                code="argument_missing",
                name=offered.skill.name,
                argument=sanitize_line(parameter.name, MAX_NAME),
                hint=argument_hint(offered.prompt),
            )
    return values


def _words(arguments: str) -> Sequence[str]:
    try:
        return shlex.split(arguments)
    except ValueError:  # an apostrophe is not an opening quote: "don't"
        return arguments.split()
