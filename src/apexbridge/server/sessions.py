"""Who is signed in at the console: a token that opens it once, and a cookie from then on.

Nothing of it is kept on disk: a server that is started anew knows nobody. Times are those of a
clock that nobody can set.
"""

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from apexbridge.api_keys import SCOPES, ApiKey, Scope

SESSION_COOKIE = "apexbridge_session"
TOKEN_SECONDS = 600
SESSION_SECONDS = 12 * 3_600
_MAX_SESSIONS = 1_000

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSession:
    """Somebody at a console."""

    scopes: frozenset[Scope]
    until: float
    """When it ends, by the clock that nobody can set."""
    key: str = ""
    """The id of the key that was shown instead of a token; the session ends with it."""


class ConsoleSessions:
    """The tokens that were given out and not used, and everybody who is signed in."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._tokens: dict[str, float] = {}
        self._sessions: dict[str, ConsoleSession] = {}

    def offer(self) -> str:
        """A new token: it signs in once, within ten minutes."""
        token = secrets.token_urlsafe(32)
        self._tokens[_digest(token)] = self._clock() + TOKEN_SECONDS
        return token

    def sign_in(self, token: str) -> str | None:
        """Take a token for a cookie that may do everything; None if it is no good any more."""
        until = self._tokens.pop(_digest(token), None)
        if until is None or self._clock() >= until:
            return None
        return self._begin(frozenset(SCOPES))

    def sign_in_with(self, key: ApiKey) -> str:
        """A cookie that may do what a key may, for as long as the key is good."""
        return self._begin(frozenset(key.scopes), key.id)

    def find(self, cookie: str) -> ConsoleSession | None:
        """Who has a cookie, if it is good."""
        mark = _digest(cookie)
        found = self._sessions.get(mark)
        if found is not None and self._clock() >= found.until:
            del self._sessions[mark]
            return None
        return found

    def sign_out(self, cookie: str) -> None:
        """End a session, if there is one."""
        self._sessions.pop(_digest(cookie), None)

    def _begin(self, scopes: frozenset[Scope], key: str = "") -> str:
        cookie = secrets.token_urlsafe(32)
        while len(self._sessions) >= _MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        until = self._clock() + SESSION_SECONDS
        self._sessions[_digest(cookie)] = ConsoleSession(scopes=scopes, until=until, key=key)
        return cookie


def _digest(text: str) -> str:
    """What is looked up: how long that takes tells nothing of the text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
