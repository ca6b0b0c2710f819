"""Reasons for which the model needs a person's consent to use a skill.

The table of docs/consent.md in code: a skill that gives none of these reasons only adds text. A
script of a trusted skill runs in the sandbox without being asked for, so nothing that does no more
than that is a reason either.
"""

from collections.abc import Iterator

from apexbridge.skills.document import inline_commands
from apexbridge.skills.model import DESCRIPTIVE_KEYS, Skill, SkillManifest, fold_key

HARMLESS_TOOLS = frozenset({
    "Read", "Glob", "Grep", "FileRead", "FileSearch", "LS", "NotebookRead",
    "SkillSearch", "VectorSearch", "skills_list", "skills_load",
    "Calculate", "Now", "Platform", "calculate", "datetime", "PlatformDetector",
    "TodoRead", "TodoWrite", "AskUserQuestion",
})  # fmt: skip
"""Tools that change nothing and reach nothing outside of the project, here or in other clients.

Not `Skill`: lending it would consent to every other skill. Not `SkillScript`: it is harmless only
where there is a sandbox, and there it needs no grant.
"""

_DESCRIPTIVE_FIELDS = frozenset({
    "name", "description", "when_to_use", "version", "license", "compatibility", "metadata",
    "argument_hint", "arguments", "user_invocable", "disable_model_invocation", "paths", "effort",
    "shell", "disallowed_tools", "allowed_tools",
})  # fmt: skip
"""Fields that never need consent; `allowed-tools` is judged by the tools that it names."""
_DEFAULTS = SkillManifest()
_MAX_COMMAND_CHARS = 80


def consent_reasons(skill: Skill, body: str) -> tuple[str, ...]:
    """Return the reasons in the words of the frontmatter; none for a skill that only adds text."""
    commands = (f"!`{found.command[:_MAX_COMMAND_CHARS]}`" for found in inline_commands(body))
    return tuple(dict.fromkeys((*_tools(skill), *_fields(skill.manifest), *commands)))


def _tools(skill: Skill) -> Iterator[str]:
    for pattern in skill.manifest.allowed_tools:
        # A skill that nobody trusts yet may not name a harmless one either.
        if not skill.is_trusted or pattern.partition("(")[0].strip() not in HARMLESS_TOOLS:
            yield f"allowed-tools: {pattern}"


def _fields(manifest: SkillManifest) -> Iterator[str]:
    for name, field in SkillManifest.model_fields.items():
        value = getattr(manifest, name)
        is_harmless = name in _DESCRIPTIVE_FIELDS or value == getattr(_DEFAULTS, name)
        if not is_harmless and (name, value) != ("model", "inherit"):
            yield f"{field.alias or name}: {_shown(name, manifest)}"
    # Nothing reads an unknown key today; a later version may, and it may mean to act.
    yield from (f"{key}: ?" for key in unknown_keys(manifest))


def unknown_keys(manifest: SkillManifest) -> tuple[str, ...]:
    """Return the keys that are neither fields nor merely descriptive."""
    return tuple(k for k in manifest.model_extra or () if fold_key(k) not in DESCRIPTIVE_KEYS)


def _shown(name: str, manifest: SkillManifest) -> object:
    """Shorten what may be long: of hooks the events, of secrets the names."""
    if name == "secrets":
        return ", ".join(declared.name for declared in manifest.secrets)
    return ", ".join(manifest.hooks) if name == "hooks" else getattr(manifest, name)
