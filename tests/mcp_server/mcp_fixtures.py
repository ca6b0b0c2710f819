"""MCP server over streamable HTTP in this process, or over stdio as a child process."""

import os
import socket
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2
import uvicorn
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from apexbridge.api_keys import SCOPES, ApiKeyStore, Scope
from apexbridge.mcp_server.transports import McpApp, mcp_mount
from apexbridge.runtime import Runtime
from apexbridge.server.app import build_app
from apexbridge.server.approvals import ApprovalQueue
from apexbridge.server.routing import AppState
from apexbridge.settings import load

GREET = """\
---
name: greet
description: Greets somebody politely
arguments: [who, how]
argument-hint: <who> [how]
allowed-tools: Read Bash(git:*)
metadata:
  level: "3"
---
Greet $who, $how.
"""
SLOW = "import time\nprint('begun', flush=True)\ntime.sleep(120)\n"
_COVERED = ("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG", "PATH")


def add_skill(
    home: Path, name: str, text: str, files: Mapping[str, str | bytes] | None = None
) -> Path:
    """Add a user skill to a home folder; files in `scripts` are executable."""
    root = home / ".claude" / "skills" / name
    for path, data in {"SKILL.md": text, **(files or {})}.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data.encode() if isinstance(data, str) else data)
        if path.startswith("scripts/"):
            target.chmod(0o755)
    return root


def skill_text(
    name: str, description: str = "Does a thing", body: str = "Do it.", more: str = ""
) -> str:
    """Text of a SKILL.md."""
    return f"---\nname: {name}\ndescription: {description}\n{more}---\n{body}\n"


def add_sample_skills(home: Path) -> None:
    """Add the two skills that most tests use."""
    add_skill(
        home,
        "greet",
        GREET,
        {
            "scripts/main.py": "import sys\nprint('hello', *sys.argv[1:], sys.stdin.read())\n",
            "references/按 语.md": "问候\r\n",
            "assets/dot.bin": b"\x00\xff\xfe",
        },
    )
    add_skill(home, "farewell", skill_text("farewell", "Says goodbye in the evening"))


def is_running(script: str) -> bool:
    """Return whether a process runs a script; idle warm sandboxes do not count."""
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if place.read_bytes().endswith(f"/{script}\0".encode()):
                return True
        except OSError:
            continue
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class McpEndpoint:
    """MCP endpoint over streamable HTTP."""

    url: str
    runtime: Runtime
    keys: ApiKeyStore
    app: McpApp

    def key(self, *scopes: Scope) -> str:
        """Create an API key for these scopes, or for all."""
        return self.keys.create("test", scopes or SCOPES)[0]

    @asynccontextmanager
    async def client(self, *scopes: Scope, **more: Any) -> AsyncGenerator[Client]:
        """Official MCP client with a new API key."""
        headers = {"Authorization": f"Bearer {self.key(*scopes)}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=30) as http,
            Client(
                streamable_http_client(self.url, http_client=http), cache=None, **more
            ) as client,
        ):
            yield client


@asynccontextmanager
async def mcp_endpoint(
    home: Path, *, page_size: int = 50, **settings: Any
) -> AsyncGenerator[McpEndpoint]:
    """MCP endpoint behind the server's middleware, on a loopback socket."""
    project = home / "project"
    project.mkdir(exist_ok=True)
    environment = {"HOME": str(home), "APEXBRIDGE_INDEX__EMBEDDER": "hash"}
    loaded = load(project=project, environment=environment, flags=settings)
    async with (
        Runtime.open(loaded) as runtime,
        mcp_mount(runtime, loaded.settings.server, page_size=page_size) as app,
    ):
        keys = ApiKeyStore(loaded.data / "keys.json")
        state = AppState(
            runtime=runtime,
            keys=keys,
            approvals=ApprovalQueue(),
            settings=loaded.settings.server,
        )
        listener = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(
            build_app(state, (), {"/mcp": app}), log_config=None, lifespan="off"
        )
        server = uvicorn.Server(config)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server._serve, [listener])  # pyright: ignore[reportPrivateUsage]  # no signals
            with anyio.fail_after(10):
                while not server.started:
                    await anyio.sleep(0.01)
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
            yield McpEndpoint(url=url, runtime=runtime, keys=keys, app=app)
            server.should_exit = True


def stdio_parameters(home: Path, **variables: str) -> StdioServerParameters:
    """Parameters to start the MCP server as a child process over stdio."""
    project = home / "project"
    project.mkdir(exist_ok=True)
    kept = {name: os.environ[name] for name in _COVERED if name in os.environ}
    env = {**kept, "HOME": str(home), "APEXBRIDGE_INDEX__EMBEDDER": "hash", **variables}
    return StdioServerParameters(
        command=sys.executable, args=["-m", "apexbridge", "mcp"], env=env, cwd=str(project)
    )
