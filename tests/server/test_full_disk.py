"""Full disk: what cannot be written is answered with 507, and recorded as a whole or not at all."""

import contextlib
import subprocess
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path

import httpx2
import pytest

from tests.server.chat_server import ChatServer, chat_server, text_reply
from tests.server.skills_server import (
    FORM_TYPE,
    ROUTES,
    SkillsServer,
    error_code,
    make_config,
    skill_zip,
    skills_server,
)

pytestmark = pytest.mark.unmeasured

FULL = (507, "storage_failed")
_FILLER = "filler"


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    """A file system of a few megabytes."""
    place = tmp_path_factory.mktemp("disk")
    mount = ("mount", "-t", "tmpfs", "-o", "size=4m", "none", str(place))
    try:
        subprocess.run(mount, check=True, capture_output=True, timeout=20)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("only root can mount a small file system")
    yield place
    unmount = ("umount", "--lazy", str(place))
    subprocess.run(unmount, check=True, timeout=20)


def _fill(disk: Path) -> None:
    with contextlib.suppress(OSError), (disk / _FILLER).open("ab", buffering=0) as file:
        while True:
            file.write(bytes(4_096))


@contextlib.contextmanager
def _full(disk: Path) -> Generator[None]:
    try:
        _fill(disk)
        yield
    finally:
        (disk / _FILLER).unlink()


@pytest.fixture(scope="module")
def server(disk: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[SkillsServer]:
    place = tmp_path_factory.mktemp("full")
    (place / "data").symlink_to(disk)
    with skills_server(make_config(place), ROUTES) as running:
        running.install("there")
        yield running


Request = Callable[[httpx2.Client], httpx2.Response]


def _upload(path: str, name: str) -> Request:
    data = skill_zip(name, "Grows tomatoes and more.", {"a.bin": bytes(range(256)) * 400})
    return lambda client: client.post(path, files={"files": ("a.zip", data, FORM_TYPE)})


REQUESTS: dict[str, Request] = {
    "install": _upload("/v1/skills", "new"),
    "inspect": _upload("/v1/skills/inspect", "new"),
    "version": _upload("/v1/skills/there/versions", "there"),
    "edit": lambda client: client.patch("/v1/skills/there", json={"description": "Draws " * 99}),
    "disable": lambda client: client.post("/v1/skills/there/disable"),
    "pin": lambda client: client.post("/v1/skills/there/pin"),
    "delete": lambda client: client.delete("/v1/skills/there"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_what_cannot_be_written_is_507(server: SkillsServer, disk: Path, name: str) -> None:
    before = server.get("/v1/skills").json()
    with _full(disk):
        reply = REQUESTS[name](server.client)
        assert error_code(reply) == FULL, reply.text
        assert str(disk) not in reply.text
        assert str(server.data) not in reply.text
    assert server.get("/v1/skills").json() == before


@pytest.fixture
async def chat(disk: Path, tmp_path: Path) -> AsyncGenerator[ChatServer]:
    async with chat_server(tmp_path, data_dir=str(disk / "chat")) as running:  # pyright: ignore[reportArgumentType]
        yield running


@pytest.mark.anyio
async def test_a_turn_that_was_not_recorded_is_not_in_the_session(
    chat: ChatServer, disk: Path
) -> None:
    headers = {"X-ApexBridge-Session": "kept"}
    assert (await chat.post("I am Ann.", text_reply("Hello."), headers=headers)).status_code == 200
    with _full(disk):
        reply = await chat.post("Lost " * 20_000, text_reply("No."), headers=headers)
        assert (reply.status_code, reply.json()["error"]["code"]) == FULL
    reply = await chat.post("Who am I?", text_reply("Ann."), headers=headers)
    assert reply.status_code == 200
    assert [text.splitlines()[-1] for text in chat.said("user")] == ["I am Ann.", "Who am I?"]
