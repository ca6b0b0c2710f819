"""`skill://` addresses: made of a skill and a file, and taken apart without trust. Pure."""

from collections.abc import Callable, Iterator
from urllib.parse import quote, unquote

from apexbridge.errors import RequestError
from apexbridge.skills.model import Skill

SCHEME = "skill://"
TEMPLATE = "skill://{name}/{+path}"
_LONGEST = 4_096
_ODD = frozenset("/\\\x7f")


def root_of(skill: Skill) -> str:
    """Where a skill's files begin; a plugin's skill lies below its plugin.

    fastmcp and its like want the last part to be the name that SKILL.md declares.
    """
    return SCHEME + "/".join(quote(part, safe="") for part in skill.name.split(":")) + "/"


def address_of(skill: Skill, path: str) -> str:
    """The address of a file."""
    return root_of(skill) + quote(path, safe="/")


def take_apart(uri: str, find: Callable[[str], Skill | None]) -> tuple[str, Skill | None, str]:
    """The name that is asked for, its skill if there is one, and the file's path.

    Raises:
        RequestError: If no address of ours looks so: nothing of it is looked up then.
    """
    parts = list(_parts(uri))
    for length in range(len(parts) - 1, 0, -1):
        skill = find(":".join(parts[:length]))
        if skill is not None:
            return skill.name, skill, "/".join(parts[length:])
    return parts[0], None, "/".join(parts[1:])


def _parts(uri: str) -> Iterator[str]:
    if len(uri) > _LONGEST or not uri.startswith(SCHEME):
        raise _refused(uri)
    written = uri.removeprefix(SCHEME).split("/")
    if len(written) < 2 or any(char in uri for char in "?#"):
        raise _refused(uri)
    for raw in written:
        try:
            part = unquote(raw, errors="strict")
        except UnicodeDecodeError:
            raise _refused(uri) from None
        if part in {"", ".", ".."} or any(char < " " or char in _ODD for char in part):
            raise _refused(uri)
        yield part


def _refused(uri: str) -> RequestError:
    return RequestError(f"'{uri[:200]}' is no address of a skill's file", param="uri")
