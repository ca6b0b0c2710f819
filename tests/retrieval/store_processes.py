"""Entries whose content follows from their name and fingerprint, and processes that write them.

Run as a program it is one such writer: it says `ready`, waits for a line, and writes. In `loop` it
rewrites one batch for ever, a new fingerprint each round, and tells each round once it is stored.
In `once` it writes its own names and those it shares with others, deletes one, and ends.
"""

import hashlib
import importlib
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import anyio
import numpy as np

from apexbridge.retrieval.base import IndexEntry, VectorStore
from apexbridge.retrieval.stores.lance import LanceStore
from apexbridge.retrieval.stores.sqlite import SqliteStore

BATCH = 24
ROUNDS = 15


def made(name: str, fingerprint: str = "1", *, rows: int = 3, dimensions: int = 64) -> IndexEntry:
    seed = int.from_bytes(hashlib.sha256(f"{name}/{fingerprint}".encode()).digest()[:8], "big")
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(rows, dimensions)).astype(np.float32)
    return IndexEntry(
        name=name,
        fingerprint=fingerprint,
        texts=tuple(f"{name} {fingerprint} 视图 {row}" for row in range(rows)),
        vectors=vectors / np.linalg.norm(vectors, axis=1, keepdims=True),
        terms=np.sort(random.integers(0, 2**32, 20, dtype=np.uint32)),
        counts=random.integers(1, 255, 20, dtype=np.uint8),
    )


def is_whole(entry: IndexEntry, *, tolerance: float = 0) -> bool:
    """Whether nothing in an entry is other than its name and fingerprint demand."""
    rows, dimensions = entry.vectors.shape
    expected = made(entry.name, entry.fingerprint, rows=rows, dimensions=dimensions)
    return (
        entry.texts == expected.texts
        and entry.vectors.dtype == np.float32
        and bool(np.all(np.abs(entry.vectors - expected.vectors) <= tolerance))
        and entry.terms.tolist() == expected.terms.tolist()
        and entry.counts.tolist() == expected.counts.tolist()
    )


def opened(kind: str, folder: Path, embedder_id: str = "model-a") -> VectorStore:
    if kind == "lance":
        return LanceStore(folder / "lance", embedder_id)
    half = kind == "sqlite float16"
    path = folder / "index.db"
    return SqliteStore(path, embedder_id, precision="float16" if half else "float32")


@contextmanager
def writers(
    mode: str, kind: str, folder: Path, names: Sequence[str]
) -> Generator[list[subprocess.Popen[str]]]:
    """Processes that are ready to write and wait for a line; all are gone afterwards."""
    children = [
        subprocess.Popen(
            [sys.executable, __file__, mode, kind, str(folder), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        for name in names
    ]
    try:
        for child in children:
            assert read_line(child) == "ready"
        yield children
    finally:
        for child in children:
            child.kill()
            child.communicate()


def read_line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def go(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("go\n")
    child.stdin.flush()


async def _write(mode: str, kind: str, folder: Path, me: str) -> None:
    store = opened(kind, folder)
    _say("ready")
    sys.stdin.readline()
    if mode == "loop":
        for count in range(1, 1_000_000):
            await store.upsert([made(f"{me}-{number}", str(count)) for number in range(BATCH)])
            _say(str(count))
    await store.upsert([made(f"{me}-passing")])
    for count in range(ROUNDS):
        batch = [made(f"{me}-{count}"), made(f"shared-{count}", me), made("hot", f"{me}-{count}")]
        await store.upsert(batch)
    await store.delete([f"{me}-passing"])
    await store.close()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[2] == "lance":
        importlib.import_module("lancedb")  # slow: before the signal to begin, not after it
    anyio.run(_write, sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
