"""Training set: text numbers in arrays, from which the stages sample batches."""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.jsonl import Row, read_rows
from training.token_table import TokenTable

Numbers = NDArray[np.int64]

_KEPT_BACK = 5
"""Every n-th small talk text is kept for validation."""
NO_SKILL = -1
"""Group of all small talk: none of it is a negative of another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Texts by number, and their pairs."""

    texts: TokenTable
    pairs: Numbers
    """Query, document, group."""
    parallel: Numbers
    """English, Chinese."""
    alone: Numbers
    """English without a translation: descriptions and queries."""
    none: tuple[Numbers, ...]
    """Small talk by kind."""
    idle: Numbers
    """Small talk for validation."""
    asked: Numbers
    """Query, its row in the library, whether it is Chinese; for validation."""
    library: Numbers


def read_lesson(data: Path, tokenizer: Path, *, processes: int = 1) -> Dataset:
    """Load the output of `prepare` and tokenize it."""
    texts = TokenTable()
    add = texts.add
    documents = [add(row["text"]) for row in _rows(data, "documents")]
    pairs, said = list[tuple[int, int, int]](), set[int]()
    for row in _rows(data, "pairs"):
        pairs.append((add(row["q"]), documents[int(row["d"])], row["g"]))
        if row["q"].isascii():
            said.add(pairs[-1][0])
    parallel = [(add(row["en"]), add(row["zh"])) for row in _rows(data, "parallel")]
    alone = [*(add(row["en"]) for row in _rows(data, "alone")), *sorted(said)]
    kinds = defaultdict[str, list[int]](list)
    idle = list[int]()
    for place, row in enumerate(_rows(data, "none")):
        held = idle if is_kept_back(place) else kinds[row["kind"]]
        held += (add(row["en"]), add(row["zh"]))
    asked = [
        (add(row["query"]), row["target"], row["lang"] == "zh") for row in _rows(data, "validation")
    ]
    library = [add(row["text"]) for row in _rows(data, "library")]
    words: list[str] = json.loads((tokenizer / "cjk.json").read_text(encoding="utf-8"))
    texts.cut(tokenizer / "tokenizer.json", words, processes)
    return Dataset(
        texts=texts,
        pairs=np.array(pairs, np.int64).reshape(-1, 3),
        parallel=np.array(parallel, np.int64).reshape(-1, 2),
        alone=np.array(alone, np.int64),
        none=tuple(np.array(part, np.int64) for part in kinds.values()),
        idle=np.array(idle, np.int64),
        asked=np.array(asked, np.int64).reshape(-1, 3),
        library=np.array(library, np.int64),
    )


def is_kept_back(place: int) -> bool:
    """Tell whether a row of small talk is for validation."""
    return place % _KEPT_BACK == 0


def _rows(data: Path, name: str) -> Iterator[Row]:
    return read_rows(data / f"{name}.jsonl.xz")
