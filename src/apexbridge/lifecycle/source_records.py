"""Where each installed skill came from: a JSON file beside the skills."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from apexbridge.ssrf import display_url
from apexbridge.state_files import StateFile


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


class RecordsFile(BaseModel):
    """Content of `sources.json`."""

    model_config = ConfigDict(extra="ignore")

    skills: dict[str, SourceRecord] = Field(default_factory=dict[str, SourceRecord])


class SourceRecords:
    """Source records by skill name.

    Methods raise StateDamagedError if the file cannot be read; writes raise StorageError.
    """

    def __init__(self, path: Path) -> None:
        self._file = StateFile(path, RecordsFile)

    def all(self) -> dict[str, SourceRecord]:
        """Return every record."""
        return self._file.read().skills

    def get(self, name: str) -> SourceRecord | None:
        """Return the record of a name, if its source is known."""
        return self._file.read().skills.get(name)

    def put(self, name: str, record: SourceRecord | None) -> None:
        """Store or remove the record of a name."""
        with self._file.change() as records:
            if record is None:
                records.skills.pop(name, None)
            else:
                records.skills[name] = record
                records.skills = dict(sorted(records.skills.items()))
