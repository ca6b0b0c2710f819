"""What the HTTP door adds to a model: beside no door, the thinnest one, and LiteLLM's proxy."""

import itertools
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import uvloop

from apexbridge.testing import make_skill
from benchmarks.gateway_load import CHUNKS, Seen, load

SECONDS = 4.0
ROUNDS = 3
SKILLS = 100
TEXTS = 400
"""Different requests: more than results are remembered of, fewer than vectors are."""
NEW = 15_000
"""Requests that nobody has asked before: more than are answered in a round."""
_START_SECONDS = 90
_WORDS = [
    "invoice", "chart", "calendar", "poem", "budget", "recipe",
    "garden", "router", "tax", "photo", "letter", "map",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """A way to the model."""

    name: str
    port: int
    process: int
    """Its number; the time that its threads take is read from the system."""
    key: str = ""
    model: str = "bench"
    is_slow: bool = False

    def requests(self, texts: Sequence[str], *, stream: bool) -> list[bytes]:
        """The requests as they go over the wire."""
        return [self._request(text, stream=stream) for text in texts]

    def cpu_seconds(self) -> float:
        """How long it was at work so far, on all cores together."""
        times = Path(f"/proc/{self.process}/stat").read_text(encoding="ascii", errors="replace")
        user, system = times.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def _request(self, text: str, *, stream: bool) -> bytes:
        asked = {"model": self.model, "messages": [{"role": "user", "content": text}]}
        body = json.dumps({**asked, "stream": True} if stream else asked).encode()
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\n"
            f"Host: 127.0.0.1:{self.port}\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {self.key or 'none'}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


def main(litellm: Path | None = None) -> None:
    """Print the tables; `litellm` is a Python environment that has its proxy."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        upstream = free_port()
        model = stack.enter_context(
            _process([sys.executable, "-m", "benchmarks.gateway_load", "serve", str(upstream)])
        )
        wait_for(f"http://127.0.0.1:{upstream}/v1/models")
        doors = [Door(name="direct", port=upstream, process=model), _bare(stack, upstream)]
        doors.append(_ours(stack, upstream, folder))
        if litellm is not None:
            doors.append(_litellm(stack, upstream, folder, litellm))
        uvloop.run(_compare(doors))


async def _compare(doors: Sequence[Door]) -> None:
    varied, numbers = _texts(range(TEXTS)), itertools.count(TEXTS)
    print(f"\nChat through a door, {ROUNDS} rounds of {SECONDS:.0f} s in turn, best round of each")
    print(f"(ours: key checked, {SKILLS} skills and the bundled ones searched and listed)")
    print(f"{'':30}{'requests/s':>30}{'ms at 1':>18}{'streams/s':>12}{'CPU ms at 16':>22}")
    print(
        f"{'':30}{'at 1':>10}{'at 16':>10}{'at 64':>10}{'least':>9}{'median':>9}{'at 16':>12}"
        f"{'request':>11}{'stream':>11}"
    )
    ours = [door for door in doors if door.name in {"direct", "ours"}]
    kinds: tuple[tuple[str, Sequence[Door], Callable[[], list[str]]], ...] = (
        ("one request, its result remembered", doors, lambda: varied[:1]),
        ("different requests, their vectors remembered", doors, lambda: varied),
        ("requests asked for the first time", ours, lambda: _texts(itertools.islice(numbers, NEW))),
    )
    for label, compared, texts in kinds:
        print(label)
        best = await _rounds(compared, texts)
        for door in compared:
            _print(door, best)
    print(f"streams have {CHUNKS} pieces; failures are left out of the rates and marked '!'")


def _texts(numbers: Iterable[int]) -> list[str]:
    return [f"Please make a {_WORDS[n % 12]} number {n} for me" for n in numbers]


def _print(door: Door, best: Mapping[tuple[str, int, bool], Seen]) -> None:
    seen = [best[door.name, clients, False] for clients in (1, 16, 64)]
    streams = best[door.name, 16, True]
    rates = "".join(f"{one.rate:9,.0f}{'!' if one.failures else ' '}" for one in seen)
    print(
        f"  {door.name:28}{rates}{seen[0].least_ms:9.2f}{seen[0].median_ms:9.2f}"
        f"{streams.rate:11,.0f}{'!' if streams.failures else ' '}"
        f"{seen[1].cpu_ms:11.3f}{streams.cpu_ms:11.3f}"
    )


async def _rounds(
    doors: Sequence[Door], texts: Callable[[], list[str]]
) -> dict[tuple[str, int, bool], Seen]:
    """Every door with each number of clients, in turn; of each the round that went best."""
    best = dict[tuple[str, int, bool], Seen]()
    for _ in range(ROUNDS):
        for clients, stream in ((1, False), (16, False), (64, False), (16, True)):
            for door in doors:
                asked, start = door.requests(texts(), stream=stream), door.cpu_seconds()
                seen = await load(door.port, asked, clients, SECONDS)
                used = (door.cpu_seconds() - start) * 1_000
                seen = replace(seen, cpu_ms=used / max(1, seen.answers))
                before = best.get((door.name, clients, stream))
                if before is None or seen.rate > before.rate:
                    best[door.name, clients, stream] = seen
    return best


def _bare(stack: ExitStack, upstream: int) -> Door:
    port, address = free_port(), f"http://127.0.0.1:{upstream}/v1"
    process = stack.enter_context(
        _process([sys.executable, "-m", "benchmarks.gateway_minimal", str(port), address])
    )
    wait_for(f"http://127.0.0.1:{port}/nothing")
    return Door(name="bare starlette + aiohttp", port=port, process=process)


def _ours(stack: ExitStack, upstream: int, folder: Path) -> Door:
    project = folder / "project"
    for number in range(SKILLS):
        word = _WORDS[number % len(_WORDS)]
        make_skill(
            project / ".apexbridge" / "skills",
            f"{word}-{number}",
            description=f"Makes a {word} of kind {number}. Use when a {word} is wanted.",
        )
    port = free_port()
    environment = {
        "HOME": str(folder),
        "APEXBRIDGE_MODEL__BASE_URL": f"http://127.0.0.1:{upstream}/v1",
        "APEXBRIDGE_MODEL__NAME": "bench",
        "APEXBRIDGE_MODEL__TOOLS": "native",
        "APEXBRIDGE_SERVER__PORT": str(port),
    }
    program = [sys.executable, "-m", "apexbridge"]
    made = subprocess.run(
        [*program, "keys", "create", "bench", "--scope", "chat", "--json"],
        env={**os.environ, **environment}, cwd=project, capture_output=True, check=True,
    )  # fmt: skip
    key: str = json.loads(made.stdout)["data"]["key"]
    process = stack.enter_context(_process([*program, "serve"], environment, project))
    wait_for(f"http://127.0.0.1:{port}/readyz")
    return Door(name="ours", port=port, process=process, key=key)


def _litellm(stack: ExitStack, upstream: int, folder: Path, environment: Path) -> Door:
    port, key = free_port(), f"sk-{secrets.token_hex(8)}"
    parameters = {
        "model": "openai/bench", "api_base": f"http://127.0.0.1:{upstream}/v1", "api_key": "none",
    }  # fmt: skip
    config = {
        "model_list": [{"model_name": "bench", "litellm_params": parameters}],
        "general_settings": {"master_key": key},
    }
    path = folder / "litellm.yaml"
    path.write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML too
    program = environment / "bin" / "litellm"
    process = stack.enter_context(
        _process([str(program), "--config", str(path), "--port", str(port)])
    )
    wait_for(f"http://127.0.0.1:{port}/health/liveliness")
    return Door(name="LiteLLM's proxy", port=port, process=process, key=key)


@contextmanager
def _process(
    command: Sequence[str], environment: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Generator[int]:
    """Something that runs beside this, and ends with it; its number."""
    silent = subprocess.DEVNULL
    with subprocess.Popen(
        command, env={**os.environ, **(environment or {})}, cwd=cwd, stdout=silent, stderr=silent
    ) as process:
        try:
            yield process.pid
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def wait_for(address: str) -> None:
    """Come back when somebody answers there, whatever the answer."""
    end = time.monotonic() + _START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(address, timeout=5):  # noqa: S310  # one of ours
                return
        except urllib.error.HTTPError as error:
            if error.code != 503:  # that is a server which is not ready yet
                return
        except OSError:
            pass
        if time.monotonic() > end:
            raise SystemExit(f"nobody answers at {address}")
        time.sleep(0.1)


def free_port() -> int:
    """A port that nobody has."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]
