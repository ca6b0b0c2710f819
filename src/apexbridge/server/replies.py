"""The way back to a client: what every reply carries, and what is known of it afterwards."""

from collections.abc import Callable, Iterable

from starlette.types import Message, Send

_ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
)
_UNLESS_SAID = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
_EVENTS = b"text/event-stream"


class Reply:
    """Sends, and remembers how far it came."""

    __slots__ = ("_request_id", "_send", "is_ended", "is_events", "on_events", "status")

    def __init__(self, send: Send, request_id: str) -> None:
        self._send, self._request_id = send, request_id.encode()
        self.status = 0
        self.is_events = self.is_ended = False
        self.on_events: Callable[[], None] | None = None
        """Is called when it turns out to be a stream of events."""

    @property
    def is_started(self) -> bool:
        """Whether a status was sent; another cannot be."""
        return self.status != 0

    async def __call__(self, message: Message) -> None:
        """Send one message, as an application does."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = self._headers(message.get("headers", ()))
        elif message["type"] == "http.response.body":
            self.is_ended = not message.get("more_body", False)
        await self._send(message)

    def _headers(self, given: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        headers = list(given)
        said = dict(headers)
        if said.get(b"content-type", b"").startswith(_EVENTS):
            self.is_events = True
            if self.on_events is not None:
                self.on_events()
        headers += _ALWAYS
        headers += [pair for pair in _UNLESS_SAID if pair[0] not in said]
        headers.append((b"x-request-id", self._request_id))
        return headers
