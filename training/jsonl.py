"""JSON lines in compressed files."""

import gzip
import json
import lzma
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

Row = dict[str, Any]


def read_rows(path: Path) -> Iterator[Row]:
    """Read the rows of a file, compressed or not."""
    with _open(path, "rt") as lines:
        for line in lines:
            yield json.loads(line)


def write_rows(path: Path, rows: Iterable[Mapping[str, object]]) -> int:
    """Write rows, compressed by the file's suffix; return their number."""
    count = 0
    path.parent.mkdir(parents=True, exist_ok=True)
    with _open(path, "wt") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            count += 1
    return count


def _open(path: Path, mode: str) -> IO[str]:
    if path.suffix == ".xz":
        return lzma.open(path, mode, encoding="utf-8")  # pyright: ignore[reportReturnType]
    if path.suffix == ".gz":
        return gzip.open(path, mode, encoding="utf-8")  # pyright: ignore[reportReturnType]
    return path.open(mode.removesuffix("t"), encoding="utf-8")
