"""Serialization of index entries: packed bytes with a CRC-32, Arrow rows, and validation."""

import errno
import fcntl
import importlib
import json
import os
import re
import uuid
import zlib
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from apexbridge.errors import EmbedderOutputError, IndexMismatchError, RetrievalError
from apexbridge.paths import replace_bytes
from apexbridge.retrieval.base import IndexEntry, Matrix, Neighbour
from apexbridge.retrieval.results import Kind

FULL, HALF = 4, 2
"""Bytes per component: float32 or float16."""
_EMBEDDERS_FILE = "embedders.json"
_KINDS: Mapping[str, Kind] = {"skill": "skill", "tool": "tool"}
_NUMBER_FORMATS = {FULL: "<f4", HALF: "<f2"}


class PackedEntry(NamedTuple):
    """Binary form of an entry; the checksum covers all other fields."""

    name: str
    fingerprint: str
    texts: bytes
    rows: int
    dimensions: int
    width: int
    vectors: bytes
    terms: bytes
    counts: bytes
    checksum: int
    kind: str = "skill"
    """The last field, because databases of earlier versions get its column added."""


def pack_entry(entry: IndexEntry, *, width: int = FULL) -> PackedEntry:
    """Serialize an entry."""
    vectors = _normalize_rows(entry.vectors) if width == HALF else entry.vectors
    rows, dimensions = vectors.shape
    packed = PackedEntry(
        name=entry.name,
        fingerprint=entry.fingerprint,
        texts=json.dumps(entry.texts, ensure_ascii=True).encode("ascii"),
        rows=rows,
        dimensions=dimensions,
        width=width,
        vectors=vectors.astype(_NUMBER_FORMATS[width]).tobytes(),
        terms=entry.terms.astype("<u4").tobytes(),
        counts=entry.counts.astype("u1").tobytes(),
        checksum=0,
        kind=entry.kind,
    )
    return packed._replace(checksum=_checksum(packed))


def unpack_entry(packed: PackedEntry) -> IndexEntry | None:
    """Deserialize an entry; None if the checksum or a size does not match."""
    try:
        if packed.checksum != _checksum(packed) or packed.kind not in _KINDS:
            return None
        stored = np.frombuffer(packed.vectors, _NUMBER_FORMATS[packed.width])
        vectors = stored.reshape(packed.rows, packed.dimensions).astype(np.float32, copy=False)
        return IndexEntry(
            name=packed.name,
            fingerprint=packed.fingerprint,
            texts=tuple(json.loads(packed.texts.decode("ascii"))),
            # float16 rounding breaks the unit length, which embedders guarantee.
            vectors=_normalize_rows(vectors) if packed.width == HALF else vectors,
            terms=np.frombuffer(packed.terms, "<u4").astype(np.uint32, copy=False),
            counts=np.frombuffer(packed.counts, np.uint8),
            kind=_KINDS[packed.kind],
        )
    except (KeyError, TypeError, ValueError):  # a corrupt row may hold any value of any type
        return None


def _checksum(packed: PackedEntry) -> int:
    named = (packed.name, packed.fingerprint, packed.rows, packed.dimensions, packed.width)
    if packed.kind != "skill":  # entries of earlier versions have no kind, and are all skills
        named = (*named, packed.kind)
    total = zlib.crc32("\0".join(map(str, named)).encode("utf-8", "replace"))
    for part in (packed.texts, packed.vectors, packed.terms, packed.counts):
        total = zlib.crc32(part, total)
    return total


def _normalize_rows(vectors: Matrix) -> Matrix:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def validate_entries(entries: Sequence[IndexEntry], embedder_id: str) -> list[IndexEntry]:
    """Validate entries before a write; of duplicate names the last one wins.

    Raises:
        EmbedderOutputError: If a row is not finite or zero, or there is not one for each text.
        IndexMismatchError: If the vectors differ in size.
    """
    for entry in entries:
        shape = entry.vectors.shape
        if len(shape) != 2 or not shape[0] or shape[0] != len(entry.texts):
            detail = f"{entry.name} has {len(entry.texts)} texts, but vectors of shape {shape}"
            raise EmbedderOutputError(detail, name=embedder_id)
        check_dimensions(shape[1], entries[0].vectors.shape[1], embedder_id)
        lengths = np.linalg.norm(entry.vectors, axis=1)
        if not np.all(np.isfinite(lengths) & (lengths > 0)):
            detail = f"a vector of {entry.name} is zero or not finite"
            raise EmbedderOutputError(detail, name=embedder_id)
        if len(entry.terms) != len(entry.counts):
            raise RetrievalError(f"{entry.name} has not one count for each term")
    return list({entry.name: entry for entry in entries}.values())


