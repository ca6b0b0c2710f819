"""Response schemas of script runs."""

from typing import Literal

from apexbridge.sandbox.base import Outcome
from apexbridge.server.routing import former_name
from apexbridge.server.skills.schemas import ResponseModel


class OutputFileSchema(ResponseModel):
    """Output file of a script."""

    path: str
    size: int
    base64: str | None
    """Content; null if all files together are too large for a response."""
    url: str | None
    """Address for the download, below this server's; null if the file is not kept."""


class ScriptRunSchema(ResponseModel):
    """Result of a script; `exit_code` is null if it did not start, and `error` has the reason."""

    object: Literal["skill.run"] = "skill.run"
    id: str
    skill: str
    script: str
    outcome: Outcome
    exit_code: int | None
    stdout: str
    stderr: str
    seconds: float
    error: str | None
    reason: str = ""
    """Why it did not start, and what would help."""
    timed_out: bool
    truncated: bool
    isolation: str
    files: list[OutputFileSchema]
    skipped_files: dict[str, str]
    """Output files that are not returned, with the reason."""
    not_taken = former_name("skipped_files", dict[str, str])
