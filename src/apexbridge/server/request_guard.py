"""Request guard: reject requests by Host, Origin, URL length and content type before any is read.

DNS rebinding: a web page can point its host name at this machine, and its scripts then reach the
server as same-origin. So the Host header decides, and an unknown name is refused.
"""

import ipaddress
from collections.abc import Iterable, Mapping

from starlette.types import Scope

from apexbridge.errors import RequestError
from apexbridge.settings import ServerSettings

MAX_URL_BYTES = 8_192
_LOOPBACK = ("127.0.0.1", "[::1]")
_HTTP_PORT, _HTTPS_PORT = 80, 443
_MAX_HOST_BYTES = 300
_MB = 1_000_000
_MULTIPART_OVERHEAD = 65_536
_JSON, _FORM = b"application/json", b"multipart/form-data"
_BODILESS_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})
_CROSS_ORIGIN = frozenset({b"cross-site", b"same-site"})
_GUARD_HEADERS = frozenset(
    {
        b"host", b"origin", b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest",
        b"content-type", b"content-encoding", b"content-length", b"transfer-encoding",
        b"authorization", b"x-api-key", b"cookie", b"x-request-id", b"upgrade",
    }
)  # fmt: skip

GuardHeaders = Mapping[bytes, bytes]


def is_loopback(host: str) -> bool:
    """Return whether a bind address is reachable from this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_unspecified(host: str) -> bool:
    """Return whether a bind address means all interfaces, as 0.0.0.0 and :: do."""
    try:
        return not host or ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False


def format_host(host: str) -> str:
    """Format a host for a URL: IPv6 addresses go in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def select_headers(headers: Iterable[tuple[bytes, bytes]]) -> tuple[GuardHeaders, bool]:
    """Select the security-relevant headers, and return whether one of them is duplicated."""
    pairs = [pair for pair in headers if pair[0] in _GUARD_HEADERS]
    selected = dict(pairs)
    return selected, len(selected) != len(pairs)


def is_multipart(headers: GuardHeaders) -> bool:
    """Return whether the request body is a multipart form."""
    return headers.get(b"content-type", b"")[: len(_FORM)].lower() == _FORM


class HostPolicy:
    """Allow-lists of Host names and CORS origins."""

    def __init__(self, settings: ServerSettings) -> None:
        own = list(_LOOPBACK)
        if not is_unspecified(settings.host):
            own += ["localhost", format_host(settings.host.lower())]
        self._own = tuple(own)
        self._hosts = frozenset(name.lower() for name in settings.allowed_hosts)
        self._origins = frozenset(name.lower().rstrip("/") for name in settings.allowed_origins)
        self._by_port: dict[int, frozenset[bytes]] = {}

    def allows_host(self, host: bytes, port: int | None) -> bool:
        """Return whether a Host header names this server, which listens on `port`."""
        if port is not None:
            names = self._by_port.get(port)
            if names is None:
                names = self._by_port[port] = frozenset(self._with_port(port))
            if host in names:
                return True
        return self._is_configured(host)

    def allows_origin(self, origin: bytes, host: bytes, scheme: str) -> bool:
        """Return whether an Origin is same-origin, or allowed by the settings."""
        text = origin.decode("latin-1").lower()
        origin_scheme, separator, authority = text.partition("://")
        if text in self._origins:
            return True
        if not separator or authority != host.decode("latin-1").lower():
            return False
        # A reverse proxy in front, reached by a configured name, may terminate TLS.
        return origin_scheme == scheme or (origin_scheme == "https" and self._is_configured(host))

    def _with_port(self, port: int) -> list[bytes]:
        bare = self._own if port in {_HTTP_PORT, _HTTPS_PORT} else ()
        return [name.encode() for name in (*(f"{name}:{port}" for name in self._own), *bare)]

    def _is_configured(self, host: bytes) -> bool:
        if len(host) > _MAX_HOST_BYTES:
            return False
        text = host.decode("latin-1").lower()
        name, separator, port = text.rpartition(":")
        has_port = bool(separator) and port.isdigit()
        return text in self._hosts or (has_port and name in self._hosts)


class RequestGuard:
    """Checks request line and headers before a byte of the body is read."""

    def __init__(self, settings: ServerSettings, zip_mb: float) -> None:
        self._hosts = HostPolicy(settings)
        self._max_body = int(settings.max_body_mb * _MB)
        self._max_upload = max(self._max_body, int(zip_mb * _MB) + _MULTIPART_OVERHEAD)

    def check(self, scope: Scope, headers: GuardHeaders) -> None:
        """Check a request.

        Raises:
            RequestError: If it is refused.
        """
        if len(scope["raw_path"]) + len(scope["query_string"]) > MAX_URL_BYTES:
            raise RequestError(code="address_too_long", limit=MAX_URL_BYTES)
        host = headers.get(b"host", b"").lower()
        server = scope.get("server")
        if not self._hosts.allows_host(host, server[1] if server else None):
            raise RequestError(code="host_unknown", host=_printable(host))
        if b"origin" in headers or b"sec-fetch-site" in headers:
            self._check_origin(scope, headers, host)
        if b"upgrade" in headers and headers[b"upgrade"].lower() == b"websocket":
            raise RequestError(code="websocket_refused")
        has_length = b"content-length" in headers or b"transfer-encoding" in headers
        if has_length or b"content-type" in headers:
            self._check_body(scope["method"], headers)

    def max_body_bytes(self, headers: GuardHeaders) -> int:
        """Return the size limit of the request body."""
        return self._max_upload if is_multipart(headers) else self._max_body

    def _check_origin(self, scope: Scope, headers: GuardHeaders, host: bytes) -> None:
        """CSRF protection: refuse what a page of another origin makes a browser send."""
        origin = headers.get(b"origin")
        if origin is not None:
            if not self._hosts.allows_origin(origin, host, scope["scheme"]):
                raise RequestError(code="origin_refused", origin=_printable(origin))
            return
        if headers.get(b"sec-fetch-site") in _CROSS_ORIGIN and not _is_navigation(scope, headers):
            raise RequestError(code="origin_refused", origin="?")

    def _check_body(self, method: str, headers: GuardHeaders) -> None:
        length = headers.get(b"content-length", b"0")
        if method not in _BODILESS_METHODS and (length != b"0" or b"transfer-encoding" in headers):
            kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
            if kind not in {_JSON, _FORM}:
                raise unsupported_media_type(_printable(kind))
        encoding = headers.get(b"content-encoding", b"identity").strip().lower()
        if encoding != b"identity":
            raise unsupported_media_type(_printable(encoding), wanted="no content encoding")
        limit = self.max_body_bytes(headers)
        if length.isdigit() and int(length[:20]) > limit:
            raise RequestError(code="body_too_large", limit=limit)


def unsupported_media_type(kind: str, *, wanted: str = "application/json") -> RequestError:
    """Return the error for a content type that is not accepted (HTTP 415)."""
    return RequestError(code="content_type_unsupported", kind=kind, wanted=wanted)


def _is_navigation(scope: Scope, headers: GuardHeaders) -> bool:
    # Following a link to the console is harmless: a SameSite=Strict cookie is not sent with it.
    return (
        scope["method"] in {"GET", "HEAD"}
        and headers.get(b"sec-fetch-mode") == b"navigate"
        and headers.get(b"sec-fetch-dest") == b"document"
        and (scope["path"] == "/" or scope["path"].startswith("/console"))
    )


def _printable(value: bytes) -> str:
    """Escape and truncate client input, so that it cannot forge log lines."""
    return value[:200].decode("ascii", "backslashreplace").encode("unicode_escape").decode()
