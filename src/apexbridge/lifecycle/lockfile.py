"""`apexbridge.lock`: the exact state of every skill that a project uses, in TOML.

One table a skill, sorted by name, so that a change of one skill is a change of its lines only. What
a person wrote by hand may lack revision and hash: the next synchronisation adds them.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from apexbridge.errors import ConfigError
from apexbridge.lifecycle.install_sources.address import Address, recorded_address
from apexbridge.lifecycle.source_records import SourceRecord
from apexbridge.paths import replace_bytes, storage_errors

LOCK_FILE = "apexbridge.lock"
_VERSION = 1
_HEADER = "# Skills of this project and the exact state of each. 'apexbridge sync' installs them.\n"
_HASH = r"^([0-9a-f]{64})?$"


class LockedSkill(BaseModel):
    """A skill of the lock file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1, max_length=64)
    version: str = Field(default="", max_length=200)
    source: str = Field(min_length=1, max_length=2_000)
    ref: str = Field(default="", max_length=300)
    revision: str = Field(default="", max_length=100)
    path: str = Field(default="", max_length=1_000)
    sha256: str = Field(default="", pattern=_HASH)

    @property
    def is_exact(self) -> bool:
        """True if nothing is left to be found out."""
        return bool(self.sha256)

    def address(self) -> Address:
        """Return the address to fetch it from.

        Raises:
            SourceError: `source_refused` or `source_address_invalid`.
        """
        return recorded_address(self.source, ref=self.ref, path=self.path, revision=self.revision)


class _LockFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    version: Literal[1]
    skill: list[LockedSkill] = Field(default_factory=list[LockedSkill], max_length=10_000)


def read_lock(path: Path) -> dict[str, LockedSkill]:
    """Read a lock file; one that does not exist locks nothing.

    Raises:
        ConfigError: `lock_invalid` if it is damaged, of a later version, or names a skill twice.
        StorageError: If it cannot be read.
    """
    try:
        with storage_errors(path):
            data = path.read_bytes() if path.exists() else b""
        written = tomllib.loads(data.decode("utf-8")) if data else {"version": _VERSION}
        found = _LockFile.model_validate(written)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _invalid(path, str(error)) from None
    except ValidationError as error:
        rule = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, rule["loc"]))
        raise _invalid(path, f"{place}: {rule['msg']}") from None
    skills = dict[str, LockedSkill]()
    for skill in found.skill:
        if skill.name in skills:
            raise _invalid(path, f"{skill.name} is there twice")
        skills[skill.name] = skill
    return skills


def write_lock(path: Path, skills: Mapping[str, LockedSkill]) -> bool:
    """Write a lock file; False if it was the same before.

    Raises:
        StorageError: If it cannot be written; the old one is kept.
    """
    new = format_lock(skills).encode("utf-8")
    with storage_errors(path):
        if path.exists() and path.read_bytes() == new:
            return False
    replace_bytes(path, new)
    return True


def format_lock(skills: Mapping[str, LockedSkill]) -> str:
    """Format a lock file: equal skills give equal text."""
    tables = ("\n".join(_table(skills[name])) for name in sorted(skills))
    return "\n".join((_HEADER + f"version = {_VERSION}\n", *(f"{table}\n" for table in tables)))


def _table(skill: LockedSkill) -> Iterator[str]:
    yield "[[skill]]"
    for key, value in skill.model_dump().items():
        if value:
            yield f"{key} = {_quote(str(value))}"


def _quote(text: str) -> str:
    """Write a TOML basic string, which JSON's string is, but for the character DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def lock_record(name: str, record: SourceRecord, folder: Path) -> LockedSkill:
    """Build the entry of an installed skill; a path is written relative to the lock file.

    So the project can be checked out elsewhere, as long as the source is inside it.
    """
    source = record.source
    if source.startswith("/"):
        place = Path(source)
        if place.is_relative_to(folder):
            source = f"./{place.relative_to(folder).as_posix()}"
    fields = record.model_dump() | {"source": source}
    return LockedSkill(name=name, **fields)


def locked_source(skill: LockedSkill, folder: Path) -> LockedSkill:
    """Return an entry with the absolute path of a source that is relative to the lock file."""
    if not re.match(r"\.\.?(/|$)", skill.source):
        return skill
    return skill.model_copy(update={"source": str((folder / skill.source).resolve())})


def _invalid(path: Path, detail: str) -> ConfigError:
    return ConfigError(detail, code="lock_invalid", path=path)
