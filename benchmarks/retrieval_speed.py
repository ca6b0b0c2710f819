"""Search latency and memory, compared with the bare matrix product and with peers."""

import gc
import importlib.util
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import anyio
import numpy as np
from numpy.typing import NDArray

from apexbridge.retrieval.base import Embedder, IndexEntry, Matrix, TextKind
from apexbridge.retrieval.embedders.default import DIMENSIONS, DefaultEmbedder
from apexbridge.retrieval.index import SkillIndex
from apexbridge.retrieval.stores.memory import MemoryStore
from apexbridge.retrieval.stores.sqlite import SqliteStore
from apexbridge.retrieval.thread_control import single_threaded_blas
from apexbridge.retrieval.tokenizer import term_hash, tokenize

SIZES = (1_000, 10_000, 100_000)
ROUNDS = 12
REQUESTS = Path(__file__).parent / "requests" / "short.txt"
ASKED = 12
LIMIT = 5
WORDS_EACH = 40
GOALS = """goals: the vector part at most 1.3 times the product, a whole search at most 2.5 ms at
10,000, memory at most 1.5 times the matrix"""
PRODUCT = "numpy product, one thread"
_VOCABULARY = 8_000
_COMMON = 30
"""Words so frequent that no query is built from them."""
_BATCH = 5_000
_PEER_SECONDS = 600

# Runs in another interpreter that has chromadb, and answers each line with its times.
_CHROMA = """
import json, sys, time
try:
    import chromadb, numpy
except ImportError:
    sys.exit(3)
matrix, queries, limit = numpy.load(sys.argv[1]), numpy.load(sys.argv[2]), int(sys.argv[3])
client = chromadb.EphemeralClient(chromadb.Settings(anonymized_telemetry=False))
skills = client.create_collection("skills", metadata={"hnsw:space": "cosine"})
for first in range(0, len(matrix), 5_000):
    part = matrix[first : first + 5_000]
    skills.add(ids=[str(first + row) for row in range(len(part))], embeddings=part)
print(chromadb.__version__, flush=True)
for _ in sys.stdin:
    times = []
    skills.query(query_embeddings=queries[:1], n_results=limit, include=["distances"])
    for query in queries:
        start = time.perf_counter()
        skills.query(query_embeddings=query[None], n_results=limit, include=["distances"])
        times.append(time.perf_counter() - start)
    print(json.dumps(times), flush=True)
"""

Subject = Callable[[], Awaitable[list[float]]]
"""Benchmark subject: runs every query once and returns the seconds of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """Generated skills, and queries with words from their texts."""

    matrix: Matrix
    texts: list[str]
    terms: list[NDArray[np.uint32]]
    counts: list[NDArray[np.uint8]]
    requests: list[str]

    def entries(self, first: int, end: int) -> list[IndexEntry]:
        """Return index entries with one vector each."""
        return [
            IndexEntry(
                name=f"skill-{row}",
                fingerprint=f"{row:064x}",
                texts=(self.texts[row],),
                vectors=self.matrix[row : row + 1],
                terms=self.terms[row],
                counts=self.counts[row],
            )
            for row in range(first, min(end, len(self.texts)))
        ]


class StoredVectors:
    """Embedder with precomputed query vectors."""

    def __init__(self, vectors: Mapping[str, Matrix]) -> None:
        self._vectors = vectors
        self._chance = np.random.default_rng(5)

    @property
    def id(self) -> str:
        """Name that is no model's."""
        return "stored"

    @property
    def dimensions(self) -> int:
        """Size of the default embedder's vectors."""
        return DIMENSIONS

    async def embed(self, texts: Sequence[str], *, kind: TextKind) -> Matrix:
        """Return precomputed vectors for queries, and arbitrary ones for other texts."""
        if kind == "query" and self._vectors.keys() >= set(texts):
            return np.stack([self._vectors[text] for text in texts])
        return _unit(self._chance.standard_normal((len(texts), DIMENSIONS), np.float32))

    async def close(self) -> None:
        """Do nothing: there are no resources."""


def main(chroma: Path | None = None) -> None:
    """Print the tables; `chroma` is an interpreter with chromadb."""
    print(f"\nSearching, {ASKED} requests, {ROUNDS} interleaved rounds; each request's least time,")
    print(f"averaged; {GOALS}")
    for size in SIZES:
        library = generate(size)
        anyio.run(_speed, library, chroma)
    print(f"\nMemory after loading from SQLite, {WORDS_EACH} words and one vector a skill")
    print(f"{'':14}{'matrix MB':>11}{'growth MB':>11}{'ratio':>8}")
    for size in SIZES:
        _memory(generate(size))


