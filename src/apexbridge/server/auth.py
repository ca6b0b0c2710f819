"""Who asks: found by a key, or by the cookie of a console."""

import logging

from apexbridge.api_keys import ApiKey, ApiKeyStore
from apexbridge.errors import ApexBridgeError, StorageError
from apexbridge.server.request_guard import GuardHeaders
from apexbridge.server.routing import Caller
from apexbridge.server.sessions import SESSION_COOKIE, ConsoleSessions

log = logging.getLogger(__name__)

ANONYMOUS = Caller(id="", name="", scopes=frozenset())
CONSOLE = "console"
_COOKIE_PREFIX = f"{SESSION_COOKIE}=".encode()
_INVALID_KEY = b"?"
"""What another way to sign in comes to."""
_SAME_ORIGIN = frozenset({b"same-origin", b"none"})


class Authenticator:
    """Finds out who sent a request."""

    def __init__(self, keys: ApiKeyStore, sessions: ConsoleSessions) -> None:
        self._keys, self._sessions = keys, sessions
        self._known: dict[str, tuple[ApiKey, Caller]] = {}

    def of(self, seen: GuardHeaders) -> tuple[Caller, bool]:
        """Who asks, and whether a key was shown; one that is no good makes nobody of its owner.

        Raises:
            ApexBridgeError: If the keys cannot be read; the log says why.
        """
        try:
            text = read_api_key(seen)
            if text:
                return self._with_key(text), True
            return self._with_cookie(seen), False
        except StorageError as error:
            log.error("The keys cannot be read: %s", error)  # noqa: TRY400  # it says all there is
            raise ApexBridgeError(code="server_failed") from None

    def _with_key(self, text: str) -> Caller:
        key = self._keys.find(text)
        if key is None:
            return ANONYMOUS
        known = self._known.get(key.id)
        if known is None or known[0] is not key:  # made once, until the keys are read again
            caller = Caller(id=key.id, name=key.name, scopes=frozenset(key.scopes))
            known = self._known[key.id] = (key, caller)
        return known[1]

    def _with_cookie(self, seen: GuardHeaders) -> Caller:
        # A page of another port is of the same site, and a browser sends the cookie along.
        if b"cookie" not in seen or seen.get(b"sec-fetch-site", b"none") not in _SAME_ORIGIN:
            return ANONYMOUS
        cookie = read_session_cookie(seen)
        found = self._sessions.find(cookie) if cookie else None
        if found is None:
            return ANONYMOUS
        if found.key and self._keys.get(found.key) is None:
            self._sessions.sign_out(cookie)
            return ANONYMOUS
        return Caller(id=found.key or CONSOLE, name=CONSOLE, scopes=found.scopes)


def read_api_key(seen: GuardHeaders) -> str:
    """The key that a client sends along, as `Authorization: Bearer` or as `x-api-key`."""
    kind, _, text = seen.get(b"authorization", b"").partition(b" ")
    if kind.lower() == b"bearer":
        return text.strip().decode("latin-1")
    return seen.get(b"x-api-key", _INVALID_KEY if kind else b"").decode("latin-1")


def read_session_cookie(seen: GuardHeaders) -> str:
    """The console's cookie, among others."""
    for part in seen.get(b"cookie", b"").split(b";"):
        if part.strip().startswith(_COOKIE_PREFIX):
            return part.strip()[len(_COOKIE_PREFIX) :].decode("latin-1")
    return ""
