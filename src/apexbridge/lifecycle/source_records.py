"""Where each installed skill came from: a JSON file beside the skills."""

import logging
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from apexbridge.file_lock import file_lock
from apexbridge.paths import replace_bytes
from apexbridge.ssrf import display_url

log = logging.getLogger(__name__)


class SourceRecord(BaseModel):
    """Address and exact state that a skill was installed from."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    source: str
    """The address without ref and path: `github:owner/repo`, a URL, or a path."""
    ref: str = ""
    """Requested branch, tag or commit; empty for the default branch."""
    revision: str = ""
    """Resolved commit, or `sha256:` of an archive; empty for a folder of this machine."""
    path: str = ""
    """Folder of the skill in it."""
    sha256: str = ""
    """Content hash of the skill as it was installed."""
    version: str = ""
    """Version in its frontmatter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallOrigin:
    """Where the files of an installation come from, and what vouches for them."""

    source: SourceRecord | None = None
    """Recorded with the skill; if it has a content hash, other files are refused."""
    signature: str = ""
    """Text of a detached signature; by default that of `NAME.minisig` beside the files."""
    archive: Path | None = None
    """The signed archive, if the files were unpacked from one with several skills."""

    @property
    def sha256(self) -> str:
        """The content hash that the files must have; empty for any."""
        return self.source.sha256 if self.source else ""

    @property
    def address(self) -> str:
        """Address and ref for the scanner, which knows the collections of well-known authors."""
        if self.source is None:
            return ""
        return self.source.source + (f"@{self.source.ref}" if self.source.ref else "")


UNKNOWN_ORIGIN = InstallOrigin()


def display_source(source: str) -> str:
    """Redact a recorded address for display: the query of a URL may be a secret.

    >>> display_source("https://example.org/a.zip?token=x"), display_source("github:o/r")
    ('https://example.org/a.zip', 'github:o/r')
    """
    return display_url(source) if "://" in source else source


class _RecordsFile(BaseModel):
    model_config = ConfigDict(extra="ignore")

    skills: dict[str, SourceRecord] = Field(default_factory=dict[str, SourceRecord])


class SourceRecords:
    """Source records by skill name. A file that cannot be read has none, with a warning.

    Writes raise StorageError.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def all(self) -> dict[str, SourceRecord]:
        """Return every record."""
        return dict(self._read().skills)

    def get(self, name: str) -> SourceRecord | None:
        """Return the record of a name, if its source is known."""
        return self._read().skills.get(name)

    def put(self, name: str, record: SourceRecord | None) -> None:
        """Store or remove the record of a name."""
        with self._lock():
            records = self._read()
            if records.skills.get(name) == record:
                return  # also the usual case that a name has none
            if record is None:
                del records.skills[name]
            else:
                records.skills[name] = record
            records.skills = dict(sorted(records.skills.items()))
            replace_bytes(self._path, records.model_dump_json(indent=1).encode())

    def _read(self) -> _RecordsFile:
        try:
            return _RecordsFile.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return _RecordsFile()
        except (OSError, ValidationError) as error:
            log.warning("Sources of skills cannot be read, none known: %s", error)
            return _RecordsFile()

    def _lock(self) -> AbstractContextManager[int]:
        return file_lock(self._path.with_suffix(".lock"))
