"""A skill's text as it stands in a conversation, and whether using it could do anything. Pure."""

import re
from collections.abc import Sequence
from html import escape

from apexbridge.skills.inline import inline_commands
from apexbridge.skills.manifest import SkillManifest
from apexbridge.skills.model import Skill

MAX_FILES = 50
MARK = re.compile(r"<(?=\s{0,9}/?\s{0,9}(?:skill|reminder)\b)", re.IGNORECASE)
"""The beginning of a mark that only we may write; models read such marks generously."""
_SAFE = frozenset({
    "name", "description", "when_to_use", "version", "license", "compatibility", "metadata",
    "argument_hint", "arguments", "user_invocable", "disable_model_invocation", "paths", "effort",
    "shell",
})  # fmt: skip


def wrap(skill: Skill, text: str, files: Sequence[str]) -> str:
    """The text between marks that it cannot write itself, with its folder and files."""
    head = [f'<skill name="{escape(skill.name)}"']
    if skill.root is not None:
        head.append(f' folder="{escape(str(skill.root))}"')
    lines = ["".join(head) + ">"]
    others = [file for file in files if file != "SKILL.md"]
    if others:
        shown = ", ".join(escape(file, quote=False) for file in others[:MAX_FILES])
        more = f", and {len(others) - MAX_FILES} more" if len(others) > MAX_FILES else ""
        lines.append(f"Files in its folder: {shown}{more}")
    lines += ["", MARK.sub("&lt;", text).strip(), "</skill>"]
    return "\n".join(lines)


def is_harmless(skill: Skill, body: str) -> bool:
    """Say whether a skill is words only: nothing set but what is known to be safe.

    A skill that nobody approved lends nothing, whatever it declares.
    """
    manifest = skill.manifest
    if manifest.model_extra:
        return False
    defaults = SkillManifest()
    changed = {
        name
        for name in SkillManifest.model_fields
        if getattr(manifest, name) != getattr(defaults, name)
    }
    return changed <= _SAFE and next(inline_commands(body), None) is None
