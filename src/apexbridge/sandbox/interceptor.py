"""The protocol of an interceptor: what the egress proxy does with hosts that have a secret."""

import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

Hold = Callable[[socket.socket], AbstractContextManager[socket.socket]]
"""Tracks an open socket, so that it is shut down when the run ends."""


class Interceptor(Protocol):
    """Protocol of what swaps placeholders for secrets. A run without secrets has none."""

    def bundle(self) -> bytes:
        """Return the certificates that the sandbox must trust, as PEM."""
        ...

    def covers(self, host: str, port: int) -> bool:
        """Return whether requests to a host are read and written anew."""
        ...

    def refuses(self, head: bytes, host: str) -> bool:
        """Return whether a request in plain text holds a placeholder."""
        ...

    def connect(self, server: socket.socket, host: str) -> socket.socket:
        """Begin TLS with the real host.

        Raises:
            OSError: If its certificate is not valid for that name, or it speaks no TLS.
        """
        ...

    def exchange(
        self, client: socket.socket, server: socket.socket, host: str, port: int, hold: Hold
    ) -> None:
        """Serve the requests of a client that was told that its tunnel is open."""
        ...
