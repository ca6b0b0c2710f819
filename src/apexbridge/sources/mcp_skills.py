"""The skills extension of MCP (`io.modelcontextprotocol/skills`): entries as skills. Pure.

`skills/list` gives entries: the `uri` of a SKILL.md, its `frontmatter` as JSON, and `resources`,
every file of the skill with `uri`, `digest` (`sha256:` and 64 hexadecimal digits) and `size`. Files
are read with `resources/read`, none before it is needed, and each is compared with its entry before
a byte of it is used; SKILL.md must also declare what the entry declared. `"dynamic"` in place of
the files means that nothing can be compared: such a skill is left out, and told.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal
from urllib.parse import unquote

from pydantic import BaseModel, Field, ValidationError

from apexbridge.policy.rules import split_patterns
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.manifest import SkillManifest, Value
from apexbridge.skills.model import Fingerprint, Problem, Provenance, Skill
from apexbridge.skills.reader import MAX_DESCRIPTION, MAX_SKILL_MD_BYTES, open_document, parse_skill
from apexbridge.sources.mcp_address import clean, qualified

EXTENSION = "io.modelcontextprotocol/skills"
MAX_FILES = 512
MAX_BYTES = 16 * 1024 * 1024

_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")
_MIDNIGHT = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ]00:00(:00(\.0+)?)?(Z|\+00:00)?")
_BOOLEANS = {"true": "true", "yes": "true", "on": "true"} | dict.fromkeys(
    ("false", "no", "off"), "false"
)


class SkillsPage(BaseModel):
    """What `skills/list` answers; each entry is judged by itself."""

    skills: list[Any]
    next_cursor: str | None = Field(default=None, alias="nextCursor")


class _File(BaseModel):
    uri: Annotated[str, Field(min_length=1, max_length=4096)]
    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    size: Annotated[int, Field(ge=0)]


class _Entry(BaseModel):
    uri: Annotated[str, Field(min_length=1, max_length=4096)]
    frontmatter: dict[str, Any] | None = None
    resources: Annotated[list[_File], Field(max_length=MAX_FILES)] | Literal["dynamic"]


class _Named(BaseModel):
    """The little that can be said of an entry that makes no sense."""

    uri: Any = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedFile:
    """One file of a skill as its entry announced it."""

    uri: str
    sha256: str
    size: int

    def difference(self, data: bytes) -> str:
        """How the bytes differ from what was announced; empty if they do not."""
        if len(data) != self.size:
            return f"it has {len(data)} bytes, not {self.size}"
        if hashlib.sha256(data).hexdigest() != self.sha256:
            return "its sha256 is another"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedSkill:
    """An entry and the skill made of it: all that may be read of the skill later."""

    uri: str
    skill: Skill
    files: Mapping[str, ServedFile]
    declared: Mapping[str, Value]

    def body(self, data: bytes) -> str | None:
        """The text of a SKILL.md; none if it does not declare what the entry declared."""
        opened = open_document(data)
        if isinstance(opened, Problem):
            return None
        is_same = _declaration(opened[1].values) == _declaration(self.declared)
        return opened[0].body if is_same else None


def serve_skills(
    entries: Iterable[Any], *, server: str, provenance: Provenance
) -> tuple[dict[str, ServedSkill], list[Problem]]:
    """Make a skill of each sound entry; those that would share a name get one of their own."""
    found, problems = list[ServedSkill](), list[Problem]()
    for raw in entries:
        served, wrong = _read(raw, server, provenance)
        found += [served] if served else []
        problems += wrong
    names = Counter(served.skill.name for served in found)
    skills = dict[str, ServedSkill]()
    for served in found:
        name = served.skill.name
        if names[name] > 1:
            name = f"{name}_{hashlib.sha256(served.uri.encode()).hexdigest()[:8]}"
        if name in skills:
            problems.append(_invalid(name, "it is listed twice"))
        else:
            skills[name] = replace(served, skill=replace(served.skill, name=name))
    return skills, problems


def _read(
    raw: Any, server: str, provenance: Provenance
) -> tuple[ServedSkill | None, list[Problem]]:
    entry = _entry(raw)
    if isinstance(entry, Problem):
        return None, [entry]
    folder = unquote(entry.uri.split("/")[-2])
    where = clean(folder, 128)
    if entry.resources == "dynamic":
        return None, [Problem(code="digests_missing", where=where, details={"name": where})]
    files = _files(entry.uri, entry.resources)
    if isinstance(files, str):
        return None, [_invalid(entry.uri, files)]
    if not entry.frontmatter:
        return None, [Problem(code="frontmatter_missing", where=where)]
    text = b"---\n" + json.dumps(entry.frontmatter, ensure_ascii=False).encode() + b"\n---\n"
    opened, reading = open_document(text), parse_skill(text, folder=folder, provenance=provenance)
    problems = [replace(problem, where=f"{where}/{SKILL_MD}") for problem in reading.problems]
    if isinstance(opened, Problem) or reading.skill is None:
        return None, problems
    skill = replace(
        reading.skill,
        name=qualified(server, reading.skill.name),
        description=clean(reading.skill.description, MAX_DESCRIPTION),
        fingerprint=_fingerprint(files),
    )
    served = ServedSkill(uri=entry.uri, skill=skill, files=files, declared=opened[1].values)
    return served, problems


def _entry(raw: Any) -> _Entry | Problem:
    try:
        entry = _Entry.model_validate(raw)
    except ValidationError as error:
        named = _Named.model_validate(raw if isinstance(raw, dict) else {})
        return _invalid(str(named.uri), _first(error))
    if not re.search(f"[^/]/{SKILL_MD}$", entry.uri):
        return _invalid(entry.uri, f"its address does not end with a folder and {SKILL_MD}")
    return entry


def _files(uri: str, listed: list[_File]) -> dict[str, ServedFile] | str:
    """The files by their path in the skill, or what is wrong with them."""
    root = uri.removesuffix(SKILL_MD)
    files = dict[str, ServedFile]()
    for file in listed:
        path = unquote(file.uri.removeprefix(root))
        if not file.uri.startswith(root) or not _is_inside(path):
            return f"'{clean(file.uri, 200)}' is not inside of the skill"
        if path in files:
            return f"'{clean(path, 200)}' is listed twice"
        files[path] = ServedFile(
            uri=file.uri, sha256=file.digest.removeprefix("sha256:"), size=file.size
        )
    if SKILL_MD not in files:
        return f"{SKILL_MD} is not among its files"
    if files[SKILL_MD].size > MAX_SKILL_MD_BYTES:
        return f"{SKILL_MD} has more than {MAX_SKILL_MD_BYTES} bytes"
    if sum(file.size for file in files.values()) > MAX_BYTES:
        return f"its files have more than {MAX_BYTES} bytes"
    return files


def _is_inside(path: str) -> bool:
    parts = path.split("/")
    odd = any(char < " " or char in "\\\x7f" for char in path)
    return not odd and not {"", ".", ".."} & set(parts) and str(PurePosixPath(path)) == path


def _fingerprint(files: Mapping[str, ServedFile]) -> Fingerprint:
    digest = hashlib.sha256()
    for path, file in sorted(files.items()):
        digest.update(f"{path}\0{file.sha256}\n".encode())
    size = sum(file.size for file in files.values())
    return Fingerprint(size=size, files=len(files), sha256=digest.hexdigest())


def _declaration(values: Mapping[str, Value]) -> object:
    """What frontmatter declares, whichever way servers write lists, nested and empty fields."""
    given: dict[str, Value] = {key: value for key, value in values.items() if value is not None}
    tools = given.get("allowed-tools")
    if isinstance(tools, str | list):
        given["allowed-tools"] = [*(split_patterns(tools) if isinstance(tools, str) else tools)]
    if isinstance(given.get("metadata"), dict):
        read = SkillManifest.model_validate({"metadata": given["metadata"]})
        given["metadata"] = {**read.metadata}
    return _meaning(given)


def _meaning(value: Value) -> object:
    """A value without the liberties that YAML and JSON take in writing it."""
    if isinstance(value, dict):
        return {key: _meaning(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_meaning(entry) for entry in value]
    text = (value or "").strip()
    midnight = _MIDNIGHT.fullmatch(text)
    if _NUMBER.fullmatch(text):
        return float(text)
    return midnight[1] if midnight else _BOOLEANS.get(text.lower(), text)


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'it'}: {first['msg']}"


def _invalid(name: str, detail: str) -> Problem:
    where = clean(name, 200)
    return Problem(
        code="skill_entry_invalid", where=where, details={"name": where, "detail": detail}
    )
