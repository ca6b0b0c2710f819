"""MCP server processes for tests, and the folders they serve."""

import atexit
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from apexbridge.sources.mcp.source import McpSource, ServerAddress

HERE = Path(__file__).parent
SECONDS = 30


class Offer:
    """What a server has: prompts and lies in `offer.json`, skills in `skills/`."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.say()

    def say(self, **words: object) -> None:
        (self.place / "offer.json").write_text(json.dumps(words), encoding="utf-8")

    def skills(self, skills: Mapping[str, Mapping[str, bytes]]) -> None:
        shutil.rmtree(self.place / "skills", ignore_errors=True)
        (self.place / "skills").mkdir()
        for folder, files in skills.items():
            for name, data in files.items():
                path = self.place / "skills" / folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)

    @property
    def pids(self) -> list[int]:
        """Every process that ever served this."""
        pids = self.place / "pids"
        text = pids.read_text(encoding="utf-8") if pids.exists() else ""
        return [int(line) for line in text.split()]

    def as_process(self, **env: str) -> ServerAddress:
        return _address("sdk_server.py", str(self.place), seconds=SECONDS, env=env)


def faulty(kind: str, place: Path, *, seconds: float = SECONDS, **env: str) -> ServerAddress:
    """A server that misbehaves in its own way."""
    return _address("faulty_server.py", kind, str(place), seconds=seconds, env=env)


def _address(script: str, *args: str, seconds: float, env: Mapping[str, str]) -> ServerAddress:
    return ServerAddress(
        command=sys.executable, args=(str(HERE / script), *args), env=env, seconds=seconds
    )


@contextmanager
def serve_http(offer: Offer, port: int = 0) -> Generator[str]:
    """Serve over HTTP in a child process that never outlives us; yield the URL."""
    argv = [sys.executable, str(HERE / "sdk_server.py"), str(offer.place), str(port)]
    with subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        finally:
            process.kill()


@functools.cache
def shared() -> tuple[Offer, str]:
    """One server over HTTP for all tests of this process; starting one takes its time."""
    kept = ExitStack()
    atexit.register(kept.close)
    place = Path(tempfile.mkdtemp())
    kept.callback(shutil.rmtree, place, ignore_errors=True)
    offer = Offer(place)
    offer.say(prompts=[])
    offer.skills({})
    return offer, kept.enter_context(serve_http(offer))


def mcp_over_http(skills: Mapping[str, Mapping[str, bytes]]) -> McpSource:
    """The shared server with these skills and nothing else."""
    offer, url = shared()
    offer.say(prompts=[])
    offer.skills(skills)
    return McpSource("shared", ServerAddress(url=url, seconds=SECONDS))


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
