"""Parse the addresses that skills are installed from; nothing is requested.

owner/repo                       a repository on GitHub; also `github:`, `gitlab:`, `codeberg:`
owner/repo@ref/path              a branch, tag or commit of it, and a folder in it
owner/repo/path                  a folder of the default branch
https://github.com/o/r/tree/ref/path, https://gitlab.com/g/r/-/tree/ref/path, …
github.com/owner/repo            the same: what starts with a host is read as https://
https://host/r.git#ref:path      any git server; also ssh://, git@host:path, file://
https://host/skills.tar.gz       an archive: zip, skill, tar, tar.gz, tgz
./skills                         a folder or archive on this machine

A ref may contain slashes, so `ref/path` is separated only by the refs that the server has.
"""

import re
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from apexbridge.errors import SourceError
from apexbridge.ssrf import check_url, display_url

LOCAL, ARCHIVE, GIT = "local", "archive", "git"
ARCHIVE_SUFFIXES = (".zip", ".skill", ".tar.gz", ".tgz", ".tar")
_MAX_LENGTH = 2_000
_OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_REPO = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]{0,99}")
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_SCP_LIKE = re.compile(r"(?:(?P<user>[^@/:]+)@)?(?P<host>[^/:@]+):(?!//)(?P<path>.+)")
_REMOTE_HELPER = re.compile(r"[A-Za-z0-9_+.-]+::")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_NOT_IN_REF = re.compile(r"\.\.|@\{|//|[\x00-\x20~^:?*\[\\\x7f]|\.lock(/|$)|(^|/)[.-]|[./]$")
_LOCAL_PATH = re.compile(r"/|\.{0,2}[/\\]|~[/\\]|\.{1,2}$|~$|[A-Za-z]:\\")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A parsed address: a source, the ref and folder in it, and after resolution its revision."""

    kind: str
    """The install source that fetches it: `github`, `git`, `archive`, `local`, …"""
    location: str
    """What the kind fetches from: `owner/repo`, a URL, or a path."""
    ref: str = ""
    """Requested branch, tag or commit; before resolution perhaps with a path behind it."""
    path: str = ""
    """Folder in it; empty for all of it."""
    revision: str = ""
    """Exact state: a commit, or `sha256:` of an archive. Empty for the newest."""
    skill: str = ""
    """Name of the only skill that is meant, if the address has one."""
    ref_may_be_skill: bool = False
    """True for `owner/repo@x` as somebody typed it: where no ref has the name, it is a skill's.

    A ref of any other form, of a record or of a lock file must exist: it never becomes another one.
    """

    @property
    def source(self) -> str:
        """The address without ref and path, as it is recorded; parsing it gives this kind again."""
        return f"{self.kind}:{self.location}" if self.kind in FORGES else self.location

    def __str__(self) -> str:
        """The address as people write it, without secrets."""
        shown = self.source if self.kind in {*FORGES, LOCAL} else display_url(self.source)
        ref = f"@{self.ref}" if self.ref else ""
        return f"{shown}{ref}{'/' if self.path else ''}{self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Forge:
    """A public code host whose archives can be downloaded without git."""

    kind: str
    base: str
    """URL of the host, without a slash at the end."""
    archive: str
    """Path of the archive of a commit, below the repository's URL."""
    tree: re.Pattern[str]
    """Path of a folder on a web page, below the repository's URL."""
    has_groups: bool = False
    """True if repositories can be in groups of groups."""

    def repository_url(self, location: str) -> str:
        """Return the git URL of a repository."""
        return f"{self.base}/{location}.git"

    def archive_url(self, location: str, commit: str) -> str:
        """Return the URL of the archive of a commit."""
        name = location.rpartition("/")[2]
        return f"{self.base}/{location}/{self.archive.format(commit=commit, name=name)}"


FORGES = {
    forge.kind: forge
    for forge in (
        Forge(
            kind="github",
            base="https://github.com",
            archive="archive/{commit}.tar.gz",
            tree=re.compile(r"(?:tree|blob|raw)/(?P<ref>.+)"),
        ),
        Forge(
            kind="gitlab",
            base="https://gitlab.com",
            archive="-/archive/{commit}/{name}-{commit}.tar.gz",
            tree=re.compile(r"-/(?:tree|blob|raw)/(?P<ref>.+)"),
            has_groups=True,
        ),
        Forge(
            kind="codeberg",
            base="https://codeberg.org",
            archive="archive/{commit}.tar.gz",
            tree=re.compile(r"(?:src|raw)/(?:branch|tag|commit)/(?P<ref>.+)"),
        ),
    )
}


