"""A server of skills in a thread of its own, for tests that use clients which block."""

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
from apexbridge.server.skills import routes, well_known
from apexbridge.settings import Config, load
from apexbridge.testing import skill_md
from tests.server.live_server import Serving, serving

_SKILLS = (*routes.ROUTES, *well_known.ROUTES)
ROUTES: tuple[Route, ...] = (*_SKILLS, openapi_route(_SKILLS))
FORM_TYPE = "application/octet-stream"


def loaded_in(place: Path, **flags: Mapping[str, object]) -> Config:
    """Settings of a project in an empty folder, with an embedder that costs nothing."""
    for name in ("project", "home"):
        (place / name).mkdir(exist_ok=True)
    environment = {
        "HOME": str(place / "home"),
        "APEXBRIDGE_DATA_DIR": str(place / "data"),
        "APEXBRIDGE_INDEX__EMBEDDER": "hash",
    }
    return load(project=place / "project", environment=environment, flags=flags)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A running server, and a client that may do everything."""

    serving: Serving
    portal: BlockingPortal
    client: httpx2.Client

    @property
    def url(self) -> str:
        return self.serving.url

    @property
    def runtime(self) -> Runtime:
        return self.serving.house.runtime

    @property
    def data(self) -> Path:
        return self.runtime.config.data

    def get(self, path: str, **query: str | int) -> httpx2.Response:
        return self.client.get(path, params=query)

    def post(self, path: str, body: object = None, **query: str | int) -> httpx2.Response:
        return self.client.post(path, json=body, params=query)

    def send(self, path: str, *files: tuple[str, bytes], **query: str | int) -> httpx2.Response:
        """Send files as a form; one without a folder goes as `files`, others as `files[]`."""
        field = "files" if len(files) == 1 else "files[]"
        parts = [(field, (name, data, FORM_TYPE)) for name, data in files]
        return self.client.post(path, files=parts, params=query)

    def install(self, name: str, description: str = "Grows tomatoes.", **files: bytes) -> Any:
        """Install a skill; it must go well."""
        reply = self.send("/v1/skills", ("a.zip", zipped(name, description, files)))
        assert reply.status_code == 201, reply.text
        return reply.json()


@contextmanager
def served(loaded: Config, routes: Sequence[Route] = ROUTES) -> Generator[Served]:
    """Serve for the length of the block."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(serving(loaded, routes)) as running,
        httpx2.Client(base_url=running.url, headers=running.headers, timeout=60) as client,
    ):
        yield Served(serving=running, portal=portal, client=client)


def zipped(
    name: str,
    description: str = "Grows tomatoes.",
    files: Mapping[str, bytes] | None = None,
    **fields: object,
) -> bytes:
    """A skill as the bytes of a zip."""
    return zip_of(
        {
            f"{name}/SKILL.md": skill_md(name, description, **fields),  # pyright: ignore[reportArgumentType]
            **{f"{name}/{path}": data for path, data in (files or {}).items()},
        }
    )


def zip_of(entries: Mapping[str, bytes]) -> bytes:
    """A zip of exactly these entries."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in entries.items():
            member = zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0))
            member.external_attr = (0o100755 if "/scripts/" in path else 0o100644) << 16
            archive.writestr(member, data)
    return buffer.getvalue()


def names_in(data: bytes) -> list[str]:
    """The names in a zip."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return sorted(archive.namelist())


def code_of(reply: httpx2.Response) -> tuple[int, str]:
    """The status of a refusal, and its code."""
    return reply.status_code, reply.json()["error"]["code"]


def status_of(house: Served, method: str, path: str, body: bytes = b"") -> int:
    """Ask for an address as it is written: no client mends it on the way."""
    host, _, port = house.url.removeprefix("http://").partition(":")
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n"
    head += f"Authorization: Bearer {house.serving.key}\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    with socket.create_connection((host, int(port)), timeout=30) as client:
        client.sendall(f"{head}\r\n".encode() + body)
        with client.makefile("rb") as answer:
            return int(answer.readline().split()[1])


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait for something, and not for ever."""

    async def watch() -> None:
        with anyio.fail_after(30):
            while not is_so():
                await anyio.sleep(0.02)

    anyio.run(watch)
