"""Whether a request may come in at all, by its address and its headers alone."""

from collections.abc import Iterable, Mapping

from starlette.types import Scope

from apexbridge.errors import RequestError
from apexbridge.server.addresses import Addresses
from apexbridge.settings import ServerSettings

MAX_ADDRESS = 8_192
_MB = 1_000_000
_FORM_ROOM = 65_536
_JSON, _FORM = b"application/json", b"multipart/form-data"
_BODILESS = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})
_FOREIGN = frozenset({b"cross-site", b"same-site"})
_WATCHED = frozenset(
    {
        b"host", b"origin", b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest",
        b"content-type", b"content-encoding", b"content-length", b"transfer-encoding",
        b"authorization", b"x-api-key", b"cookie", b"x-request-id", b"upgrade",
    }
)  # fmt: skip

Seen = Mapping[bytes, bytes]


def watched(headers: Iterable[tuple[bytes, bytes]]) -> tuple[Seen, bool]:
    """The headers that decide something, and whether one of them stands twice."""
    pairs = [pair for pair in headers if pair[0] in _WATCHED]
    seen = dict(pairs)
    return seen, len(seen) != len(pairs)


def is_upload(seen: Seen) -> bool:
    """Whether a form with files comes."""
    return seen.get(b"content-type", b"")[: len(_FORM)].lower() == _FORM


class Examiner:
    """Looks at what a client says of its request, before a byte of a body is read."""

    def __init__(self, settings: ServerSettings, zip_mb: float) -> None:
        self._addresses = Addresses(settings)
        self._most = int(settings.body_mb * _MB)
        self._most_upload = max(self._most, int(zip_mb * _MB) + _FORM_ROOM)

    def check(self, scope: Scope, seen: Seen) -> None:
        """Refuse what may not come in.

        Raises:
            RequestError: With the reason.
        """
        if len(scope["raw_path"]) + len(scope["query_string"]) > MAX_ADDRESS:
            raise RequestError(code="address_too_long", limit=MAX_ADDRESS)
        host = seen.get(b"host", b"").lower()
        server = scope.get("server")
        if not self._addresses.is_ours(host, server[1] if server else None):
            raise RequestError(code="host_unknown", host=_shown(host))
        if b"origin" in seen or b"sec-fetch-site" in seen:
            self._check_page(scope, seen, host)
        if b"upgrade" in seen and seen[b"upgrade"].lower() == b"websocket":
            raise RequestError(code="websocket_refused")
        if b"content-length" in seen or b"transfer-encoding" in seen or b"content-type" in seen:
            self._check_body(scope["method"], seen)

    def limit(self, seen: Seen) -> int:
        """How many bytes a body may have."""
        return self._most_upload if is_upload(seen) else self._most

    def _check_page(self, scope: Scope, seen: Seen, host: bytes) -> None:
        """A browser says which page a request comes from."""
        origin = seen.get(b"origin")
        if origin is not None:
            if not self._addresses.may_call(origin, host, scope["scheme"]):
                raise RequestError(code="origin_refused", origin=_shown(origin))
            return
        if seen.get(b"sec-fetch-site") in _FOREIGN and not _is_visit(scope, seen):
            raise RequestError(code="origin_refused", origin="?")

    def _check_body(self, method: str, seen: Seen) -> None:
        length = seen.get(b"content-length", b"0")
        if method not in _BODILESS and (length != b"0" or b"transfer-encoding" in seen):
            kind = seen.get(b"content-type", b"").partition(b";")[0].strip().lower()
            if kind not in {_JSON, _FORM}:
                raise unsupported(_shown(kind))
        coding = seen.get(b"content-encoding", b"identity").strip().lower()
        if coding != b"identity":
            raise unsupported(_shown(coding), wanted="it unpacked")
        limit = self.limit(seen)
        if length.isdigit() and int(length[:20]) > limit:
            raise RequestError(code="body_too_large", limit=limit)


def unsupported(kind: str, *, wanted: str = "application/json") -> RequestError:
    """The refusal of a body that is not of the kind that is taken."""
    return RequestError(code="content_type_unsupported", kind=kind, wanted=wanted)


def _is_visit(scope: Scope, seen: Seen) -> bool:
    """Somebody follows a link to the console; the cookie stays at home then."""
    return (
        scope["method"] in {"GET", "HEAD"}
        and seen.get(b"sec-fetch-mode") == b"navigate"
        and seen.get(b"sec-fetch-dest") == b"document"
        and (scope["path"] == "/" or scope["path"].startswith("/console"))
    )


def _shown(value: bytes) -> str:
    """Something that a stranger wrote, short and on one line."""
    return value[:200].decode("ascii", "backslashreplace").encode("unicode_escape").decode()
