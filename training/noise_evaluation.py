"""Evaluation of shipped encoders on validation queries with noise, by their vectors alone.

Background sentences and log lines are others than those of the training.
"""

import argparse
import dataclasses
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.jsonl import Row, read_rows
from training.request_pool import encode
from training.typos import Typos

_AFTER = {"en": (" ", "."), "zh": ("", "。")}
_LONGER = {"en": 4, "zh": 5}
"""Sentences that take a query beyond 64 tokens."""


@dataclasses.dataclass(frozen=True, slots=True)
class Recall:
    """Recall of a language with a kind of noise."""

    noise: str
    language: str
    first: float
    five: float

    def __str__(self) -> str:
        return f"{self.noise:8} {self.language} hit@1 {self.first:.3f} R@5 {self.five:.3f}"


def noise(given: argparse.Namespace) -> None:
    """Print the recall of validation queries with each kind of noise."""
    for found in evaluate(given.data, given.requests, given.shipped, given.tokens):
        sys.stdout.write(f"{found}\n")


def evaluate(data: Path, requests: Path, shipped: Path, tokens: int) -> Iterator[Recall]:
    """Evaluate queries of at most so many tokens against the validation library."""
    rows = list(read_rows(data / "validation.jsonl.xz"))
    library = [row["text"] for row in read_rows(data / "library.jsonl.xz")]
    documents = encode(shipped, library, "document")
    targets = np.array([row["target"] for row in rows])
    languages = np.array([row["lang"] for row in rows])
    for name, texts in noisy(rows, requests).items():
        scores = encode(shipped, texts, "query", tokens=tokens) @ documents.T
        own = scores[np.arange(len(rows)), targets]
        ranks: NDArray[np.int64] = (scores > own[:, None]).sum(1)
        for language in ("en", "zh"):
            of_language = ranks[languages == language]
            first, five = (float((of_language < most).mean()) for most in (1, 5))
            yield Recall(name, language, first, five)


def noisy(rows: Sequence[Row], requests: Path) -> dict[str, list[str]]:
    """Return the queries of validation rows without and with noise, the same ones every time."""
    typos = Typos.read(requests / "homophones.txt")
    background = list(read_rows(requests / "background-validation.jsonl"))
    said = {language: [row[language] for row in background] for language in ("en", "zh")}
    logs = [row["log"] for row in read_rows(requests / "logs-validation.jsonl")]
    out: dict[str, list[str]] = {
        name: [] for name in ("clean", "typo", "long", "log", "typos", "longer", "logs")
    }
    once, twice, more = (random.Random(seed) for seed in (20, 21, 22))  # noqa: S311  # no secret
    for row in rows:
        query, language = row["query"], row["lang"]
        out["clean"].append(query)
        out["typo"].append(typos.misspelt(query, once))
        some, place = once.sample(said[language], 3), once.randint(0, 2)
        out["long"].append(_inserted(query, language, some, place))
        out["log"].append(_beside(query, once.choice(logs), once))
        out["typos"].append(typos.misspelt(typos.misspelt(query, twice), twice))
        count = _LONGER[language]
        some = more.sample(said[language], count)
        place = more.choice((count - 1, count, count, 1))
        out["longer"].append(_inserted(query, language, some, place))
        out["logs"].append(_beside(query, "\n".join(more.sample(logs, 2)), more))
    return out


def _inserted(query: str, language: str, sentences: Sequence[str], place: int) -> str:
    between, end = _AFTER[language]
    return between.join((*sentences[:place], query + end, *sentences[place:]))


def _beside(query: str, log: str, chance: random.Random) -> str:
    return f"{log}\n{query}" if chance.random() < 0.5 else f"{query}\n{log}"
