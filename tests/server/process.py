"""`apexbridge serve` as a child process."""

import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from signal import Signals

import anyio
from anyio.abc import Process

from tests.server.raw_http import HttpResponse, send_request

_KEPT = ("PATH", "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")
TIMEOUT_SECONDS = 120


@dataclass(slots=True, kw_only=True)
class ServerProcess:
    """Running server process, and its log."""

    url: str
    token: str
    key: str
    data: Path
    process: Process
    log: bytearray = field(default_factory=bytearray)

    @property
    def auth(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    async def chat(self, text: str = "hello", **more: object) -> HttpResponse:
        body = json.dumps({"messages": [{"role": "user", "content": text}], **more}).encode()
        sent_headers = {**self.auth, "Content-Type": "application/json"}
        return await send_request(
            self.url, "/v1/chat/completions", method="POST", headers=sent_headers, body=body
        )

    async def ends(self, *signals: Signals) -> int:
        """Send signals and return the exit code."""
        for number in signals:
            self.process.send_signal(number)
        with anyio.fail_after(TIMEOUT_SECONDS):
            return await self.process.wait()

    @property
    def lines(self) -> list[dict[str, object]]:
        """Log lines so far, parsed."""
        return [json.loads(line) for line in self.log.decode("ascii").splitlines()]


@asynccontextmanager
async def server_process(
    home: Path, *words: str, **variables: str
) -> AsyncGenerator[ServerProcess]:
    """Start a server and wait until it listens; it is killed after the block."""
    project = home / "project"
    project.mkdir(exist_ok=True, parents=True)
    env = {
        **{name: os.environ[name] for name in _KEPT if name in os.environ},
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "APEXBRIDGE_INDEX__EMBEDDER": "hash",
        **variables,
    }
    command = [sys.executable, "-m", "apexbridge", "serve", "--port", "0", "--json", *words]
    process = await anyio.open_process(command, cwd=project, env=env, start_new_session=True)
    log = bytearray()
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_collect, process, log)
            announced = await _first_line(process, log)
            data = home / ".local/share/apexbridge"
            key = (data / "first-key").read_text(encoding="ascii").strip()
            url, _, token = announced["console"].partition("/console/#token=")
            yield ServerProcess(url=url, token=token, key=key, data=data, process=process, log=log)
            if process.returncode is None:
                process.kill()
    finally:
        if process.returncode is None:
            process.kill()
        with anyio.CancelScope(shield=True):
            await process.aclose()


async def _first_line(process: Process, log: bytearray) -> dict[str, str]:
    assert process.stdout is not None
    line = b""
    with anyio.move_on_after(TIMEOUT_SECONDS):
        while b"\n" not in line:
            try:
                line += await process.stdout.receive()
            except anyio.EndOfStream:
                break
    assert b"\n" in line, log.decode()
    return json.loads(line)["data"]


async def _collect(process: Process, log: bytearray) -> None:
    assert process.stderr is not None
    async for piece in process.stderr:
        log += piece
