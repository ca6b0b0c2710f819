"""Cost of embedders: latency of a query, load time, memory and documents per second.

`python -m benchmarks.embedders NAME [FOLDER]` loads one of them in a separate process.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import anyio

from apexbridge.retrieval.base import Embedder
from apexbridge.retrieval.embedders.default import DefaultEmbedder
from apexbridge.retrieval.embedders.onnx import OnnxEmbedder
from apexbridge.retrieval.embedders.use import UseEmbedder
from apexbridge.retrieval.embedders.validation import embed_validated
from apexbridge.retrieval.reference_vectors import SKILL_TEXTS

ROUNDS = 60
LOADS = 5
STATM = Path("/proc/self/statm")
REQUESTS = {
    "short EN": "merge two csv files",
    "short ZH": "把两个表格合并成一个",
    "long": "I have to present quarterly numbers to the board on Monday, so put together about ten "
    "pages that I can project, with the revenue by region and a chart for each of the products. "
    "每个产品一张图，最后写一页结论。",
}
DOCUMENTS = [" ".join(SKILL_TEXTS[at : at + 4]) for at in range(len(SKILL_TEXTS) - 3)]
"""About as long as an indexed document, in both languages."""


def main(minilm: Path | None = None) -> None:
    """Print the table."""
    folders: dict[str, Path | None] = dict.fromkeys(("default", "use"))
    if minilm is not None:
        folders["MiniLM-L6"] = minilm
    print(f"\nEmbedders: one request (least / median of {ROUNDS} interleaved rounds, ms, checked),")
    print(f"loading with its libraries (least of {LOADS} processes), memory it adds, documents")
    names = "".join(f"{name:>16}" for name in REQUESTS)
    print(f"{'':12}{names}{'load s':>9}{'MB':>7}{'documents/s':>13}")
    anyio.run(_show, folders)
    if minilm is None:
        print("MiniLM-L6 is not measured: --minilm FOLDER has model.onnx and tokenizer.json")


async def _show(folders: Mapping[str, Path | None]) -> None:
    embedders = {name: _embedder(name, folder) for name, folder in folders.items()}
    for embedder in embedders.values():
        await embed_validated(embedder, [*REQUESTS.values(), *DOCUMENTS[:4]], kind="query")
    times = await _latencies(embedders)
    for name, embedder in embedders.items():
        start = time.perf_counter()
        await embed_validated(embedder, DOCUMENTS, kind="document")
        speed = len(DOCUMENTS) / (time.perf_counter() - start)
        loads = [await anyio.to_thread.run_sync(_load, name, folders[name]) for _ in range(LOADS)]
        told = "".join(f"{_told(times[name, request]):>16}" for request in REQUESTS)
        seconds, megabytes = min(load[0] for load in loads), min(load[1] for load in loads)
        print(f"{name:12}{told}{seconds:>9.2f}{megabytes:>7.0f}{speed:>13.0f}")


def _told(seconds: list[float]) -> str:
    return f"{min(seconds) * 1e3:.2f} / {statistics.median(seconds) * 1e3:.2f}"


async def _latencies(embedders: Mapping[str, Embedder]) -> dict[tuple[str, str], list[float]]:
    times = {(name, request): list[float]() for name in embedders for request in REQUESTS}
    for _ in range(ROUNDS):
        for (name, request), seconds in times.items():
            start = time.perf_counter()
            await embed_validated(embedders[name], [REQUESTS[request]], kind="query")
            seconds.append(time.perf_counter() - start)
    return times


def _embedder(name: str, folder: Path | None) -> Embedder:
    if folder is not None:
        return OnnxEmbedder(folder)
    if name == "use":
        return UseEmbedder()
    return DefaultEmbedder()


def _load(name: str, folder: Path | None) -> tuple[float, float]:
    """Measure load time and memory (seconds, megabytes) in a separate process."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.embedders",
        name,
        *([] if folder is None else [str(folder)]),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    seconds, megabytes = json.loads(done.stdout)
    return float(seconds), float(megabytes)


async def _load_here(name: str, folder: Path | None) -> None:
    before, start = _resident(), time.perf_counter()
    embedder = _embedder(name, folder)
    await embedder.embed([REQUESTS["short EN"]], kind="query")
    seconds = time.perf_counter() - start
    await embedder.embed(DOCUMENTS[:16], kind="document")
    print(json.dumps([seconds, _resident() - before]))


def _resident() -> float:
    """Return the resident set size in megabytes; NaN if unknown."""
    if not STATM.exists():
        return float("nan")
    pages = int(STATM.read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    anyio.run(_load_here, sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else None)
