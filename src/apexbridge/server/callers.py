"""Who asks: found by a key, or by the cookie of a console."""

import logging

from apexbridge.errors import ApexBridgeError, StorageError
from apexbridge.keys import Key, KeyStore
from apexbridge.server.base import Caller
from apexbridge.server.examining import Seen
from apexbridge.server.sessions import COOKIE, ConsoleSessions

log = logging.getLogger(__name__)

NOBODY = Caller(id="", name="", scopes=frozenset())
CONSOLE = "console"
_COOKIE = f"{COOKIE}=".encode()
_NO_KEY = b"?"
"""What another way to sign in comes to."""
_OWN_PAGES = frozenset({b"same-origin", b"none"})


class Callers:
    """Finds out who sent a request."""

    def __init__(self, keys: KeyStore, sessions: ConsoleSessions) -> None:
        self._keys, self._sessions = keys, sessions
        self._known: dict[str, tuple[Key, Caller]] = {}

    def of(self, seen: Seen) -> tuple[Caller, bool]:
        """Who asks, and whether a key was shown; one that is no good makes nobody of its owner.

        Raises:
            ApexBridgeError: If the keys cannot be read; the log says why.
        """
        try:
            text = key_in(seen)
            if text:
                return self._with_key(text), True
            return self._with_cookie(seen), False
        except StorageError as error:
            log.error("The keys cannot be read: %s", error)  # noqa: TRY400  # it says all there is
            raise ApexBridgeError(code="server_failed") from None

    def _with_key(self, text: str) -> Caller:
        key = self._keys.find(text)
        if key is None:
            return NOBODY
        known = self._known.get(key.id)
        if known is None or known[0] is not key:  # made once, until the keys are read again
            caller = Caller(id=key.id, name=key.name, scopes=frozenset(key.scopes))
            known = self._known[key.id] = (key, caller)
        return known[1]

    def _with_cookie(self, seen: Seen) -> Caller:
        # A page of another port is of the same site, and a browser sends the cookie along.
        if b"cookie" not in seen or seen.get(b"sec-fetch-site", b"none") not in _OWN_PAGES:
            return NOBODY
        cookie = cookie_in(seen)
        found = self._sessions.find(cookie) if cookie else None
        if found is None:
            return NOBODY
        if found.key and self._keys.get(found.key) is None:
            self._sessions.sign_out(cookie)
            return NOBODY
        return Caller(id=found.key or CONSOLE, name=CONSOLE, scopes=found.scopes)


def key_in(seen: Seen) -> str:
    """The key that a client sends along, as `Authorization: Bearer` or as `x-api-key`."""
    kind, _, text = seen.get(b"authorization", b"").partition(b" ")
    if kind.lower() == b"bearer":
        return text.strip().decode("latin-1")
    return seen.get(b"x-api-key", _NO_KEY if kind else b"").decode("latin-1")


def cookie_in(seen: Seen) -> str:
    """The console's cookie, among others."""
    for part in seen.get(b"cookie", b"").split(b";"):
        if part.strip().startswith(_COOKIE):
            return part.strip()[len(_COOKIE) :].decode("latin-1")
    return ""
