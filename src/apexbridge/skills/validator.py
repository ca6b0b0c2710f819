"""Validate a skill strictly against the Agent Skills format and report every violation.

Level `spec` is the Agent Skills format alone. `compat` is what we and the most used client accept:
more fields, more spellings, and a few more rules for names, and advice on what breaks no rule.
Errors block install and packing; warnings and advice do not.
"""

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Literal

from apexbridge.skills import names, tree
from apexbridge.skills.advice import advise
from apexbridge.skills.document import SKILL_MD, Document, line_location
from apexbridge.skills.frontmatter import Frontmatter
from apexbridge.skills.model import KEYS, PORTABLE_PREFIX, SPEC_KEYS, Problem, canonical_key
from apexbridge.skills.parser import (
    MAX_DESCRIPTION,
    ParsedManifest,
    parse_document,
    parse_manifest,
    read_skill_file,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """Untrusted skill from a folder or an archive: SKILL.md, file paths, and problems with them."""

    folder: str
    skill_md: bytes
    files: frozenset[PurePosixPath] = frozenset()
    problems: tuple[Problem, ...] = ()


def open_folder(root: Path) -> Package | Problem:
    """Open a folder; symlinks, devices and too many files are problems."""
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
        for count, entry in enumerate(tree.entries(root), 1):
            if count > tree.MAX_FILES:
                problems.append(tree.too_many_files(root, tree.MAX_FILES))
                return
            if not tree.is_junk(entry.path):
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
_MAX_REFERENCES = 1_000
_FENCED = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(<?([^()<>\s]{1,400})>?\)|\$\{CLAUDE_SKILL_DIR\}/([\w./-]{1,400})")
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*:|#|\$|\{", re.IGNORECASE)


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
        *_description(declared, values),
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
        is_mild = level == "compat" and problem.code in _ALWAYS_WARNING
        yield replace(problem, severity="warning" if is_mild else "error")


def _keys(values: Frontmatter, level: Level) -> Iterable[Problem]:
    for key, line in values.lines.items():
        if level == "spec" and key not in SPEC_KEYS:
            yield Problem.error("key_not_in_spec", line_location(line), key=key)
        elif level == "compat" and canonical_key(key) is None:
            near = difflib.get_close_matches(key, KEYS, n=1, cutoff=0.75)
            code = "unknown_key_near" if near else "unknown_key"
            yield Problem.warning(code, line_location(line), key=key, near="".join(near))
    yield from _portable_keys(values)


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
    if level == "compat" and names.is_reserved(name):
        yield Problem.error("name_reserved", where, name=name)
    if name and names.normalise(folder) != name:
        yield Problem.error("name_mismatch", where, name=name, folder=folder)


def _description(declared: ParsedManifest, values: Frontmatter) -> Iterable[Problem]:
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
        yield Problem.error("description_too_long", where, length=len(text), limit=MAX_DESCRIPTION)
    if text.startswith(PLACEHOLDER):
        yield Problem.warning("description_placeholder", where)


def _other_fields(declared: ParsedManifest, values: Frontmatter, level: Level) -> Iterable[Problem]:
    compatibility = declared.manifest.compatibility or ""
    if len(compatibility) > MAX_COMPATIBILITY:
        where = line_location(values.lines["compatibility"])
        length, limit = len(compatibility), MAX_COMPATIBILITY
        yield Problem.error("compatibility_too_long", where, length=length, limit=limit)
    metadata = values.values.get("metadata")
    if isinstance(metadata, dict) and any(isinstance(v, list | dict) for v in metadata.values()):
        yield Problem.warning("metadata_not_map", line_location(values.lines["metadata"]))
    tools = values.values.get("allowed-tools")
    if level == "spec" and isinstance(tools, list):
        where = line_location(values.lines["allowed-tools"])
        suggestion = " ".join(declared.manifest.allowed_tools)
        yield Problem.error("tools_not_text", where, suggestion=suggestion)


def _body(cut: Document, package: Package) -> Iterable[Problem]:
    first = cut.text[: len(cut.text) - len(cut.body)].count("\n") + 1
    if not cut.body.strip():
        yield Problem.warning("body_empty", SKILL_MD)
    reported, line, seen = set[str](), first, 0
    text = _FENCED.sub(lambda block: re.sub(r"[^\n]", " ", block[0]), cut.body)
    for match in _LINK.finditer(text):
        path = (match[1] or match[2]).split("#")[0].split("?")[0]
        if not path or path in reported or (match[1] and _ADDRESS.match(match[1])):
            continue
        if len(reported) == _MAX_REFERENCES:
            return
        reported.add(path)
        line, seen = line + text.count("\n", seen, match.start()), match.start()
        code = _reference_problem(path, package.files)
        if code:
            yield Problem.warning(code, line_location(line), path=path)


def _reference_problem(path: str, files: frozenset[PurePosixPath]) -> str:
    if path.startswith(("/", "~", "\\")):
        return "reference_outside"
    parts = list[str]()
    for part in PurePosixPath(path).parts:
        if part == ".." and not parts:
            return "reference_outside"
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "" if not parts or PurePosixPath(*parts) in files else "reference_missing"
