"""Parse SKILL.md leniently to a manifest and a skill, with a problem for each deviation."""

import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from apexbridge import path_patterns
from apexbridge.errors import ConfigError
from apexbridge.permissions.hook_protocol import Hook, parse_hooks
from apexbridge.permissions.rules import ToolPattern
from apexbridge.regular_files import read_regular
from apexbridge.skills import document, frontmatter, names, tree
from apexbridge.skills.document import SKILL_MD, Document, line_location
from apexbridge.skills.frontmatter import Frontmatter, Repair
from apexbridge.skills.model import (
    PORTABLE_PREFIX,
    Fingerprint,
    Problem,
    Provenance,
    Skill,
    SkillManifest,
    YamlValue,
    canonical_key,
)
from apexbridge.skills.secret_declarations import check_declarations


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedManifest:
    """Typed manifest of the valid fields, and a problem for each invalid one."""

    manifest: SkillManifest
    tools: tuple[ToolPattern, ...]
    hooks: tuple[Hook, ...]
    problems: tuple[Problem, ...]


def parse_manifest(frontmatter: Frontmatter) -> ParsedManifest:
    """Validate every field; an invalid one is left out and reported."""
    repaired = [_repair_warning(repair) for repair in frontmatter.repairs]
    values, shadowed = _canonical_keys(frontmatter)
    manifest, wrong = _manifest(values)
    tools, bad_tools = _tools(manifest)
    hooks, bad_hooks = _hooks(manifest)
    paths, bad_paths = _paths(manifest)
    line_breaks = [_warning("frontmatter_line_breaks")] * frontmatter.has_unicode_line_breaks
    secrets, bad_secrets = check_declarations(manifest.secrets)
    bad_parts = [_warning(**part._asdict(), key="secrets") for part in bad_secrets]
    problems = [*line_breaks, *repaired, *shadowed, *wrong, *bad_tools, *bad_hooks, *bad_paths]
    problems += bad_parts
    return ParsedManifest(
        manifest=manifest.model_copy(update={"paths": paths, "secrets": secrets}),
        tools=tools,
        hooks=hooks,
        problems=tuple(_locate(problem, frontmatter.lines) for problem in problems),
    )


def _repair_warning(repair: Repair) -> Problem:
    where = line_location(repair.line + 2)
    return Problem.warning("frontmatter_repaired", where, key=repair.key, quoted=repair.quoted)


def _locate(problem: Problem, lines: Mapping[str, int]) -> Problem:
    line = lines.get(str(problem.details.get("key")))
    if line is None or problem.where != SKILL_MD:
        return problem
    return replace(problem, where=line_location(line))


def _canonical_keys(frontmatter: Frontmatter) -> tuple[dict[str, YamlValue], list[Problem]]:
    """Resolve aliases of keys; a top-level field takes precedence over one in `metadata`."""
    values, problems = dict[str, YamlValue](), list[Problem]()
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
    if isinstance(metadata, dict) and "secrets" in metadata:
        values.setdefault("secrets", metadata["secrets"])
    return values, problems


def _manifest(values: dict[str, YamlValue]) -> tuple[SkillManifest, list[Problem]]:
    try:
        return SkillManifest.model_validate(values), []
    except ValidationError as error:
        wrong = {str(item["loc"][0]): item for item in error.errors(include_url=False)}
    valid = {key: value for key, value in values.items() if key not in wrong}
    problems = [
        _warning("field_not_text", key=key)
        if item["type"] == "string_type" and len(item["loc"]) == 1
        else _warning("field_invalid", key=key, detail=item["msg"])
        for key, item in wrong.items()
    ]
    return SkillManifest.model_validate(valid), problems


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
    valid, problems, remaining = list[str](), list[Problem](), path_patterns.MAX_EXPANSIONS
    for pattern in manifest.paths:
        details = {"pattern": pattern[:80], "limit": path_patterns.MAX_EXPANSIONS, "key": "paths"}
        count = path_patterns.count_expansions(pattern)
        if count > remaining:
            problems.append(_warning("path_pattern_too_wide", **details))
            continue
        try:
            path_patterns.compile_patterns((pattern,))
        except ValueError as error:
            problems.append(_warning("path_pattern_invalid", **details, detail=str(error)))
        else:
            valid.append(pattern)
            remaining -= count
    return tuple(valid), problems


def _warning(code: str, **details: object) -> Problem:
    return Problem.warning(code, SKILL_MD, **details)


