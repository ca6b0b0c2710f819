"""Interactive terminal sessions over a pseudo-terminal (pty)."""

import os
import pty
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import Process

_TAKE_OVER = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.executable, [sys.executable, '-m', 'apexbridge', *sys.argv[1:]])"
)
CTRL_C = "\x03"
CTRL_D = "\x04"


def environment(home: Path, **more: str) -> dict[str, str]:
    """Minimal environment variables, with the hash embedder and coverage measurement."""
    kept = ("PATH", "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")
    return {
        **{name: os.environ[name] for name in kept if name in os.environ},
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "APEXBRIDGE_INDEX__EMBEDDER": "hash",
        **more,
    }


class Terminal:
    """Screen and keyboard of a pseudo-terminal."""

    def __init__(self, number: int, process: Process) -> None:
        self._number, self.process = number, process
        self._seen = self._rest = b""

    async def sees(self, text: str) -> str:
        """Wait until a text is on the screen; returns everything up to it."""
        wanted = text.encode()
        with anyio.move_on_after(60):
            while wanted not in self._rest and (piece := await self._read()):
                self._rest += piece
        assert wanted in self._rest, f"no {text!r}: {self.screen}"
        before, _, self._rest = self._rest.partition(wanted)
        self._seen += before + wanted
        return before.decode(errors="replace")

    async def presses_until(self, key: str, text: str) -> None:
        """Press a key until a text is seen: readline may miss an early Ctrl-C."""
        with anyio.fail_after(60):
            while text.encode() not in self._rest:
                self.types(key)
                with anyio.move_on_after(1):
                    while text.encode() not in self._rest:
                        self._rest += await self._read()
        await self.sees(text)

    def types(self, text: str) -> None:
        """Press keys."""
        os.write(self._number, text.encode())

    async def ends(self) -> int:
        """Wait for the program to exit; returns its exit code."""
        with anyio.fail_after(60):
            while piece := await self._read():
                self._rest += piece
            code = await self.process.wait()
        self._seen += self._rest
        return code

    @property
    def screen(self) -> str:
        """Everything shown so far."""
        return (self._seen + self._rest).decode(errors="replace")

    async def _read(self) -> bytes:
        await anyio.wait_readable(self._number)
        try:
            return os.read(self._number, 65_536)
        except OSError:  # EIO: Linux reports the closed slave side this way
            return b""


@asynccontextmanager
async def open_terminal(
    *words: str, cwd: Path, variables: Mapping[str, str]
) -> AsyncGenerator[Terminal]:
    """Start the program on a pty; it is killed at the end of the block if still running."""
    ours, theirs = pty.openpty()
    try:
        process = await anyio.open_process(
            [sys.executable, "-c", _TAKE_OVER, *words],
            cwd=cwd, env=variables, stdin=theirs, stdout=theirs, stderr=theirs,
            start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        try:
            yield Terminal(ours, process)
        finally:
            if process.returncode is None:
                process.kill()
            with anyio.CancelScope(shield=True):
                await process.wait()
    finally:
        os.close(ours)