def parse_address(text: str, *, is_local: bool = False) -> Address:
    """Parse an address; with `is_local` it is a path, whatever it looks like.

    Raises:
        SourceError: `source_refused` for what could run a program or inject an option,
            `source_address_invalid` for what is no address.
    """
    if is_local:
        return Address(kind=LOCAL, location=text)
    _check_text(text)
    prefix, _, rest = text.partition(":")
    if prefix in FORGES and not rest.startswith("//"):
        return _parse_shorthand(text, FORGES[prefix], rest)
    plain = text.removeprefix("git+")
    if _SCHEME.match(plain):
        return _parse_url(plain)
    is_path = _LOCAL_PATH.match(text) or text.lower().endswith(ARCHIVE_SUFFIXES)
    if not is_path and _SCP_LIKE.fullmatch(text):
        return _parse_scp_like(text)
    if not is_path and "/" in text:
        is_host = "." in text.partition("/")[0]  # no owner on GitHub has a dot
        return (
            _parse_url(f"https://{text}")
            if is_host
            else _parse_shorthand(text, FORGES["github"], text)
        )
    return Address(kind=LOCAL, location=text)


def _check_text(text: str) -> None:
    if not text.strip() or len(text) > _MAX_LENGTH or not text.isprintable():
        raise invalid_address(text, "it is empty, too long, or has characters that no address has")
    if text.startswith("-"):
        raise refused_address(text, "it starts like an option")
    if _REMOTE_HELPER.match(text):
        raise refused_address(text, "a remote helper of git would run a program")


def _parse_shorthand(text: str, forge: Forge, rest: str) -> Address:
    """Parse `owner/repo`, `owner/repo/path` and `owner/repo@ref/path`."""
    if forge.has_groups:  # where the repository ends is not written: all of it is one
        location, _, ref = rest.strip("/").partition("@")
        found = _in_repository(text, forge, location, ref=ref)
        return replace(found, ref_may_be_skill=_is_word(ref))
    owner, _, rest = rest.partition("/")
    head = re.match(r"[^/@#]*", rest)
    repo, tail = (head[0], rest[head.end() :]) if head else ("", rest)
    ref = tail[1:] if tail[:1] in {"@", "#"} else ""
    path = tail[1:] if tail[:1] == "/" else ""
    found = _in_repository(text, forge, f"{owner}/{repo}", ref=ref, path=path)
    return replace(found, ref_may_be_skill=tail[:1] == "@" and _is_word(ref))


def _is_word(ref: str) -> bool:
    return bool(ref) and "/" not in ref


def _in_repository(
    text: str, forge: Forge, location: str, *, ref: str = "", path: str = ""
) -> Address:
    location = location.removesuffix(".git")
    parts = location.split("/")
    are_valid = all(map(_OWNER.fullmatch, parts[:-1])) and _REPO.fullmatch(parts[-1])
    count = len(parts)
    if (
        not are_valid
        or not (count >= 2 if forge.has_groups else count == 2)
        or {".", ".."} & {*parts}
    ):
        raise invalid_address(text, "a repository is written owner/repo")
    return Address(
        kind=forge.kind,
        location=location,
        ref=_checked_ref(text, ref),
        path=checked_path(text, path),
    )


def _parse_url(text: str) -> Address:
    try:
        parts = urlsplit(text)
        host, scheme = (parts.hostname or ""), parts.scheme.lower()
    except ValueError:
        raise invalid_address(text, "it is not a valid URL") from None
    if scheme in {"ssh", "file"}:
        return _parse_git_url(text)
    if scheme not in {"https", "http"}:
        raise refused_address(text, f"{scheme}:// is not supported")
    check_url(text.partition("#")[0])
    path = parts.path
    if path.lower().endswith(ARCHIVE_SUFFIXES):
        return Address(kind=ARCHIVE, location=text.partition("#")[0])
    for forge in FORGES.values():
        if host.removeprefix("www.") == urlsplit(forge.base).hostname and parts.port is None:
            return _parse_forge_url(text, forge, unquote(path).strip("/"), parts.fragment)
    if path.removesuffix("/").endswith(".git"):
        return _parse_git_url(text)
    raise invalid_address(text, "it is neither a git repository (….git) nor a zip or tar archive")


def _parse_forge_url(text: str, forge: Forge, path: str, fragment: str) -> Address:
    """Parse the URL of a repository's web page, of a folder or file in it, or of its git server."""
    parts = path.split("/")
    for end in range(2, len(parts)):
        found = forge.tree.fullmatch("/".join(parts[end:]))
        if found and (forge.has_groups or end == 2):
            ref = found["ref"].strip("/")
            if PurePosixPath(ref).name.lower() == "skill.md":
                ref = ref.rpartition("/")[0]
            return _in_repository(text, forge, "/".join(parts[:end]), ref=ref)
    if not forge.has_groups and len(parts) > 2:
        raise invalid_address(text, "it is not the page of a repository or of a folder in one")
    return _in_repository(text, forge, path, ref=fragment)


