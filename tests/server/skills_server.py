"""Server with the skills routes in a background thread, for blocking clients."""

import io
import socket
import zipfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2
from anyio.from_thread import BlockingPortal, start_blocking_portal

from apexbridge.runtime import Runtime
from apexbridge.server.openapi import openapi_route
from apexbridge.server.routing import Route
from apexbridge.server.skills import (
    dependencies,
    install,
    read,
    scripts,
    versions,
    well_known,
    write,
)
from apexbridge.settings import Config, load
from apexbridge.testing import skill_md
from tests.server.live_server import LiveServer, live_server

_MODULES = (dependencies, install, read, write, versions, scripts, well_known)
_SKILLS = tuple(route for module in _MODULES for route in module.router.routes)
ROUTES: tuple[Route, ...] = (*_SKILLS, openapi_route(_SKILLS))
FORM_TYPE = "application/octet-stream"


def make_config(place: Path, **flags: Mapping[str, object]) -> Config:
    """Load the settings of an isolated project, with the hash embedder."""
    for name in ("project", "home"):
        (place / name).mkdir(exist_ok=True)
    environment = {
        "HOME": str(place / "home"),
        "APEXBRIDGE_DATA_DIR": str(place / "data"),
        "APEXBRIDGE_INDEX__EMBEDDER": "hash",
        "APEXBRIDGE_SANDBOX__SECRET_KEY_FILE": str(place / "secrets.key"),  # no keyring of ours
    }
    return load(project=place / "project", environment=environment, flags=flags)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillsServer:
    """Running server, and a client with all scopes."""

    serving: LiveServer
    portal: BlockingPortal
    client: httpx2.Client

    @property
    def url(self) -> str:
        return self.serving.url

    @property
    def runtime(self) -> Runtime:
        return self.serving.state.runtime

    @property
    def data(self) -> Path:
        return self.runtime.config.data

    def get(self, path: str, **query: str | int) -> httpx2.Response:
        return self.client.get(path, params=query)

    def post(self, path: str, body: object = None, **query: str | int) -> httpx2.Response:
        return self.client.post(path, json=body, params=query)

    def send(self, path: str, *files: tuple[str, bytes], **query: str | int) -> httpx2.Response:
        """Upload files as a multipart form: one as `files`, several as `files[]`."""
        field = "files" if len(files) == 1 else "files[]"
        parts = [(field, (name, data, FORM_TYPE)) for name, data in files]
        return self.client.post(path, files=parts, params=query)

    def install(self, name: str, description: str = "Grows tomatoes.", **files: bytes) -> Any:
        """Install a skill; it must succeed."""
        reply = self.send("/v1/skills", ("a.zip", skill_zip(name, description, files)))
        assert reply.status_code == 201, reply.text
        return reply.json()


@contextmanager
def skills_server(loaded: Config, routes: Sequence[Route] = ROUTES) -> Generator[SkillsServer]:
    """Serve for the duration of the block."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(live_server(loaded, routes)) as running,
        httpx2.Client(base_url=running.url, headers=running.headers, timeout=60) as client,
    ):
        yield SkillsServer(serving=running, portal=portal, client=client)


def skill_zip(
    name: str,
    description: str = "Grows tomatoes.",
    files: Mapping[str, bytes] | None = None,
    **fields: object,
) -> bytes:
    """Zip archive of a skill."""
    return make_zip(
        {
            f"{name}/SKILL.md": skill_md(name, description, **fields),  # pyright: ignore[reportArgumentType]
            **{f"{name}/{path}": data for path, data in (files or {}).items()},
        }
    )


def make_zip(entries: Mapping[str, bytes]) -> bytes:
    """Zip archive with exactly these entries."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in entries.items():
            member = zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0))
            member.external_attr = (0o100755 if "/scripts/" in path else 0o100644) << 16
            archive.writestr(member, data)
    return buffer.getvalue()


def zip_names(data: bytes) -> list[str]:
    """Names of the entries of a zip archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return sorted(archive.namelist())


def error_code(reply: httpx2.Response) -> tuple[int, str]:
    """HTTP status and error code of a response."""
    return reply.status_code, reply.json()["error"]["code"]


def raw_status(server: SkillsServer, method: str, path: str, body: bytes = b"") -> int:
    """Request a path without the normalization that HTTP clients do."""
    host, _, port = server.url.removeprefix("http://").partition(":")
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n"
    head += f"Authorization: Bearer {server.serving.key}\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    with socket.create_connection((host, int(port)), timeout=30) as client:
        client.sendall(f"{head}\r\n".encode() + body)
        with client.makefile("rb") as answer:
            return int(answer.readline().split()[1])


def wait_until(is_so: Callable[[], bool]) -> None:
    """Poll a condition, with a timeout."""

    async def watch() -> None:
        with anyio.fail_after(30):
            while not is_so():
                await anyio.sleep(0.02)

    anyio.run(watch)
