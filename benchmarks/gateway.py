"""Gateway overhead: compared with no gateway, a minimal one, and LiteLLM's proxy."""

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
from benchmarks.gateway_load import CHUNKS, LoadResult, load

SECONDS = 4.0
ROUNDS = 3
SKILLS = 100
TEXTS = 400
"""Different requests: more than the result cache holds, fewer than the embedding cache."""
NEW = 15_000
"""Requests never sent before: more than a round can serve."""
_START_SECONDS = 90
_WORDS = [
    "invoice", "chart", "calendar", "poem", "budget", "recipe",
    "garden", "router", "tax", "photo", "letter", "map",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """Gateway in front of the model server."""

    name: str
    port: int
    process: int
    """Process id, for the CPU time of all its threads."""
    key: str = ""
    model: str = "bench"
    is_slow: bool = False

    def requests(self, texts: Sequence[str], *, stream: bool) -> list[bytes]:
        """Encode HTTP requests."""
        return [self._request(text, stream=stream) for text in texts]

    def cpu_seconds(self) -> float:
        """CPU time so far, of all cores."""
        times = Path(f"/proc/{self.process}/stat").read_text(encoding="ascii", errors="replace")
        user, system = times.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def memory_mb(self) -> float:
        """Proportional set size (PSS) in MB: shared pages count in proportion.

        Children count too: LiteLLM's command starts its server as one.
        """
        return sum(_pss_kb(process) for process in _descendants(self.process)) / 1_024

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
        gateways = [Gateway(name="direct", port=upstream, process=model), _minimal(stack, upstream)]
        gateways.append(_apexbridge(stack, upstream, folder))
        if litellm is not None:
            gateways.append(_litellm(stack, upstream, folder, litellm))
        _print_memory(gateways)
        uvloop.run(_compare(gateways))


async def _compare(gateways: Sequence[Gateway]) -> None:
    varied, numbers = _texts(range(TEXTS)), itertools.count(TEXTS)
    print(f"\nChat completions, best of {ROUNDS} rounds of {SECONDS:.0f} s each")
    print(f"(ApexBridge: API key checked, {SKILLS} and the bundled skills searched and listed)")
    print(f"{'':30}{'requests/s':>30}{'ms at 1':>27}{'streams/s':>12}{'CPU ms at 16':>22}")
    print(
        f"{'':30}{'at 1':>10}{'at 16':>10}{'at 64':>10}{'min':>9}{'median':>9}{'added':>9}"
        f"{'at 16':>12}{'request':>11}{'stream':>11}"
    )
    kinds: tuple[tuple[str, Callable[[], list[str]]], ...] = (
        ("same request repeated: results cached", lambda: varied[:1]),
        ("different requests: embeddings cached", lambda: varied),
        ("new requests", lambda: _texts(itertools.islice(numbers, NEW))),
    )
    for label, texts in kinds:
        print(label)
        best = await _rounds(gateways, texts)
        for gateway in gateways:
            _print(gateway, best)
    _print_memory(gateways, "after these requests")
    print(f"streams have {CHUNKS} chunks; failures are excluded from the rates and marked '!'")


def _texts(numbers: Iterable[int]) -> list[str]:
    return [f"Please make a {_WORDS[n % 12]} number {n} for me" for n in numbers]


def _print(gateway: Gateway, best: Mapping[tuple[str, int, bool], LoadResult]) -> None:
    seen = [best[gateway.name, clients, False] for clients in (1, 16, 64)]
    streams = best[gateway.name, 16, True]
    added = seen[0].median_ms - best["direct", 1, False].median_ms
    rates = "".join(f"{one.rate:9,.0f}{'!' if one.failures else ' '}" for one in seen)
    print(
        f"  {gateway.name:28}{rates}{seen[0].min_ms:9.2f}{seen[0].median_ms:9.2f}{added:9.2f}"
        f"{streams.rate:11,.0f}{'!' if streams.failures else ' '}"
        f"{seen[1].cpu_ms:11.3f}{streams.cpu_ms:11.3f}"
    )


def _print_memory(gateways: Sequence[Gateway], when: str = "when ready") -> None:
    told = (f"{gateway.name} {gateway.memory_mb():.0f}" for gateway in gateways)
    print(f"memory {when} (PSS, MB): {', '.join(told)}")


def _pss_kb(process: int) -> int:
    lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("Pss:")))


def _descendants(process: int) -> list[int]:
    threads = Path(f"/proc/{process}/task").iterdir()
    children = [number for path in threads for number in (path / "children").read_text().split()]
    return [process, *(one for child in children for one in _descendants(int(child)))]


async def _rounds(
    gateways: Sequence[Gateway], texts: Callable[[], list[str]]
) -> dict[tuple[str, int, bool], LoadResult]:
    """Measure every gateway with each number of clients in turn; keep the best round."""
    best = dict[tuple[str, int, bool], LoadResult]()
    for _ in range(ROUNDS):
        for clients, stream in ((1, False), (16, False), (64, False), (16, True)):
            for gateway in gateways:
                asked, start = gateway.requests(texts(), stream=stream), gateway.cpu_seconds()
                seen = await load(gateway.port, asked, clients, SECONDS)
                used = (gateway.cpu_seconds() - start) * 1_000
                seen = replace(seen, cpu_ms=used / max(1, seen.answers))
                before = best.get((gateway.name, clients, stream))
                if before is None or seen.rate > before.rate:
                    best[gateway.name, clients, stream] = seen
    return best


def _minimal(stack: ExitStack, upstream: int) -> Gateway:
    port, address = free_port(), f"http://127.0.0.1:{upstream}/v1"
    process = stack.enter_context(
        _process([sys.executable, "-m", "benchmarks.gateway_minimal", str(port), address])
    )
    wait_for(f"http://127.0.0.1:{port}/nothing")
    return Gateway(name="minimal starlette + aiohttp", port=port, process=process)


def _apexbridge(stack: ExitStack, upstream: int, folder: Path) -> Gateway:
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
        # The server has another working directory: relative entries would import another version.
        "PYTHONPATH": os.pathsep.join(str(Path(entry).resolve()) for entry in _python_path()),
    }
    program = [sys.executable, "-m", "apexbridge"]
    made = subprocess.run(
        [*program, "keys", "create", "bench", "--scope", "chat", "--json"],
        env={**os.environ, **environment}, cwd=project, capture_output=True, check=True,
    )  # fmt: skip
    key: str = json.loads(made.stdout)["data"]["key"]
    process = stack.enter_context(_process([*program, "serve"], environment, project))
    wait_for(f"http://127.0.0.1:{port}/readyz")
    return Gateway(name="ApexBridge", port=port, process=process, key=key)


def _python_path() -> list[str]:
    return [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]


def _litellm(stack: ExitStack, upstream: int, folder: Path, environment: Path) -> Gateway:
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
    return Gateway(name="LiteLLM's proxy", port=port, process=process, key=key)


@contextmanager
def _process(
    command: Sequence[str], environment: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Generator[int]:
    """Child process for the duration of the block; yields its id."""
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
    """Wait until a server responds, with any status but 503."""
    end = time.monotonic() + _START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(address, timeout=5):  # noqa: S310  # a loopback URL
                return
        except urllib.error.HTTPError as error:
            if error.code != 503:  # not ready yet
                return
        except OSError:
            pass
        if time.monotonic() > end:
            raise SystemExit(f"no response from {address}")
        time.sleep(0.1)


def free_port() -> int:
    """Return a free TCP port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]
