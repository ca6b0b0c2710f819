"""Swap placeholders for values in one request to one host, or refuse the request.

A value goes only where the grant says: into headers (also inside of Basic authentication), and, if
the skill asks for it and a person agreed, into the query, the path or a JSON or form body.
"""

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Sequence
from urllib.parse import quote, quote_plus

from apexbridge.sandbox.host_rule import normalize_host, parse_port
from apexbridge.sandbox.placeholders import PLACEHOLDER, Place, RunSecret

Header = tuple[bytes, bytes]
_HTTPS_PORT = 443
_PATH_SAFE = ":@!$&'()*+,;=~-._"
_JSON, _FORM = b"application/json", b"application/x-www-form-urlencoded"
_HOP_BY_HOP = frozenset({
    b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"expect",
    b"http2-settings", b"content-length", b"proxy-connection", b"proxy-authorization",
})  # fmt: skip
_REPLACED = frozenset({b"accept-encoding", b"range", b"if-range"})
"""A response must be readable to be redacted: not compressed, and never a part of the whole, by
which a script could fetch an echoed value piece by piece."""


class RefusedRequestError(Exception):
    """A request that is not forwarded: status for the client, and the reason for the audit log."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class RequestSwap:
    """The secrets of a run, as they apply to one host."""

    def __init__(
        self,
        run_secrets: Iterable[RunSecret],
        host: str,
        port: int,
        is_granted: Callable[[], bool] = lambda: True,
    ) -> None:
        self._host, self._port, self._is_granted = host, port, is_granted
        self._secrets = tuple(secret for secret in run_secrets if secret.is_for(host, port))

    def target(self, method: bytes, target: bytes) -> bytes:
        """Swap in path and query; only the origin form (`/path?query`) is accepted."""
        if method == b"CONNECT" or not target.startswith(b"/"):
            raise RefusedRequestError(400, "target")
        path, mark, query = target.partition(b"?")
        path = self._swap(path, "path", lambda value: quote(value, safe=_PATH_SAFE))
        return path + mark + self._swap(query, "query", lambda value: quote(value, safe=""))

    def headers(self, headers: Sequence[Header]) -> list[Header]:
        """Swap in header values, and drop what concerns one connection only."""
        self._check_host([value for name, value in headers if name == b"host"])
        framing = [n for n, _ in headers if n in {b"content-length", b"transfer-encoding"}]
        if len(set(framing)) > 1:  # which of them counts is where servers disagree
            raise RefusedRequestError(400, "framing")
        kept = [header for header in end_to_end(headers) if header[0] != b"host"]
        swapped = [(name, self._header(name, value)) for name, value in kept]
        for name, _ in swapped:
            if PLACEHOLDER.search(name):
                raise RefusedRequestError(403, "place")
        # The host as it was granted, not in the script's spelling: `api.example.`, `ªpi.example`.
        port = "" if self._port == _HTTPS_PORT else f":{self._port}"
        host = f"{self._host}{port}".encode("ascii")
        return [(b"host", host), *swapped, (b"accept-encoding", b"identity")]

    def body(self, headers: Sequence[Header], data: bytes) -> bytes:
        """Swap in a whole body; JSON and forms only, since others have no escaping we know."""
        fields = dict(headers)
        kind = fields.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if b"content-encoding" not in fields and (kind == _JSON or kind.endswith(b"+json")):
            return self._swap(data, "body", lambda value: json.dumps(value)[1:-1])
        if b"content-encoding" not in fields and kind == _FORM:
            return self._swap(data, "body", quote_plus)
        self.refuse_placeholder(data)
        return data

    def refuse_placeholder(self, data: bytes) -> None:
        """Refuse a placeholder where nothing is swapped: it would reach the host as it is."""
        found = PLACEHOLDER.search(data)
        if found:
            is_for_this_host = any(s.placeholder.encode().endswith(found[0]) for s in self._secrets)
            raise RefusedRequestError(403, "place" if is_for_this_host else "other_host")

    def _check_host(self, values: Sequence[bytes]) -> None:
        """Require that the request names the host that was granted, resolved and checked."""
        if len(values) != 1:
            raise RefusedRequestError(400, "host_header")
        name, colon, port = values[0].decode("latin-1").partition(":")
        try:
            is_same = normalize_host(name) == self._host
            is_same = is_same and (parse_port(port) if colon else _HTTPS_PORT) == self._port
        except ValueError:
            is_same = False
        if not is_same:
            raise RefusedRequestError(421, "host_header")

    def _header(self, name: bytes, value: bytes) -> bytes:
        scheme, _, coded = value.partition(b" ")
        if name == b"authorization" and scheme.lower() == b"basic":
            try:
                pair = base64.b64decode(coded.strip(), validate=True)
            except binascii.Error:
                pair = b""
            if PLACEHOLDER.search(pair):
                return scheme + b" " + base64.b64encode(self._swap(pair, "header", str))
        return self._swap(value, "header", str)

    def _swap(self, data: bytes, place: Place, encode: Callable[[str], str]) -> bytes:
        if not PLACEHOLDER.search(data):
            return data
        rest = data
        for secret in self._secrets:
            mark = secret.placeholder.encode()
            if place in secret.places and mark in data:
                rest = rest.replace(mark, b"")
                data = data.replace(mark, encode(secret.value).encode())
        self.refuse_placeholder(rest)
        # Asked for each value that is sent, since a run can outlive its grant.
        if not self._is_granted():
            raise RefusedRequestError(403, "grant_ended")
        return data


def end_to_end(headers: Sequence[Header]) -> list[Header]:
    """Return the headers that are for the other end, not for one connection."""
    named = {
        word.strip().lower()
        for name, value in headers
        if name == b"connection"
        for word in value.split(b",")
    }
    dropped = _HOP_BY_HOP | _REPLACED | named
    return [(name, value) for name, value in headers if name not in dropped]
