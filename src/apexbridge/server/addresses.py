"""By which names a server may be called, and by whose pages."""

import ipaddress

from apexbridge.settings import ServerSettings

_LOOPBACK = ("127.0.0.1", "[::1]")
_HTTP, _HTTPS = 80, 443
_LONGEST = 300


def is_loopback(host: str) -> bool:
    """Whether an address to listen at can be reached from this machine alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_everywhere(host: str) -> bool:
    """Whether it is no address of its own, but all that the machine has."""
    try:
        return not host or ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False


def in_url(host: str) -> str:
    """A host as it stands in an address."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


class Addresses:
    """The names that a server answers for.

    A page can give any name of its own the address of this machine, and then speak to it as if
    it were its own: so the name decides, and a name that nobody chose is refused.
    """

    def __init__(self, settings: ServerSettings) -> None:
        own = list(_LOOPBACK)
        if not is_everywhere(settings.host):
            own += ["localhost", in_url(settings.host.lower())]
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
        bare = self._own if port in {_HTTP, _HTTPS} else ()
        return [name.encode() for name in (*(f"{name}:{port}" for name in self._own), *bare)]

    def _is_chosen(self, host: bytes) -> bool:
        if len(host) > _LONGEST:
            return False
        text = host.decode("latin-1").lower()
        name, sign, port = text.rpartition(":")
        is_port = bool(sign) and port.isdigit()
        return text in self._chosen or (is_port and name in self._chosen)
