"""Hold a skill against the rules, strictly, and say every broken one at once. Pure.

`spec` is the Agent Skills format and nothing else. `compat` is what we and the most used client
take: more fields, more spellings, and a few more rules about names. Errors keep a skill from being
installed or packed; warnings do not.
"""

import difflib
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Literal

from apexbridge.skills import names
from apexbridge.skills.document import SKILL_MD, Document, at
from apexbridge.skills.frontmatter import Frontmatter
from apexbridge.skills.interpret import Declared, interpret
from apexbridge.skills.manifest import KEYS, PORTABLE_PREFIX, SPEC_KEYS, canonical_key
from apexbridge.skills.model import Problem
from apexbridge.skills.package import Package
from apexbridge.skills.reader import MAX_DESCRIPTION, open_document

Level = Literal["spec", "compat"]

MAX_COMPATIBILITY = 500
PLACEHOLDER = "Say here what this skill does"
"""How the scaffold's description begins; finding it again means nobody wrote one."""

_STAYS_A_WARNING = frozenset({"frontmatter_repaired", "frontmatter_line_breaks", "alias_shadowed"})
_MAX_REFERENCES = 1_000
_FENCED = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(<?([^()<>\s]{1,400})>?\)|\$\{CLAUDE_SKILL_DIR\}/([\w./-]{1,400})")
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*:|#|\$|\{", re.IGNORECASE)


def validate(package: Package, level: Level = "compat") -> tuple[Problem, ...]:
    """Name every broken rule, in the order of the file."""
    opened = open_document(package.skill_md)
    if isinstance(opened, Problem):
        return (*package.problems, opened)
    cut, values = opened
    declared = interpret(values)
    problems = [
        *package.problems,
        *_strict(declared.problems, level, values),
        *_keys(values, level),
        *_name(declared, values, package.folder, level),
        *_description(declared, values),
        *_other_fields(declared, values, level),
        *_body(cut, package),
    ]
    return tuple(sorted(problems, key=_line_of))


def _line_of(problem: Problem) -> int:
    line = problem.where.rpartition(":")[2]
    return int(line) if line.isdecimal() else 0


def _strict(found: Iterable[Problem], level: Level, values: Frontmatter) -> Iterable[Problem]:
    for problem in found:
        key = str(problem.details.get("key"))
        if level == "spec" and key in values.values and key not in SPEC_KEYS:
            continue  # that the key is there at all is told once, by _keys
        is_mild = level == "compat" and problem.code in _STAYS_A_WARNING
        yield replace(problem, severity="warning" if is_mild else "error")


def _keys(values: Frontmatter, level: Level) -> Iterable[Problem]:
    for key, line in values.lines.items():
        if level == "spec" and key not in SPEC_KEYS:
            yield Problem(code="key_not_in_spec", where=at(line), details={"key": key})
        elif level == "compat" and canonical_key(key) is None:
            near = difflib.get_close_matches(key, KEYS, n=1, cutoff=0.75)
            details = {"key": key, "near": near[0] if near else ""}
            code = "unknown_key_near" if near else "unknown_key"
            yield Problem(code=code, where=at(line), severity="warning", details=details)
    yield from _portable_keys(values)


def _portable_keys(values: Frontmatter) -> Iterable[Problem]:
    metadata = values.values.get("metadata")
    for key in metadata if isinstance(metadata, dict) else ():
        field = key.removeprefix(PORTABLE_PREFIX)
        if field != key and canonical_key(field) is None:
            where = at(values.lines["metadata"])
            yield Problem(code="unknown_key", where=where, severity="warning", details={"key": key})


def _name(declared: Declared, values: Frontmatter, folder: str, level: Level) -> Iterable[Problem]:
    where = at(values.lines.get("name", 1))
    if "name" not in values.values:
        severity = "error" if level == "spec" else "warning"
        details = {"suggestion": names.slug(folder) or "my-skill"}
        yield Problem(code="name_missing", where=where, severity=severity, details=details)
        yield from names.name_problems(folder, where)
        return
    if isinstance(values.values["name"], list | dict):
        return  # told as a field that is not text
    name = names.normalise(declared.manifest.name or "")
    yield from names.name_problems(name, where)
    if level == "compat" and names.is_reserved(name):
        yield Problem(code="name_reserved", where=where, details={"name": name})
    if name and names.normalise(folder) != name:
        details = {"name": name, "folder": folder}
        yield Problem(code="name_mismatch", where=where, details=details)


def _description(declared: Declared, values: Frontmatter) -> Iterable[Problem]:
    where = at(values.lines.get("description", 1))
    if "description" not in values.values:
        yield Problem(code="description_missing", where=where)
        return
    if isinstance(values.values["description"], list | dict):
        return  # told as a field that is not text
    text = declared.manifest.description or ""
    if not text.strip():
        yield Problem(code="description_empty", where=where)
    if len(text) > MAX_DESCRIPTION:
        details = {"length": len(text), "limit": MAX_DESCRIPTION}
        yield Problem(code="description_too_long", where=where, details=details)
    if text.startswith(PLACEHOLDER):
        yield Problem(code="description_placeholder", where=where, severity="warning")


def _other_fields(declared: Declared, values: Frontmatter, level: Level) -> Iterable[Problem]:
    compatibility = declared.manifest.compatibility or ""
    if len(compatibility) > MAX_COMPATIBILITY:
        where = at(values.lines["compatibility"])
        details = {"length": len(compatibility), "limit": MAX_COMPATIBILITY}
        yield Problem(code="compatibility_too_long", where=where, details=details)
    metadata = values.values.get("metadata")
    if isinstance(metadata, dict) and any(isinstance(v, list | dict) for v in metadata.values()):
        yield Problem(
            code="metadata_not_map", where=at(values.lines["metadata"]), severity="warning"
        )
    tools = values.values.get("allowed-tools")
    if level == "spec" and isinstance(tools, list):
        details = {"suggestion": " ".join(declared.manifest.allowed_tools)}
        where = at(values.lines["allowed-tools"])
        yield Problem(code="tools_not_text", where=where, details=details)


def _body(cut: Document, package: Package) -> Iterable[Problem]:
    first = cut.text[: len(cut.text) - len(cut.body)].count("\n") + 1
    if not cut.body.strip():
        yield Problem(code="body_empty", where=SKILL_MD, severity="warning")
    told, line, seen = set[str](), first, 0
    text = _FENCED.sub(lambda block: re.sub(r"[^\n]", " ", block[0]), cut.body)
    for match in _LINK.finditer(text):
        path = (match[1] or match[2]).split("#")[0].split("?")[0]
        if not path or path in told or (match[1] and _ADDRESS.match(match[1])):
            continue
        if len(told) == _MAX_REFERENCES:
            return
        told.add(path)
        line, seen = line + text.count("\n", seen, match.start()), match.start()
        code = _reference_problem(path, package.files)
        if code:
            details = {"path": path}
            yield Problem(code=code, where=at(line), severity="warning", details=details)


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
