"""Validate a skill strictly against the Agent Skills format and report every violation.

Level `spec` is the Agent Skills format alone. `compat` is what we and the most used client accept:
more fields, more spellings, and a few more rules for names, and advice on what breaks no rule.
Errors block install and packing; warnings and advice do not.
"""

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Literal

from apexbridge.skills import links, names, tree
from apexbridge.skills.advice import advise
from apexbridge.skills.document import SKILL_MD, Document, line_location
from apexbridge.skills.frontmatter import Frontmatter
from apexbridge.skills.model import (
    DESCRIPTIVE_KEYS,
    KEYS,
    PORTABLE_PREFIX,
    SPEC_KEYS,
    Problem,
    canonical_key,
    fold_key,
)
from apexbridge.skills.parser import (
    MAX_DESCRIPTION,
    ParsedManifest,
    parse_document,
    parse_manifest,
    read_skill_file,
)
from apexbridge.skills.references import reference_problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """Untrusted skill from a folder or an archive: SKILL.md, file paths, and problems with them."""

    folder: str
    skill_md: bytes
    files: frozenset[PurePosixPath] = frozenset()
    problems: tuple[Problem, ...] = ()


def open_folder(root: Path) -> Package | Problem:
    """Open a folder; symlinks that lead out, devices and too many files are problems."""
    file = read_skill_file(root)
    if isinstance(file, Problem):
        return file
    problems = list(file.problems)
    files = frozenset(_paths(root, problems))
    return Package(
        folder=root.resolve().name, skill_md=file.data, files=files, problems=tuple(problems)
    )


def _paths(root: Path, problems: list[Problem]) -> Iterator[PurePosixPath]:
    try:
        for count, entry in enumerate(links.copied_entries(root), 1):
            if count > tree.MAX_FILES:
                problems.append(tree.too_many_files(root, tree.MAX_FILES))
                return
            problems += _unsupported_entry(entry)
            yield entry.path
    except OSError as error:
        problems.append(tree.unreadable(root, error))


def _unsupported_entry(entry: tree.TreeEntry) -> Iterator[Problem]:
    where = str(entry.path).encode("utf-8", "backslashreplace").decode()
    details = {"path": where, "kind": entry.kind}
    if entry.kind in {"link", "device"}:
        yield Problem(code="tree_odd_file", where=where, details=details)
    if where != str(entry.path):
        yield Problem(code="tree_odd_name", where=where, details=details)


Level = Literal["spec", "compat"]

MAX_COMPATIBILITY = 500
PLACEHOLDER = "Say here what this skill does"
"""Prefix of the scaffold's description: if present, none was written."""

_ALWAYS_WARNING = frozenset({"frontmatter_repaired", "frontmatter_line_breaks", "alias_shadowed"})
# Such a pattern grants nothing. Of `disallowed-tools` it would withhold nothing, so it is an error.
_MILD_OF_KEY = frozenset({("tool_pattern_invalid", "allowed-tools")})


def validate(package: Package, level: Level = "compat") -> tuple[Problem, ...]:
    """Report every violation, in the order of the file."""
    opened = parse_document(package.skill_md)
    if isinstance(opened, Problem):
        return (*package.problems, opened)
    cut, values = opened
    declared = parse_manifest(values)
    problems = [
        *package.problems,
        *_strict(declared.problems, level, values),
        *_keys(values, level),
        *_name(declared, values, package.folder, level),
        *_description(declared, values, level),
        *_other_fields(declared, values, level),
        *_body(cut, package),
    ]
    if level == "compat":
        place = line_location(values.lines.get("description", 1))
        problems += advise(declared.manifest, cut.text, place)
    return tuple(sorted(problems, key=_line_number))


def _line_number(problem: Problem) -> int:
    line = problem.where.rpartition(":")[2]
    return int(line) if line.isdecimal() else 0


def _strict(found: Iterable[Problem], level: Level, values: Frontmatter) -> Iterable[Problem]:
    for problem in found:
        key = str(problem.details.get("key"))
        if level == "spec" and key in values.values and key not in SPEC_KEYS:
            continue  # an unknown key is reported once, by _keys
        is_mild = level == "compat" and (problem.code, key) in _MILD_OF_KEY
        is_mild |= level == "compat" and problem.code in _ALWAYS_WARNING
        yield replace(problem, severity="warning" if is_mild else "error")


