"""Prompt formats: the `<available_skills>` XML block, and the ShipMyAgent section and lookup.

Texts of skills are untrusted and escaped, so that none can close an element or forge a line.
"""

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from pathlib import Path

from apexbridge.catalog.listing_budget import to_single_line, truncate_line
from apexbridge.errors import SkillNotFoundError
from apexbridge.skills.model import Skill
from apexbridge.skills.names import normalise


def available_skills_xml(skills: Iterable[Skill]) -> str:
    """Render name, description and location of each skill as the Agent Skills format suggests."""
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


MAX_LISTED = 40
MAX_ROOTS = 20
MAX_NAME_CHARS = 200
MAX_TEXT_CHARS = 250
MAX_NEAR = 5

_SECTION_HEADER = """\
## Skills

A skill is a folder with instructions for one kind of task. Before you begin a task, call
`skills_list` to see which skills there are; when one fits, call `skills_load` with its id or name
and follow what it says. The tools named beside a skill are its author's advice."""


def skills_section(
    roots: Sequence[Path | str], skills: Sequence[Skill], limit: int = MAX_LISTED
) -> str:
    """Render the Markdown section; empty if the model may invoke no skill."""
    visible = [skill for skill in skills if not skill.manifest.disable_model_invocation]
    if not visible:
        return ""
    parts = [_SECTION_HEADER]
    if roots:
        parts.append("\n".join(("Folders with skills:", *_root_lines(roots))))
    lines = list(map(_skill_line, visible[: max(limit, 0)]))
    more = len(visible) - len(lines)
    if more:
        lines.append(f"- … and {more} more: call `skills_list`")
    parts.append("\n".join(("Skills:", *lines)))
    return "\n\n".join(parts) + "\n"


def skill_id(skill: Skill) -> str:
    """Return the folder name, or the skill's name if it has no folder."""
    return skill.root.name if skill.root is not None else skill.name


def display_name(skill: Skill) -> str:
    """Return the name that SKILL.md declares, as its author wrote it; else the skill's name."""
    return normalise(skill.manifest.name or "") or skill.name


def skill_entry(skill: Skill) -> dict[str, str | list[str]]:
    """Return a skill's entry in the result of `skills_list`."""
    return {
        "id": skill_id(skill),
        "name": display_name(skill),
        "description": skill.summary,
        "allowedTools": list(skill.manifest.allowed_tools),
    }


def find_for_load(skills: Sequence[Skill], wanted: str) -> Skill:
    """Look up the argument of `skills_load`: by id, by name, then by part of the name.

    A skill has two names: the one to invoke it by, and the one that its author wrote.

    Raises:
        SkillNotFoundError: If none matches, or several do; with similar names.
    """
    asked = normalise(wanted)
    folded = asked.casefold()
    if not asked:
        raise SkillNotFoundError("")
    exact: list[Callable[[Skill], bool]] = [
        lambda skill: normalise(skill_id(skill)) == asked,
        lambda skill: asked in {normalise(skill.name), display_name(skill)},
        lambda skill: normalise(skill_id(skill)).casefold() == folded,
        lambda skill: folded in _folded_names(skill),
    ]
    for is_match in exact:
        for skill in skills:
            if is_match(skill):
                return skill
    matches = [s for s in skills if any(folded in name for name in _folded_names(s))]
    if len(matches) == 1:
        return matches[0]
    near = [skill.name for skill in matches[:MAX_NEAR]] or _similar_ids(skills, folded)
    raise SkillNotFoundError(truncate_line(wanted, MAX_NAME_CHARS), near=near)


def _folded_names(skill: Skill) -> set[str]:
    return {normalise(skill.name).casefold(), display_name(skill).casefold()}


def _similar_ids(skills: Iterable[Skill], folded: str) -> list[str]:
    if len(folded) > MAX_NAME_CHARS:
        return []
    names = {
        key.casefold(): skill.name
        for skill in skills
        for key in (skill_id(skill), skill.name, display_name(skill))
        if len(key) <= MAX_NAME_CHARS
    }
    found = difflib.get_close_matches(folded, names, n=MAX_NEAR)
    return list(dict.fromkeys(names[key] for key in found))


def _root_lines(roots: Sequence[Path | str]) -> Iterator[str]:
    yield from (f"- {_prompt_line(str(root), MAX_TEXT_CHARS)}" for root in roots[:MAX_ROOTS])
    if len(roots) > MAX_ROOTS:
        yield f"- … and {len(roots) - MAX_ROOTS} more"


def _skill_line(skill: Skill) -> str:
    name = _prompt_line(display_name(skill), MAX_NAME_CHARS)
    line = f"- {name} (id: {_prompt_line(skill_id(skill), MAX_NAME_CHARS)})"
    if text := _prompt_line(skill.summary, MAX_TEXT_CHARS):
        line += f": {text}"
    if tools := _prompt_line(", ".join(skill.manifest.allowed_tools), MAX_TEXT_CHARS):
        line += f" [tools: {tools}]"
    return line


def _prompt_line(text: str, limit: int) -> str:
    return truncate_line(to_single_line(text), limit)
