"""By which names a server may be called, and by whose pages."""

import ipaddress
from collections.abc import Iterable, Mapping

from starlette.types import Scope

from apexbridge.errors import RequestError
from apexbridge.settings import ServerSettings

_LOOPBACK = ("127.0.0.1", "[::1]")
_HTTP_PORT, _HTTPS_PORT = 80, 443
_MAX_HOST_BYTES = 300


def is_loopback(host: str) -> bool:
    """Whether an address to listen at can be reached from this machine alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_unspecified(host: str) -> bool:
    """Whether it is no address of its own, but all that the machine has."""
    try:
        return not host or ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False


def format_host(host: str) -> str:
    """A host as it stands in an address."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


class HostPolicy:
    """The names that a server answers for.

    A page can give any name of its own the address of this machine, and then speak to it as if
    it were its own: so the name decides, and a name that nobody chose is refused.
    """

    def __init__(self, settings: ServerSettings) -> None:
        own = list(_LOOPBACK)
        if not is_unspecified(settings.host):
            own += ["localhost", format_host(settings.host.lower())]
        self._own = tuple(own)
        self._chosen = frozenset(name.lower() for name in settings.allowed_hosts)
        self._origins = frozenset(name.lower().rstrip("/") for name in settings.allowed_origins)
        self._by_port: dict[int, frozenset[bytes]] = {}

    def is_ours(self, host: bytes, port: int | None) -> bool:
        """Whether a client's `Host` is a name of this server, which was reached at a port."""
        if port is not None:
            names = self._by_port.get(port)
            if names is None:
                names = self._by_port[port] = frozenset(self._with_port(port))
            if host in names:
                return True
        return self._is_chosen(host)

    def may_call(self, origin: bytes, host: bytes, scheme: str) -> bool:
        """Whether a page may call: it is our own, or somebody allowed it."""
        text = origin.decode("latin-1").lower()
        given, sign, authority = text.partition("://")
        if text in self._origins:
            return True
        if not sign or authority != host.decode("latin-1").lower():
            return False
        # A proxy that is called by a chosen name may speak TLS for us.
        return given == scheme or (given == "https" and self._is_chosen(host))

    def _with_port(self, port: int) -> list[bytes]:
        bare = self._own if port in {_HTTP_PORT, _HTTPS_PORT} else ()
        return [name.encode() for name in (*(f"{name}:{port}" for name in self._own), *bare)]

    def _is_chosen(self, host: bytes) -> bool:
        if len(host) > _MAX_HOST_BYTES:
            return False
        text = host.decode("latin-1").lower()
        name, sign, port = text.rpartition(":")
        is_port = bool(sign) and port.isdigit()
        return text in self._chosen or (is_port and name in self._chosen)


MAX_URL_BYTES = 8_192
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


def select_headers(headers: Iterable[tuple[bytes, bytes]]) -> tuple[GuardHeaders, bool]:
    """The headers that decide something, and whether one of them stands twice."""
    pairs = [pair for pair in headers if pair[0] in _GUARD_HEADERS]
    seen = dict(pairs)
    return seen, len(seen) != len(pairs)


def is_multipart(seen: GuardHeaders) -> bool:
    """Whether a form with files comes."""
    return seen.get(b"content-type", b"")[: len(_FORM)].lower() == _FORM


class RequestGuard:
    """Looks at what a client says of its request, before a byte of a body is read."""

    def __init__(self, settings: ServerSettings, zip_mb: float) -> None:
        self._addresses = HostPolicy(settings)
        self._most = int(settings.max_body_mb * _MB)
        self._most_upload = max(self._most, int(zip_mb * _MB) + _MULTIPART_OVERHEAD)

    def check(self, scope: Scope, seen: GuardHeaders) -> None:
        """Refuse what may not come in.

        Raises:
            RequestError: With the reason.
        """
        if len(scope["raw_path"]) + len(scope["query_string"]) > MAX_URL_BYTES:
            raise RequestError(code="address_too_long", limit=MAX_URL_BYTES)
        host = seen.get(b"host", b"").lower()
        server = scope.get("server")
        if not self._addresses.is_ours(host, server[1] if server else None):
            raise RequestError(code="host_unknown", host=_printable(host))
        if b"origin" in seen or b"sec-fetch-site" in seen:
            self._check_page(scope, seen, host)
        if b"upgrade" in seen and seen[b"upgrade"].lower() == b"websocket":
            raise RequestError(code="websocket_refused")
        if b"content-length" in seen or b"transfer-encoding" in seen or b"content-type" in seen:
            self._check_body(scope["method"], seen)

    def limit(self, seen: GuardHeaders) -> int:
        """How many bytes a body may have."""
        return self._most_upload if is_multipart(seen) else self._most

    def _check_page(self, scope: Scope, seen: GuardHeaders, host: bytes) -> None:
        """A browser says which page a request comes from."""
        origin = seen.get(b"origin")
        if origin is not None:
            if not self._addresses.may_call(origin, host, scope["scheme"]):
                raise RequestError(code="origin_refused", origin=_printable(origin))
            return
        if seen.get(b"sec-fetch-site") in _CROSS_ORIGIN and not _is_navigation(scope, seen):
            raise RequestError(code="origin_refused", origin="?")

    def _check_body(self, method: str, seen: GuardHeaders) -> None:
        length = seen.get(b"content-length", b"0")
        if method not in _BODILESS_METHODS and (length != b"0" or b"transfer-encoding" in seen):
            kind = seen.get(b"content-type", b"").partition(b";")[0].strip().lower()
            if kind not in {_JSON, _FORM}:
                raise unsupported_media_type(_printable(kind))
        coding = seen.get(b"content-encoding", b"identity").strip().lower()
        if coding != b"identity":
            raise unsupported_media_type(_printable(coding), wanted="it unpacked")
        limit = self.limit(seen)
        if length.isdigit() and int(length[:20]) > limit:
            raise RequestError(code="body_too_large", limit=limit)


def unsupported_media_type(kind: str, *, wanted: str = "application/json") -> RequestError:
    """The refusal of a body that is not of the kind that is taken."""
    return RequestError(code="content_type_unsupported", kind=kind, wanted=wanted)


def _is_navigation(scope: Scope, seen: GuardHeaders) -> bool:
    """Somebody follows a link to the console; the cookie stays at home then."""
    return (
        scope["method"] in {"GET", "HEAD"}
        and seen.get(b"sec-fetch-mode") == b"navigate"
        and seen.get(b"sec-fetch-dest") == b"document"
        and (scope["path"] == "/" or scope["path"].startswith("/console"))
    )


def _printable(value: bytes) -> str:
    """Something that a stranger wrote, short and on one line."""
    return value[:200].decode("ascii", "backslashreplace").encode("unicode_escape").decode()
