"""The last words of a process: its standard error, kept off our terminal."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TextIO

import anyio

MAX_BYTES = 4 * 1024
MAX_LINES = 5


class Tail:
    """Reads a pipe as long as somebody writes, and keeps its end."""

    def __init__(self) -> None:
        self._kept = b""
        self._is_cut = False

    @property
    def text(self) -> str:
        """The last whole lines, oldest first: half a line could hold half a secret."""
        lines = self._kept.decode("utf-8", "replace").splitlines()[self._is_cut :]
        return " | ".join([line.strip() for line in lines if line.strip()][-MAX_LINES:])

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator[TextIO]:
        """Give the end that a process writes to; close it here once the process has it."""
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        try:
            with os.fdopen(writer, "w", encoding="utf-8") as file:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._follow, reader)
                    try:
                        yield file
                    finally:
                        tasks.cancel_scope.cancel()
        finally:
            self._take_rest(reader)
            os.close(reader)

    async def _follow(self, reader: int) -> None:
        while True:
            await anyio.wait_readable(reader)
            if not self._take(reader):
                return

    def _take_rest(self, reader: int) -> None:
        """What is there already; a process that outlived its parent may hold the pipe open."""
        for _ in range(64):
            if not self._take(reader):
                return

    def _take(self, reader: int) -> bool:
        try:
            data = os.read(reader, 64 * 1024)
        except BlockingIOError:
            return False
        longer = self._kept + data
        self._is_cut = self._is_cut or len(longer) > MAX_BYTES
        self._kept = longer[-MAX_BYTES:]
        return bool(data)