def check_dimensions(size: int, stored: int, embedder_id: str) -> None:
    """Raise IndexMismatchError if a vector has not the size of the stored ones."""
    if size != stored:
        raise IndexMismatchError(
            found=f"{embedder_id} with {stored} dimensions",
            expected=f"{embedder_id} with {size} dimensions",
        )


def nearest_entries(
    entries: Iterable[IndexEntry], vector: Matrix, *, limit: int, embedder_id: str
) -> Sequence[Neighbour]:
    """Rank main vectors by cosine; ties by name."""
    held = list(entries)
    if not held or limit < 1:
        return ()
    matrix = np.stack([entry.vectors[0] for entry in held])
    query = vector.reshape(-1)
    check_dimensions(query.size, matrix.shape[1], embedder_id)
    lengths = np.linalg.norm(matrix, axis=1) * np.linalg.norm(query)
    cosines = matrix @ query / np.where(lengths > 0, lengths, 1)
    scores: list[float] = np.clip((1 + cosines) / 2, 0, 1).tolist()
    found = [Neighbour(name=e.name, score=s) for e, s in zip(held, scores, strict=True)]
    return sorted(found, key=lambda near: (-near.score, near.name))[:limit]


@contextmanager
def folder_lock(folder: Path) -> Generator[None]:
    """Hold an exclusive `flock` on a folder, against other processes and threads."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def read_used_embedders(folder: Path) -> list[str]:
    """Read the embedder ids in the order of their last use; empty if the file is unreadable."""
    try:
        return [str(one) for one in json.loads((folder / _EMBEDDERS_FILE).read_bytes())]
    except (FileNotFoundError, TypeError, ValueError):
        return []


def write_used_embedders(folder: Path, used: Sequence[str]) -> None:
    """Write the embedder ids atomically."""
    replace_bytes(folder / _EMBEDDERS_FILE, json.dumps(used).encode("ascii"), new_mode=0o600)


LANCE_COLUMNS = ("revision", *PackedEntry._fields)
"""Columns that are read back; `text` and `vector` are for Lance's own search."""


def arrow_schema(dimensions: int) -> Any:
    """Build the Arrow schema; the key metadata lets Lance detect conflicting inserts."""
    arrow: Any = importlib.import_module("pyarrow")
    text, blob, number = arrow.string(), arrow.binary(), arrow.int64()
    key = {"lance-schema:unenforced-primary-key": "true"}
    return arrow.schema(
        [
            arrow.field("name", text, nullable=False, metadata=key),
            *((name, text) for name in ("fingerprint", "revision", "text", "kind")),
            *((name, number) for name in ("rows", "dimensions", "width", "checksum")),
            *((name, blob) for name in ("texts", "vectors", "terms", "counts")),
            ("vector", arrow.list_(arrow.float32(), dimensions)),
        ]
    )


def add_kind_column(table: Any) -> None:
    """Add the column that Lance tables of earlier versions lack: all their entries are skills."""
    if "kind" not in table.schema.names:
        table.add_columns({"kind": "'skill'"})


def to_arrow(batch: Sequence[PackedEntry]) -> Any:
    """Build the rows of one write, with a new revision."""
    arrow: Any = importlib.import_module("pyarrow")
    dimensions = batch[0].dimensions
    firsts = np.concatenate([np.frombuffer(one.vectors, "<f4", dimensions) for one in batch])
    packed = zip(PackedEntry._fields, zip(*batch, strict=True), strict=True)
    columns: dict[str, Any] = {name: list(values) for name, values in packed}
    columns["revision"] = [uuid.uuid4().hex] * len(batch)
    columns["text"] = [_full_text(one) for one in batch]
    columns["vector"] = arrow.FixedSizeListArray.from_arrays(arrow.array(firsts), dimensions)
    return arrow.table(columns, schema=arrow_schema(dimensions))


def _full_text(packed: PackedEntry) -> str:
    """Join the texts for the full-text index, which refuses lone surrogates."""
    texts: list[str] = json.loads(packed.texts.decode("ascii"))
    return "\n".join(texts).encode("utf-8", "replace").decode("utf-8")


def sql_list(values: Sequence[str]) -> str:
    """Quote values as an SQL list."""
    return ", ".join("'" + value.replace("'", "''") + "'" for value in values)


def is_disk_error(error: Exception) -> bool:
    """Say whether the OS refused an operation; Lance has the errno in its message only."""
    match = re.search(r"\(os error (\d+)\)", str(error))
    number = error.errno if isinstance(error, OSError) else int(match[1]) if match else None
    return number not in {None, errno.ENOENT}  # another process may have compacted a file away