def generate(size: int) -> Library:
    """Generate unit vectors, and texts with Zipf-distributed words."""
    chance = np.random.default_rng(7)
    matrix = _unit(chance.standard_normal((size, DIMENSIONS), np.float32))
    requests = REQUESTS.read_text(encoding="utf-8").splitlines()
    requests = requests[:: len(requests) // ASKED][:ASKED]
    asked = {word for request in requests for word in tokenize(request, kind="query")}
    rest = [f"word{number}" for number in range(_VOCABULARY - _COMMON - len(asked))] + sorted(asked)
    chance.shuffle(rest)
    vocabulary = [*(f"common{number}" for number in range(_COMMON)), *rest]
    hashes = np.array([term_hash(word) for word in vocabulary], np.uint32)
    likely = 1 / np.arange(1, len(vocabulary) + 1)
    chosen = chance.choice(len(vocabulary), (size, WORDS_EACH), p=likely / likely.sum())
    numbers: list[list[int]] = chosen.tolist()
    found = [np.unique(hashes[row], return_counts=True) for row in chosen]
    return Library(
        matrix=matrix,
        texts=[" ".join([vocabulary[word] for word in row]) for row in numbers],
        terms=[terms for terms, _ in found],
        counts=[counts.astype(np.uint8) for _, counts in found],
        requests=requests,
    )


def _unit(rows: Matrix) -> Matrix:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


async def _speed(library: Library, chroma: Path | None) -> None:
    own = DefaultEmbedder()
    vectors = await own.embed(library.requests, kind="query")
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        contenders = await _ours(library, own, vectors)
        contenders |= _lance(place / "lance", library, vectors)
        contenders |= _chroma(chroma, place, library.matrix, vectors, stack)
        times = await _rounds(contenders)
    product = _average(times[PRODUCT])
    print(f"\n{len(library.texts):<34,}{'min ms':>9}{'median ms':>11}{'x product':>11}")
    for name, rounds in times.items():
        least, median = _average(rounds), statistics.median(chain.from_iterable(rounds))
        print(f"{name:34}{least * 1e3:>9.3f}{median * 1e3:>11.3f}{least / product:>11.2f}")
    for peer in ("LanceDB", "Chroma"):
        if not any(name.startswith(peer) for name in times):
            print(f"{peer:34}  not installed, or not ready in {_PEER_SECONDS} s")


async def _rounds(contenders: dict[str, Subject]) -> dict[str, list[list[float]]]:
    times: dict[str, list[list[float]]] = {name: [] for name in contenders}
    for number in range(ROUNDS + 1):
        for name, run in contenders.items():
            spans = await run()
            if number:  # the first round warms up
                times[name].append(spans)
    return times


def _average(rounds: list[list[float]]) -> float:
    """Average over the queries of each one's minimum."""
    return statistics.fmean(min(spans) for spans in zip(*rounds, strict=True))


async def _ours(library: Library, own: DefaultEmbedder, vectors: Matrix) -> dict[str, Subject]:
    stored = StoredVectors(dict(zip(library.requests, vectors, strict=True)))
    embedding = await _index(library, own)
    given = SkillIndex(stored, MemoryStore())
    await given.refresh()
    memory = given.memory = embedding.memory
    matrix, numbers = library.matrix, range(len(library.requests))

    async def product() -> list[float]:
        with single_threaded_blas():
            return _each(lambda number: matrix @ vectors[number], numbers)

    async def vector_part() -> list[float]:
        return _each(lambda number: memory.nearest(vectors[number], LIMIT), numbers)

    return {
        PRODUCT: product,
        "ours, vector part": vector_part,
        "ours, search with a given vector": _searching(given, library.requests),
        "ours, whole search from text": _searching(embedding, library.requests),
        "embedding a request": _embedding(own, library.requests),
    }


def _each(work: Callable[[int], object], numbers: Sequence[int]) -> list[float]:
    spans = list[float]()
    work(numbers[0])  # refill the CPU caches after the previous subject
    for number in numbers:
        start = time.perf_counter()
        work(number)
        spans.append(time.perf_counter() - start)
    return spans


def _searching(index: SkillIndex, requests: list[str]) -> Subject:
    async def run() -> list[float]:
        spans = list[float]()
        fresh = SkillIndex(index.embedder, MemoryStore(index.embedder.id))  # with empty caches
        await fresh.refresh()
        fresh.memory = index.memory
        await fresh.search(requests[0], limit=LIMIT)
        for request in requests[1:]:
            start = time.perf_counter()
            results = await fresh.search(request, limit=LIMIT)
            spans.append(time.perf_counter() - start)
            if results.problem is not None:
                raise results.problem
        return spans

    return run


def _embedding(own: DefaultEmbedder, requests: list[str]) -> Subject:
    async def run() -> list[float]:
        spans = list[float]()
        await own.embed(requests[:1], kind="query")
        for request in requests:
            start = time.perf_counter()
            await own.embed([request], kind="query")
            spans.append(time.perf_counter() - start)
        return spans

    return run


async def _index(library: Library, embedder: Embedder) -> SkillIndex:
    index = SkillIndex(embedder, MemoryStore(embedder.id))
    await index.store.upsert(library.entries(0, len(library.texts)))
    await index.refresh()
    return index


def _lance(place: Path, library: Library, vectors: Matrix) -> dict[str, Subject]:
    """Return LanceDB's exact search over the same vectors."""
    if importlib.util.find_spec("lancedb") is None:
        return {}
    lancedb: Any = import_module("lancedb")
    arrow: Any = import_module("pyarrow")
    flat = arrow.array(library.matrix.reshape(-1))
    columns = {
        "name": [f"skill-{row}" for row in range(len(library.matrix))],
        "vector": arrow.FixedSizeListArray.from_arrays(flat, DIMENSIONS),
    }
    table = lancedb.connect(place).create_table("skills", arrow.table(columns))

    def search(number: int) -> object:
        query = table.search(vectors[number], vector_column_name="vector").distance_type("cosine")
        return query.select(["name", "_distance"]).limit(LIMIT).to_arrow()

    async def run() -> list[float]:
        return _each(search, range(len(vectors)))

    return {f"LanceDB {lancedb.__version__}, exact": run}


def _chroma(
    interpreter: Path | None, place: Path, matrix: Matrix, vectors: Matrix, stack: ExitStack
) -> dict[str, Subject]:
    """Return Chroma's approximate search, in a separate process."""
    files = (place / "matrix.npy", place / "vectors.npy")
    for file, array in zip(files, (matrix, vectors), strict=True):
        np.save(file, array)
    command = [str(interpreter or sys.executable), "-c", _CHROMA, *map(str, files), str(LIMIT)]
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    stack.callback(child.wait)
    stack.callback(child.kill)
    if child.stdin is None or child.stdout is None:
        return {}
    send, receive = child.stdin, child.stdout
    patience = threading.Timer(_PEER_SECONDS, child.kill)
    patience.start()
    version = receive.readline().strip()
    patience.cancel()

    def rest() -> None:  # its idle threads would slow down all other subjects
        child.send_signal(signal.SIGSTOP)

    async def run() -> list[float]:
        child.send_signal(signal.SIGCONT)
        send.write("\n")
        send.flush()
        spans: list[float] = json.loads(receive.readline())
        rest()
        return spans

    if version:
        rest()
    return {f"Chroma {version}, approximate": run} if version else {}


def _memory(library: Library) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "index.db")
        anyio.run(_store, library, file)
        # A separate process, without earlier allocations.
        command = [sys.executable, "-m", "benchmarks.retrieval_speed", str(file)]
        growth = int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    size = library.matrix.nbytes
    print(f"{len(library.texts):<14,}{size / 1e6:>11.1f}{growth / 1e6:>11.1f}{growth / size:>8.2f}")


async def _store(library: Library, file: Path) -> None:
    store = SqliteStore(file, "stored")
    for first in range(0, len(library.texts), _BATCH):
        await store.upsert(library.entries(first, first + _BATCH))
    await store.close()


async def _load(file: Path) -> int:
    """Return the growth of the resident set when an index is loaded."""
    index = SkillIndex(StoredVectors({}), SqliteStore(file, "stored"))
    gc.collect()
    before = _resident()
    await index.refresh()
    gc.collect()
    growth = _resident() - before
    await index.store.close()
    return growth


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    print(anyio.run(_load, Path(sys.argv[1])))
