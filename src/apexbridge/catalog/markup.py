"""Skills as the XML block that many system prompts use; text from skills is escaped. Pure."""

from collections.abc import Iterable
from html import escape

from apexbridge.skills.model import Skill


def available_skills(skills: Iterable[Skill]) -> str:
    """Name, summary and place of each skill, in the layout the Agent Skills format suggests."""
    lines = ["<available_skills>"]
    for skill in skills:
        fields = {"name": skill.name, "description": skill.summary}
        if skill.root is not None:
            fields["location"] = str(skill.root / "SKILL.md")
        lines.append("<skill>")
        for tag, text in fields.items():
            lines += [f"<{tag}>", escape(text, quote=False), f"</{tag}>"]
        lines.append("</skill>")
    lines.append("</available_skills>")
    return "\n".join(lines)