def _keys(values: Frontmatter, level: Level) -> Iterable[Problem]:
    for key, line in values.lines.items():
        if level == "spec" and key not in SPEC_KEYS:
            yield Problem.error("key_not_in_spec", line_location(line), key=key)
        elif level == "compat" and canonical_key(key) is None and not _is_descriptive(key):
            near = difflib.get_close_matches(key, KEYS, n=1, cutoff=0.75)
            code = "unknown_key_near" if near else "unknown_key"
            yield Problem.warning(code, line_location(line), key=key, near="".join(near))
    yield from _portable_keys(values)


def _is_descriptive(key: str) -> bool:
    return fold_key(key) in DESCRIPTIVE_KEYS


def _portable_keys(values: Frontmatter) -> Iterable[Problem]:
    metadata = values.values.get("metadata")
    for key in metadata if isinstance(metadata, dict) else ():
        field = key.removeprefix(PORTABLE_PREFIX)
        if field != key and canonical_key(field) is None:
            where = line_location(values.lines["metadata"])
            yield Problem.warning("unknown_key", where, key=key)


def _name(
    declared: ParsedManifest, values: Frontmatter, folder: str, level: Level
) -> Iterable[Problem]:
    where = line_location(values.lines.get("name", 1))
    if "name" not in values.values:
        severity = "error" if level == "spec" else "warning"
        details = {"suggestion": names.slug(folder) or "my-skill"}
        yield Problem(code="name_missing", where=where, severity=severity, details=details)
        yield from names.name_problems(folder, where)
        return
    if isinstance(values.values["name"], list | dict):
        return  # reported as a field that is not text
    name = names.normalise(declared.manifest.name or "")
    yield from names.name_problems(name, where)
    if level == "compat" and names.is_device(name):
        yield Problem.error("name_reserved", where, name=name)
    elif level == "compat" and names.is_of_vendor(name):
        # Vendors publish skills under these names, so they install; a copycat shows by the warning.
        yield Problem.warning("name_of_vendor", where, name=name)
    if name and names.normalise(folder) != name:
        yield Problem.error("name_mismatch", where, name=name, folder=folder)


def _description(declared: ParsedManifest, values: Frontmatter, level: Level) -> Iterable[Problem]:
    where = line_location(values.lines.get("description", 1))
    if "description" not in values.values:
        yield Problem(code="description_missing", where=where)
        return
    if isinstance(values.values["description"], list | dict):
        return  # reported as a field that is not text
    text = declared.manifest.description or ""
    if not text.strip():
        yield Problem(code="description_empty", where=where)
    if len(text) > MAX_DESCRIPTION:
        yield _too_long("description_too_long", where, len(text), MAX_DESCRIPTION, level)
    if text.startswith(PLACEHOLDER):
        yield Problem.warning("description_placeholder", where)


def _too_long(code: str, where: str, length: int, limit: int, level: Level) -> Problem:
    """Report a length over the format's limit: other clients take it, so it is no error for us."""
    severity = "error" if level == "spec" else "warning"
    details = {"length": length, "limit": limit}
    return Problem(code=code, where=where, severity=severity, details=details)


def _other_fields(declared: ParsedManifest, values: Frontmatter, level: Level) -> Iterable[Problem]:
    compatibility = declared.manifest.compatibility or ""
    if len(compatibility) > MAX_COMPATIBILITY:
        where = line_location(values.lines["compatibility"])
        length = len(compatibility)
        yield _too_long("compatibility_too_long", where, length, MAX_COMPATIBILITY, level)
    metadata = values.values.get("metadata")
    if isinstance(metadata, dict) and any(isinstance(v, list | dict) for v in metadata.values()):
        yield Problem.warning("metadata_not_map", line_location(values.lines["metadata"]))
    tools = values.values.get("allowed-tools")
    if level == "spec" and isinstance(tools, list):
        where = line_location(values.lines["allowed-tools"])
        suggestion = " ".join(declared.manifest.allowed_tools)
        yield Problem.error("tools_not_text", where, suggestion=suggestion)


def _body(cut: Document, package: Package) -> Iterable[Problem]:
    if not cut.body.strip():
        yield Problem.warning("body_empty", SKILL_MD)
    first = cut.text[: len(cut.text) - len(cut.body)].count("\n") + 1
    yield from reference_problems(cut.body, first, package.files)