def _parse_git_url(text: str) -> Address:
    """Parse `ssh://`, `file://` and `https://….git`, each with `#ref` or `#ref:path`."""
    url, _, fragment = text.partition("#")
    parts = urlsplit(url)
    if parts.password is not None or (parts.username and parts.scheme != "ssh"):
        raise refused_address(url, "it contains a user name or password")
    if parts.username is not None and not _USER.fullmatch(parts.username):
        raise refused_address(url, "its user name could be an option")
    if parts.scheme == "file":
        if parts.netloc or parts.query or not parts.path.strip("/"):
            raise invalid_address(url, "a file URL is written file:///path")
    elif not _HOST.fullmatch(parts.hostname or "") or parts.query:
        raise refused_address(url, "its host is not a plain name")
    if unquote(parts.path).lstrip("/").startswith("-"):
        raise refused_address(url, "its path starts like an option")
    ref, _, path = fragment.partition(":")
    return Address(
        kind=GIT, location=url, ref=_checked_ref(text, ref), path=checked_path(text, path)
    )


def _parse_scp_like(text: str) -> Address:
    """Parse `git@host:owner/repo.git`, the scp-like form of ssh addresses."""
    bare, _, fragment = text.partition("#")
    found = _SCP_LIKE.fullmatch(bare)
    if found is None:
        raise invalid_address(text, "it is not an address")
    user, host, place = found["user"] or "git", found["host"], found["path"]
    if not _USER.fullmatch(user) or not _HOST.fullmatch(host) or place.startswith("-"):
        raise refused_address(text, "a part of it could be an option of ssh")
    ref, _, path = fragment.partition(":")
    return Address(
        kind=GIT,
        location=f"{user}@{host}:{place}",
        ref=_checked_ref(text, ref),
        path=checked_path(text, path),
    )


def _checked_ref(text: str, ref: str) -> str:
    if ref and _NOT_IN_REF.search(ref):
        raise invalid_address(text, "no branch or tag can be named like this")
    return ref


def checked_path(text: str, path: str) -> str:
    """Return a folder path below a repository in its plain form.

    Raises:
        SourceError: `source_address_invalid` if it could lead outside.
    """
    plain = path.strip("/")
    parts = plain.split("/") if plain else []
    if any(part in {"", ".", ".."} or "\\" in part for part in parts):
        raise invalid_address(text, "its path is not a plain path below the repository")
    return plain


def split_ref(address: Address, names: "frozenset[str] | set[str]") -> Address | None:
    """Separate ref and path by the refs that there are: the longest one wins.

    None if no ref matches. A commit is written in full.
    """
    if not address.ref:
        return address
    parts = address.ref.split("/")
    for end in range(len(parts), 0, -1):
        ref = "/".join(parts[:end])
        if ref in names or (end == 1 and is_commit(ref)):
            path = "/".join(filter(None, ("/".join(parts[end:]), address.path)))
            return replace(address, ref=ref, path=checked_path(address.ref, path))
    return None


def is_commit(ref: str) -> bool:
    """Return True for the full hash of a commit, SHA-1 or SHA-256.

    >>> is_commit("9" * 40), is_commit("9999999")
    (True, False)
    """
    return re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", ref) is not None


def checked_commit(address: Address) -> str:
    """Return the commit of a resolved address, which may come from a file.

    Raises:
        SourceError: `source_address_invalid` if it is none.
    """
    if not is_commit(address.revision):
        raise invalid_address(str(address), "its revision is not a commit")
    return address.revision


def recorded_address(source: str, *, ref: str = "", path: str = "", revision: str = "") -> Address:
    """Return the address of a record or lock file, checked like one that is typed in.

    An entry that somebody wrote may have ref and path in its source: `owner/repo@v1`.

    Raises:
        SourceError: `source_refused` or `source_address_invalid`.
    """
    found = parse_address(source)
    return replace(
        found,
        ref=_checked_ref(source, ref) or found.ref,
        path=checked_path(source, path) or found.path,
        revision=revision,
        ref_may_be_skill=found.ref_may_be_skill and not ref,
    )


def invalid_address(text: str, detail: str) -> SourceError:
    """Build the error for what is no address."""
    return SourceError(detail, code="source_address_invalid", address=_display(text))


def refused_address(text: str, detail: str) -> SourceError:
    """Build the error for an address that is dangerous to follow."""
    return SourceError(detail, code="source_refused", address=_display(text))


def _display(text: str) -> str:
    return display_url(text) if "://" in text else text[:200]
