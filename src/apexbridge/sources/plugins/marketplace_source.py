"""Place of a marketplace's plugin: a folder of the marketplace, or another repository."""

import re

from pydantic import BaseModel, ConfigDict, ValidationError

_GITHUB = re.compile(r"(?:https://github\.com/|git@github\.com:)?([\w.-]+/[\w.-]+?)(?:\.git)?/?")
_MAX_PRINTED = 200


class _Source(BaseModel):
    """The object forms of Claude Code, Codex and Copilot."""

    model_config = ConfigDict(extra="ignore")

    source: str = ""
    path: str = ""
    repo: str = ""
    url: str = ""
    package: str = ""
    ref: str = ""
    sha: str = ""


def local_path(source: object) -> str | None:
    """Return the path of a plugin inside of its marketplace; None if it is elsewhere."""
    if isinstance(source, str):
        return source
    written = _parse(source)
    if written is None:
        return None
    if written.source == "local":
        return written.path
    is_path = written.url in {".", "./"} or written.url.startswith("./")
    return written.url if is_path and not written.path else None


def remote_address(source: object) -> str:
    """Return the address of a plugin in another repository, as `apexbridge add` takes it.

    Empty if the source is none that we know.

    >>> remote_address({"source": "github", "repo": "a/b", "ref": "v1", "path": "plugins/x"})
    'a/b@v1/plugins/x'
    """
    written = _parse(source)
    if written is None or written.source not in {"github", "git", "url", "git-subdir"}:
        return ""
    place = written.repo or written.url
    github = _GITHUB.fullmatch(place)
    if github is None and not place.startswith(("https://", "ssh://", "git@")):
        return ""
    version = written.ref or written.sha
    path = written.path.removeprefix("./").strip("/")
    found = (github[1] if github else place) + (f"@{version}" if version and github else "")
    return (f"{found}/{path}" if path and github else found)[:_MAX_PRINTED]


def _parse(source: object) -> _Source | None:
    try:
        return _Source.model_validate(source)
    except ValidationError:
        return None
