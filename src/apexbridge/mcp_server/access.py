"""Who asks, and what a caller may do; over standard streams it is who started the process."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

from apexbridge.errors import RequestError
from apexbridge.keys import Scope

Asgi = MutableMapping[str, Any]
"""What an ASGI server says of a request."""
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
May = Callable[[Asgi, Scope], bool]
"""Whether whoever made a request may do what a scope stands for."""

READ: Scope = "skills:read"
EXEC: Scope = "exec"


class Caller(Protocol):
    """Who made a request, as the server before this door found out."""

    @property
    def id(self) -> str:
        """Empty for one without a key."""
        ...

    def may(self, scope: Scope) -> bool:
        """Whether a scope was given to it."""
        ...


def caller_may(request: Asgi, scope: Scope) -> bool:
    """Ask the caller that the server noted; where it noted none, nothing is allowed."""
    caller: Caller | None = request.get("state", {}).get("caller")
    return caller is not None and caller.may(scope)


def refusal(request: Asgi | None, scope: Scope) -> RequestError:
    """The error for a caller without a scope, or without a key."""
    caller: Caller | None = (request or {}).get("state", {}).get("caller")
    is_known = caller is not None and bool(caller.id)
    return RequestError(code="scope_missing" if is_known else "key_missing", scope=scope)
