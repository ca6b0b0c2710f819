"""Where an MCP server is, and what of it may be told to people."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

_SHORTEST_SECRET = 4
_SCHEMES = frozenset({"Bearer", "Basic", "Token", "Digest"})
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\s]+")
_ODD = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """A command that is started, or an address that is asked; its secrets stay out of its repr."""

    command: str = ""
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """What the command's environment has besides the usual."""
    url: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    seconds: float = 30
    """How long one call may take, connecting included."""

    def redact(self, text: str) -> str:
        """Take out what nobody may read: values of the environment, headers and address."""
        for secret in sorted(set(self._secrets()), key=len, reverse=True):
            text = text.replace(secret, "***")
        return text

    def _secrets(self) -> Iterator[str]:
        parts = urlsplit(self.url)
        query = [value for _, value in parse_qsl(parts.query)]
        for value in (*self.env.values(), *self.headers.values(), parts.password or "", *query):
            for piece in (value, *value.split()):
                if len(piece) >= _SHORTEST_SECRET and piece not in _SCHEMES:
                    yield piece
                    yield repr(piece.encode("utf-8", "surrogateescape"))[2:-1]  # as bytes are told


def clean(text: str, limit: int) -> str:
    """One line without characters that steer a terminal, and not longer than the limit."""
    line = _UNSEEN.sub(" ", text[: limit * 4]).strip()
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def qualified(server: str, name: str) -> str:
    """The name that people and models see.

    >>> qualified("my server", "tell/all")
    'mcp__my_server__tell_all'
    """
    return f"mcp__{_ODD.sub('_', server)}__{_ODD.sub('_', name)}"
