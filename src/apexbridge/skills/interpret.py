"""From frontmatter values to a manifest: forgiving, and every liberty taken is told. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pydantic import ValidationError

from apexbridge.errors import ConfigError
from apexbridge.policy.hookspec import Hook, parse_hooks
from apexbridge.policy.rules import ToolPattern
from apexbridge.skills import patterns
from apexbridge.skills.document import SKILL_MD, at
from apexbridge.skills.frontmatter import Frontmatter
from apexbridge.skills.manifest import PORTABLE_PREFIX, SkillManifest, Value, canonical_key
from apexbridge.skills.model import Problem
from apexbridge.skills.repair import Repair


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What the author declared, as far as it makes sense, and what does not."""

    manifest: SkillManifest
    tools: tuple[ToolPattern, ...]
    hooks: tuple[Hook, ...]
    problems: tuple[Problem, ...]


def interpret(frontmatter: Frontmatter) -> Declared:
    """Read every field; one that makes no sense is left out and becomes a problem."""
    repaired = [_repaired(repair) for repair in frontmatter.repairs]
    values, shadowed = _canonical(frontmatter)
    manifest, wrong = _manifest(values)
    tools, bad_tools = _tools(manifest)
    hooks, bad_hooks = _hooks(manifest)
    paths, bad_paths = _paths(manifest)
    breaks = [_warning("frontmatter_line_breaks")] if frontmatter.has_odd_breaks else []
    problems = [*breaks, *repaired, *shadowed, *wrong, *bad_tools, *bad_hooks, *bad_paths]
    return Declared(
        manifest=manifest.model_copy(update={"paths": paths}),
        tools=tools,
        hooks=hooks,
        problems=tuple(_place(problem, frontmatter.lines) for problem in problems),
    )


def _repaired(repair: Repair) -> Problem:
    problem = _warning("frontmatter_repaired", key=repair.key, quoted=repair.quoted)
    return replace(problem, where=at(repair.line + 2))


def _place(problem: Problem, lines: Mapping[str, int]) -> Problem:
    line = lines.get(str(problem.details.get("key")))
    return replace(problem, where=at(line)) if line and problem.where == SKILL_MD else problem


def _canonical(frontmatter: Frontmatter) -> tuple[dict[str, Value], list[Problem]]:
    """Bring known keys to one spelling; a field of the top level wins over one in `metadata`."""
    values, problems = dict[str, Value](), list[Problem]()
    for key, value in frontmatter.values.items():
        known = canonical_key(key) or key
        if known in values or (known != key and known in frontmatter.values):
            problems.append(_warning("alias_shadowed", key=key, other=known))
        else:
            values[known] = value
    metadata = values.get("metadata")
    for key, value in metadata.items() if isinstance(metadata, dict) else ():
        if key.startswith(PORTABLE_PREFIX):
            known = canonical_key(key.removeprefix(PORTABLE_PREFIX))
            if known and isinstance(value, str):
                values.setdefault(known, value)
    return values, problems


def _manifest(values: dict[str, Value]) -> tuple[SkillManifest, list[Problem]]:
    try:
        return SkillManifest.model_validate(values), []
    except ValidationError as error:
        wrong = {str(item["loc"][0]): item for item in error.errors(include_url=False)}
    sound = {key: value for key, value in values.items() if key not in wrong}
    problems = [
        _warning("field_not_text", key=key)
        if item["type"] == "string_type" and len(item["loc"]) == 1
        else _warning("field_invalid", key=key, detail=item["msg"])
        for key, item in wrong.items()
    ]
    return SkillManifest.model_validate(sound), problems


def _tools(manifest: SkillManifest) -> tuple[tuple[ToolPattern, ...], list[Problem]]:
    tools, problems = list[ToolPattern](), list[Problem]()
    for key, texts in (
        ("allowed-tools", manifest.allowed_tools),
        ("disallowed-tools", manifest.disallowed_tools),
    ):
        for text in texts:
            try:
                pattern = ToolPattern.parse(text)
            except ConfigError as error:
                problems.append(_warning(error.code, **error.details, key=key))
            else:
                if key == "allowed-tools":
                    tools.append(pattern)
    return tuple(tools), problems


def _hooks(manifest: SkillManifest) -> tuple[tuple[Hook, ...], list[Problem]]:
    hooks, problems = list[Hook](), list[Problem]()
    for event, declared in manifest.hooks.items():
        try:
            hooks += parse_hooks(event, declared)
        except ConfigError as error:
            problems.append(_warning(error.code, **error.details, key="hooks"))
    return tuple(hooks), problems


def _paths(manifest: SkillManifest) -> tuple[tuple[str, ...], list[Problem]]:
    sound, problems, room = list[str](), list[Problem](), patterns.MAX_EXPANSIONS
    for pattern in manifest.paths:
        details = {"pattern": pattern[:80], "limit": patterns.MAX_EXPANSIONS, "key": "paths"}
        count = patterns.count_expansions(pattern)
        if count > room:
            problems.append(_warning("path_pattern_too_wide", **details))
            continue
        try:
            patterns.compile_patterns((pattern,))
        except ValueError as error:
            problems.append(_warning("path_pattern_invalid", **details, detail=str(error)))
        else:
            sound.append(pattern)
            room -= count
    return tuple(sound), problems


def _warning(code: str, **details: object) -> Problem:
    return Problem(code=code, where=SKILL_MD, severity="warning", details=details)