MAX_SKILL_MD_BYTES = 1024 * 1024
MAX_DESCRIPTION = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseResult:
    """A parsed skill, or none, with the problems found."""

    skill: Skill | None = None
    problems: tuple[Problem, ...] = ()
    data: bytes = b""
    """The bytes of SKILL.md, if a skill folder was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillFile:
    """The bytes of SKILL.md; another letter case of its name is only a problem."""

    data: bytes
    problems: tuple[Problem, ...] = ()


def read_skill(root: Path, provenance: Provenance) -> ParseResult:
    """Parse one skill folder and hash its files. Never raises for invalid content."""
    file = read_skill_file(root)
    if isinstance(file, Problem):
        return ParseResult(problems=(file,))
    reading = parse_skill(file.data, folder=root.name, provenance=provenance)
    problems = (*file.problems, *reading.problems)
    if reading.skill is None:
        return ParseResult(problems=problems)
    # The index marker is not part of a skill in our store; in an untrusted one it is hashed too.
    mark = tree.fingerprint(root, is_ours=not provenance.needs_trust)
    if isinstance(mark, Fingerprint):
        skill = replace(reading.skill, root=root, fingerprint=mark)
        return ParseResult(skill=skill, problems=problems, data=file.data)
    unmarked = replace(mark, severity="warning")
    return ParseResult(skill=replace(reading.skill, root=root), problems=(*problems, unmarked))


def read_skill_file(root: Path) -> SkillFile | Problem:
    """Read SKILL.md, whatever its letter case: a regular file within the size limit, no symlink."""
    try:
        present = [path.name for path in root.iterdir()]
    except OSError as error:
        return tree.unreadable(root, error)
    variants = sorted(name for name in present if name.lower() == SKILL_MD.lower())
    if not variants:
        return Problem(code="skill_md_missing", where=root.name)
    name = SKILL_MD if SKILL_MD in variants else variants[0]
    data = _read_regular(root / name)
    if isinstance(data, Problem) or name == SKILL_MD:
        return data if isinstance(data, Problem) else SkillFile(data=data)
    unusual = Problem.warning("skill_md_case", name, name=name)
    return SkillFile(data=data, problems=(unusual,))


def _read_regular(path: Path) -> bytes | Problem:
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            kind = tree.file_kind(status.st_mode)
            return Problem.error("skill_md_not_a_file", path.name, kind=kind)
        data = read_regular(path, MAX_SKILL_MD_BYTES + 1)
    except OSError as error:
        detail = error.strerror or str(error)
        return Problem.error("skill_md_unreadable", path.name, detail=detail)
    if len(data) > MAX_SKILL_MD_BYTES:
        return Problem.error("skill_md_too_large", path.name, limit=MAX_SKILL_MD_BYTES)
    return data


ParsedDocument = tuple[Document, frontmatter.Frontmatter]
"""A split SKILL.md and its parsed frontmatter."""
_parsed_hashes = set[int]()
"""Hashes of frontmatter that parsed: a scan parses it, and indexing need not do so again."""
_MAX_PARSED_HASHES = 65_536


def parse_document(data: bytes) -> ParsedDocument | Problem:
    """Decode, split and parse; the first error ends it."""
    cut = _split(data)
    if isinstance(cut, Problem):
        return cut
    values = frontmatter.read(cut.frontmatter)
    if isinstance(values, Problem):
        return values
    if len(_parsed_hashes) >= _MAX_PARSED_HASHES:
        _parsed_hashes.clear()
    _parsed_hashes.add(hash(cut.frontmatter))
    return cut, values


def parse_body(data: bytes) -> str | Problem:
    """Return the body if the frontmatter is valid; one that parsed before is not parsed again."""
    cut = _split(data)
    if isinstance(cut, Problem):
        return cut
    if hash(cut.frontmatter) in _parsed_hashes:
        return cut.body
    opened = parse_document(data)
    return opened if isinstance(opened, Problem) else opened[0].body


def _split(data: bytes) -> Document | Problem:
    text = document.decode_skill_md(data)
    return text if isinstance(text, Problem) else document.split_frontmatter(text)


def parse_skill(data: bytes, *, folder: str, provenance: Provenance) -> ParseResult:
    """Parse the bytes of a SKILL.md that is in `folder`. Pure."""
    opened = parse_document(data)
    if isinstance(opened, Problem):
        return ParseResult(problems=(opened,))
    cut, values = opened
    declared = parse_manifest(values)
    name, about_name = _name(declared, folder)
    if not name:
        return ParseResult(problems=(*declared.problems, *about_name))
    description, about_description = _description(declared, cut.body, name)
    skill = Skill(
        name=name,
        description=description,
        manifest=declared.manifest,
        provenance=provenance,
        tools=declared.tools,
        hooks=declared.hooks,
        is_trusted=not provenance.needs_trust,
    )
    return ParseResult(skill=skill, problems=(*declared.problems, *about_name, *about_description))


def _name(declared: ParsedManifest, folder: str) -> tuple[str, list[Problem]]:
    """Choose the declared name if valid, else the folder's, else a slug of either."""
    written = names.normalise(declared.manifest.name or "")
    home = names.normalise(folder)
    valid = [name for name in (written, home) if name and not names.name_problems(name, SKILL_MD)]
    used = valid[0] if valid else names.slug(written) or names.slug(home)
    if not used:
        return "", names.name_problems(written or home, SKILL_MD)
    problems = list[Problem]()
    if written and used != written:
        problems.append(_warning("name_replaced", name=written, used=used))
    elif used != home:
        problems.append(_warning("name_mismatch", name=used, folder=folder))
    return used, problems


def _description(declared: ParsedManifest, body: str, name: str) -> tuple[str, list[Problem]]:
    written = (declared.manifest.description or "").strip()
    if not written:
        derived = first_paragraph(body) or name
        return derived, [_warning("description_derived", text=derived[:80])]
    return written, description_problems(written)


def description_problems(text: str, where: str = SKILL_MD) -> list[Problem]:
    """Warn of a description that is longer than the limit."""
    if len(text) <= MAX_DESCRIPTION:
        return []
    return [Problem.warning("description_too_long", where, length=len(text), limit=MAX_DESCRIPTION)]


def first_paragraph(body: str) -> str:
    """Extract the first heading or paragraph as one line."""
    for block in re.split(r"\n\s*\n", body.replace("\r\n", "\n"), maxsplit=20):
        line = " ".join(block.split()) if not block.startswith("#") else block.split("\n", 1)[0]
        words = line.strip("# \t")
        if words and not words.startswith(("<!--", "```", "---")):
            return words[:MAX_DESCRIPTION]
    return ""
