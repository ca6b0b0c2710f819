"""Grants of an activated skill: tools, hooks, model and effort, and the values of its variables."""

from collections.abc import Mapping
from pathlib import Path

from apexbridge.activation.template import expand_variables
from apexbridge.permissions.rules import ToolPattern
from apexbridge.skills.model import Skill
from apexbridge.tools.base import Grants, ToolContext


def skill_variables(skill: Skill, project: Path, context: ToolContext) -> dict[str, str]:
    """Return the values of `${CLAUDE_…}` variables in a skill's text."""
    found = {
        "CLAUDE_PROJECT_DIR": str(project),
        "CLAUDE_SESSION_ID": context.session_id,
        "CLAUDE_EFFORT": context.effort,
    }
    if skill.root is not None:
        found["CLAUDE_SKILL_DIR"] = str(skill.root)
    return found


def granted_tools(skill: Skill, variables: Mapping[str, str]) -> tuple[ToolPattern, ...]:
    """Return the `allowed-tools` of a trusted skill, variables substituted; else none."""
    if not skill.is_trusted:
        return ()
    return tuple(
        ToolPattern(p.tool, p.argument and expand_variables(p.argument, variables))
        for p in skill.tools
    )


def build_grants(skill: Skill, variables: Mapping[str, str]) -> Grants:
    """Build what a skill grants to the invoking session; an untrusted one grants nothing."""
    if not skill.is_trusted:
        return Grants(skill=skill.name, root=skill.root)
    model = skill.manifest.model
    return Grants(
        skill=skill.name,
        root=skill.root,
        tools=granted_tools(skill, variables),
        denied=tuple(map(ToolPattern.parse, skill.manifest.disallowed_tools)),
        hooks=skill.hooks,
        sha256=skill.trusted_sha256,
        model=None if model == "inherit" else model,
        effort=_level(skill.manifest.effort),
    )


def _level(effort: str | None) -> str | None:
    """Return an effort level such as `high`; None for a number, which no model API here takes."""
    level = (effort or "").strip().lower()
    return None if not level or level.isdecimal() else level
