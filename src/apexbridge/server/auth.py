"""Authentication: API keys, console session cookies, and the caller that a request belongs to."""

import hashlib
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from apexbridge.api_keys import SCOPES, ApiKey, ApiKeyStore, Scope
from apexbridge.errors import ApexBridgeError, StorageError
from apexbridge.server.request_guard import GuardHeaders

log = logging.getLogger(__name__)

SESSION_COOKIE = "apexbridge_session"
TOKEN_SECONDS = 600
SESSION_SECONDS = 12 * 3_600
CONSOLE = "console"
_MAX_SESSIONS = 1_000
_COOKIE_PREFIX = f"{SESSION_COOKIE}=".encode()
_INVALID_KEY = b"?"
"""Stands for credentials of an unsupported scheme: a key that never matches."""
_SAME_ORIGIN = frozenset({b"same-origin", b"none"})

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Authenticated caller: an API key, or a signed-in console session."""

    id: str
    name: str
    scopes: frozenset[Scope]

    def has_scope(self, scope: Scope) -> bool:
        """Return whether the caller has a scope; `admin` implies none of the others."""
        return scope in self.scopes


ANONYMOUS = Caller(id="", name="", scopes=frozenset())


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSession:
    """A signed-in console session."""

    scopes: frozenset[Scope]
    expires: float
    """On the monotonic clock, so that setting the wall clock cannot prolong a session."""
    key: str = ""
    """Id of the API key used to sign in; the session ends when that key is revoked."""


class ConsoleSessions:
    """One-time sign-in tokens and console sessions, in memory: a restart signs everybody out."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._tokens: dict[str, float] = {}
        self._sessions: dict[str, ConsoleSession] = {}

    def issue_token(self) -> str:
        """Create a one-time token that is valid for ten minutes."""
        token = secrets.token_urlsafe(32)
        self._tokens[_digest(token)] = self._clock() + TOKEN_SECONDS
        return token

    def sign_in(self, token: str) -> str | None:
        """Exchange a token for a cookie with all scopes; None if it is used up or expired."""
        expires = self._tokens.pop(_digest(token), None)
        if expires is None or self._clock() >= expires:
            return None
        return self._create(frozenset(SCOPES))

    def sign_in_with_key(self, key: ApiKey) -> str:
        """Create a cookie with the scopes of an API key."""
        return self._create(frozenset(key.scopes), key.id)

    def find(self, cookie: str) -> ConsoleSession | None:
        """Return the session of a cookie, unless it has expired."""
        digest = _digest(cookie)
        found = self._sessions.get(digest)
        if found is not None and self._clock() >= found.expires:
            del self._sessions[digest]
            return None
        return found

    def sign_out(self, cookie: str) -> None:
        """End the session of a cookie, if there is one."""
        self._sessions.pop(_digest(cookie), None)

    def _create(self, scopes: frozenset[Scope], key: str = "") -> str:
        cookie = secrets.token_urlsafe(32)
        while len(self._sessions) >= _MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        expires = self._clock() + SESSION_SECONDS
        self._sessions[_digest(cookie)] = ConsoleSession(scopes=scopes, expires=expires, key=key)
        return cookie


class Authenticator:
    """Finds the caller of a request by API key or session cookie."""

    def __init__(self, keys: ApiKeyStore, sessions: ConsoleSessions) -> None:
        self._keys, self._sessions = keys, sessions
        self._callers: dict[str, tuple[ApiKey, Caller]] = {}

    def authenticate(self, headers: GuardHeaders) -> tuple[Caller, bool]:
        """Return the caller, and whether a key was sent; an invalid key makes it anonymous.

        Raises:
            ApexBridgeError: If the key store cannot be read; the log has the cause.
        """
        try:
            text = read_api_key(headers)
            if text:
                return self._by_key(text), True
            return self._by_cookie(headers), False
        except StorageError as error:
            # Without a traceback: the error's own text is complete.
            log.error("Cannot read the API keys: %s", error)  # noqa: TRY400
            raise ApexBridgeError(code="server_failed") from None

    def _by_key(self, text: str) -> Caller:
        key = self._keys.find(text)
        if key is None:
            return ANONYMOUS
        known = self._callers.get(key.id)
        if known is None or known[0] is not key:  # a new object: the key store was reloaded
            caller = Caller(id=key.id, name=key.name, scopes=frozenset(key.scopes))
            known = self._callers[key.id] = (key, caller)
        return known[1]

    def _by_cookie(self, headers: GuardHeaders) -> Caller:
        # CSRF: SameSite counts another port of this host as the same site, so the browser sends
        # the cookie along; only Sec-Fetch-Site tells the origins apart.
        if b"cookie" not in headers or headers.get(b"sec-fetch-site", b"none") not in _SAME_ORIGIN:
            return ANONYMOUS
        cookie = read_session_cookie(headers)
        found = self._sessions.find(cookie) if cookie else None
        if found is None:
            return ANONYMOUS
        if found.key and self._keys.get(found.key) is None:
            self._sessions.sign_out(cookie)
            return ANONYMOUS
        return Caller(id=found.key or CONSOLE, name=CONSOLE, scopes=found.scopes)


def read_api_key(headers: GuardHeaders) -> str:
    """Return the API key of `Authorization: Bearer` or `x-api-key`."""
    kind, _, text = headers.get(b"authorization", b"").partition(b" ")
    if kind.lower() == b"bearer":
        return text.strip().decode("latin-1")
    return headers.get(b"x-api-key", _INVALID_KEY if kind else b"").decode("latin-1")


def read_session_cookie(headers: GuardHeaders) -> str:
    """Return the console's session cookie from the `Cookie` header."""
    for part in headers.get(b"cookie", b"").split(b";"):
        if part.strip().startswith(_COOKIE_PREFIX):
            return part.strip()[len(_COOKIE_PREFIX) :].decode("latin-1")
    return ""


def _digest(text: str) -> str:
    # Lookup by SHA-256 and not by the secret: the timing of a dict lookup then reveals nothing.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
