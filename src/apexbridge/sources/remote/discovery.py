"""Parse a host's skill index (Agent Skills discovery 0.2.0 and 0.1, `.well-known`).

In 0.2 a skill is a SKILL.md or an archive, with a digest; in 0.1 it lists the paths of its files,
without. An entry of an earlier ApexBridge lists further files with digests. URLs of files are
relative to that of SKILL.md.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import quote, urljoin

from pydantic import BaseModel, Field, JsonValue, ValidationError

from apexbridge.errors import SourceError
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.model import Problem
from apexbridge.ssrf import display_url

WELL_KNOWN = "/.well-known/agent-skills/index.json"
LEGACY_WELL_KNOWN = "/.well-known/skills/index.json"
"""Address of the index in discovery 0.1."""
SCHEMA = "https://schemas.agentskills.io/discovery/0.2.0/schema.json"
MAX_ENTRIES = 500
MAX_FILES = 200
_MAX_NAME = 64
_SKILL_TYPE, _ARCHIVE_TYPE = "skill-md", "archive"
_DIGEST = r"^sha256:[0-9a-f]{64}$"
_PLAIN_PATH = re.compile(r"[ -~]+")
_UNSAFE_IN_PATH = frozenset("\\?#[]%:")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """A file to download, with the digest it must have."""

    url: str
    name: str = ""
    sha256: str = ""
    """Expected SHA-256; empty if none was announced."""
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    """Further files by relative path, with their SHA-256."""
    unhashed: tuple[str, ...] = ()
    """Paths of further files without a SHA-256: they are part of the skill once downloaded."""
    kind: Literal["text", "archive", "file", "any"] = "text"
    """A SKILL.md, an archive of the whole skill, a file that is no HTML page, or any file."""
    is_listed: bool = False
    """True if an index named it, rather than the operator."""
    may_be_private: bool = True
    """True if it may be on a private network that the operator allows."""

    def sibling(self, path: str, sha256: str) -> "RemoteFile":
        """Return one of the further files.

        Without a digest, an HTML page is taken for a login or an error, unless it is announced.
        """
        is_known = bool(sha256) or path.lower().endswith((".html", ".htm"))
        return RemoteFile(
            kind="any" if is_known else "file",
            url=urljoin(self.url, quote(path)),
            sha256=sha256,
            is_listed=self.is_listed,
            may_be_private=self.may_be_private,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillIndex:
    """Files that an index lists, and problems with its entries."""

    entries: tuple[RemoteFile, ...] = ()
    problems: tuple[Problem, ...] = ()


class _File(BaseModel):
    path: str = Field(max_length=500)
    digest: str = Field(pattern=_DIGEST)


class _Entry(BaseModel):
    name: str = Field(min_length=1, max_length=_MAX_NAME)
    type: str = _SKILL_TYPE
    url: str = Field(min_length=1)
    digest: str = Field(pattern=_DIGEST)
    files: list[_File] = Field(default_factory=list[_File], max_length=MAX_FILES)


class _LegacyEntry(BaseModel):
    """Entry of 0.1: paths of files, and neither URL nor digests."""

    name: str = Field(min_length=1, max_length=_MAX_NAME)
    files: list[str] = Field(min_length=1, max_length=MAX_FILES)


class _Index(BaseModel):
    schema_id: str = Field(default="", alias="$schema")
    skills: list[JsonValue]


def index_url(place: str) -> str:
    """Build the URL of a host's index.

    >>> index_url("https://example.org/")
    'https://example.org/.well-known/agent-skills/index.json'
    """
    is_index = place.endswith((WELL_KNOWN, LEGACY_WELL_KNOWN))
    return place if is_index else place.rstrip("/") + WELL_KNOWN


def legacy_index_url(url: str) -> str:
    """Build the URL at which discovery 0.1 has the index of the same host; empty if it is that."""
    return url.removesuffix(WELL_KNOWN) + LEGACY_WELL_KNOWN if url.endswith(WELL_KNOWN) else ""


def parse_index(data: bytes, url: str, *, may_be_private: bool) -> SkillIndex:
    """Parse an index from `url`; `remote_unusable` if it is invalid or of an unknown schema."""
    try:
        index = _Index.model_validate_json(data)
    except ValidationError as error:
        raise _unusable_index(url, _format_validation_error(error)) from None
    if index.schema_id not in {"", SCHEMA}:
        raise _unusable_index(url, f"its $schema is not {SCHEMA}")
    entries, problems = list[RemoteFile](), list[Problem]()
    for entry in index.skills[:MAX_ENTRIES]:
        read = _read_entry(entry, url, may_be_private=may_be_private)
        if isinstance(read, RemoteFile):
            entries.append(read)
        else:
            problems.append(read)
    if len(index.skills) > MAX_ENTRIES:
        cut = Problem.warning("remote_limit", display_url(url), limit=MAX_ENTRIES)
        problems.append(cut)
    return SkillIndex(entries=tuple(entries), problems=tuple(problems))


def _read_entry(written: JsonValue, url: str, *, may_be_private: bool) -> RemoteFile | Problem:
    name = display_url(str(written.get("name", ""))) if isinstance(written, dict) else ""
    if isinstance(written, dict) and not {"url", "digest"} & written.keys():
        return _read_legacy_entry(written, url, name, may_be_private=may_be_private)
    try:
        entry = _Entry.model_validate(written)
    except ValidationError as error:
        return _entry_problem(url, name, _format_validation_error(error))
    if entry.type not in {_SKILL_TYPE, _ARCHIVE_TYPE}:
        return _entry_problem(
            url, name, f"type: only {_SKILL_TYPE} and {_ARCHIVE_TYPE} are supported"
        )
    files = {file.path: file.digest.removeprefix("sha256:") for file in entry.files}
    unsafe = [path for path in files if not is_plain_path(path)]
    if unsafe:
        return _entry_problem(
            url, name, f"files: '{display_url(unsafe[0])}' is not a plain relative path"
        )
    files.pop(SKILL_MD, None)
    try:
        address = urljoin(url, entry.url)
    except ValueError:
        return _entry_problem(url, name, "url: it is not a valid URL")
    return RemoteFile(
        url=address,
        name=entry.name,
        sha256=entry.digest.removeprefix("sha256:"),
        files=files if entry.type == _SKILL_TYPE else {},
        kind="archive" if entry.type == _ARCHIVE_TYPE else "text",
        is_listed=True,
        may_be_private=may_be_private,
    )


def _read_legacy_entry(
    written: JsonValue, url: str, name: str, *, may_be_private: bool
) -> RemoteFile | Problem:
    try:
        entry = _LegacyEntry.model_validate(written)
    except ValidationError as error:
        return _entry_problem(url, name, _format_validation_error(error))
    unsafe = next((path for path in entry.files if not is_url_path(path)), None)
    if unsafe is not None:
        detail = f"files: '{display_url(unsafe)}' is not a plain relative path"
        return _entry_problem(url, name, detail)
    skill_md = next((path for path in entry.files if path.lower() == SKILL_MD.lower()), None)
    if skill_md is None:
        return _entry_problem(url, name, f"files: {SKILL_MD} is not among them")
    if not is_url_path(entry.name) or "/" in entry.name:
        return _entry_problem(url, name, "name: it cannot stand in a URL")
    return RemoteFile(
        url=urljoin(url, quote(f"{entry.name}/{skill_md}")),
        name=entry.name,
        unhashed=tuple(path for path in entry.files if path != skill_md),
        is_listed=True,
        may_be_private=may_be_private,
    )


def is_plain_path(path: str) -> bool:
    """Return whether a path is relative ASCII without traversal or URL syntax."""
    parts = path.split("/")
    return (
        bool(_PLAIN_PATH.fullmatch(path))
        and not _UNSAFE_IN_PATH.intersection(path)
        and not any(part.strip() in {"", ".", ".."} for part in parts)
    )


def is_url_path(path: str) -> bool:
    """Return whether a path is relative and means the same in a URL, percent-encoded or not."""
    parts = path.split("/")
    return (
        path.isprintable()
        and ".." not in path
        and not _UNSAFE_IN_PATH.intersection(path)
        and not any(part.strip() in {"", "."} for part in parts)
    )


def _entry_problem(url: str, name: str, detail: str) -> Problem:
    return Problem.error("remote_entry_invalid", display_url(url), name=name, detail=detail)


def _format_validation_error(error: ValidationError) -> str:
    """Format validation errors without the offending values."""
    rules = error.errors(include_url=False, include_context=False, include_input=False)
    messages = [f"{'.'.join(map(str, rule['loc']))}: {rule['msg']}".lstrip(": ") for rule in rules]
    return "; ".join(messages[:3])


def _unusable_index(url: str, detail: str) -> SourceError:
    return SourceError(detail, code="remote_unusable", url=display_url(url))
