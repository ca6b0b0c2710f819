"""What a skill brings along: variables for its text, tools, hooks, a model. Pure."""

from collections.abc import Mapping
from pathlib import Path

from apexbridge.activation.expand import expand_variables
from apexbridge.policy.rules import ToolPattern
from apexbridge.skills.model import Skill
from apexbridge.tools.base import Grants, ToolContext


def variables_of(skill: Skill, project: Path, context: ToolContext) -> dict[str, str]:
    """What the variables in a skill's text stand for."""
    found = {
        "CLAUDE_PROJECT_DIR": str(project),
        "CLAUDE_SESSION_ID": context.session_id,
        "CLAUDE_EFFORT": context.effort,
    }
    if skill.root is not None:
        found["CLAUDE_SKILL_DIR"] = str(skill.root)
    return found


def granted_tools(skill: Skill, variables: Mapping[str, str]) -> tuple[ToolPattern, ...]:
    """The tools that a skill brings along; none while nobody approved it."""
    if not skill.is_trusted:
        return ()
    return tuple(
        ToolPattern(p.tool, p.argument and expand_variables(p.argument, variables))
        for p in skill.tools
    )


def grants_of(skill: Skill, variables: Mapping[str, str]) -> Grants:
    """What a skill lends to the session that invoked it; nothing while nobody approved it."""
    if not skill.is_trusted:
        return Grants(skill=skill.name, root=skill.root)
    model = skill.manifest.model
    return Grants(
        skill=skill.name,
        root=skill.root,
        tools=granted_tools(skill, variables),
        denied=tuple(map(ToolPattern.parse, skill.manifest.disallowed_tools)),
        hooks=skill.hooks,
        model=None if model == "inherit" else model,
        effort=skill.manifest.effort,
    )
