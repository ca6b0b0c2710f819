"""Entries as rows of a Lance table, and values as its filters write them."""

import errno
import importlib
import json
import re
import uuid
from collections.abc import Sequence
from typing import Any

import numpy as np

from apexbridge.retrieval.stores.packing import Packed

COLUMNS = ("revision", *Packed._fields)
"""What is read back; `text` and `vector` are there for Lance's own search."""


def schema(dimensions: int) -> Any:
    """The columns; the marked key lets Lance see that two writers add the same name."""
    arrow: Any = importlib.import_module("pyarrow")
    text, blob, number = arrow.string(), arrow.binary(), arrow.int64()
    key = {"lance-schema:unenforced-primary-key": "true"}
    return arrow.schema(
        [
            arrow.field("name", text, nullable=False, metadata=key),
            *((name, text) for name in ("fingerprint", "revision", "text")),
            *((name, number) for name in ("rows", "dimensions", "width", "checksum")),
            *((name, blob) for name in ("texts", "vectors", "terms", "counts")),
            ("vector", arrow.list_(arrow.float32(), dimensions)),
        ]
    )


def arrow_rows(batch: Sequence[Packed]) -> Any:
    """The rows of one write, under one new revision."""
    arrow: Any = importlib.import_module("pyarrow")
    dimensions = batch[0].dimensions
    firsts = np.concatenate([np.frombuffer(one.vectors, "<f4", dimensions) for one in batch])
    packed = zip(Packed._fields, zip(*batch, strict=True), strict=True)
    columns: dict[str, Any] = {name: list(values) for name, values in packed}
    columns["revision"] = [uuid.uuid4().hex] * len(batch)
    columns["text"] = [_searched(one) for one in batch]
    columns["vector"] = arrow.FixedSizeListArray.from_arrays(arrow.array(firsts), dimensions)
    return arrow.table(columns, schema=schema(dimensions))


def _searched(packed: Packed) -> str:
    """The texts for the word index, which takes no lone surrogates."""
    texts: list[str] = json.loads(packed.texts.decode("ascii"))
    return "\n".join(texts).encode("utf-8", "replace").decode("utf-8")


def quoted(values: Sequence[str]) -> str:
    """A list of texts for a filter."""
    return ", ".join("'" + value.replace("'", "''") + "'" for value in values)


def is_disk(error: Exception) -> bool:
    """Whether the system refused; Lance puts the error's number into its words."""
    told = re.search(r"\(os error (\d+)\)", str(error))
    number = error.errno if isinstance(error, OSError) else int(told[1]) if told else None
    return number not in {None, errno.ENOENT}  # a file may be cleaned away by another process
