"""File of the fine-tuning stage: kinds of pairs with their shares, and its reader."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.token_table import TokenTable

Numbers = NDArray[np.int64]

KINDS: Mapping[str, tuple[float, int]] = {
    "everyday": (0.20, 0),
    "tools": (0.10, 0),
    "written": (0.20, 0),
    "styles": (0.12, 0),
    "thing": (0.08, 20_000),
    "framed": (0.05, 14_000),
    "mined A": (0.04, 14_000),
    "mined B": (0.06, 14_000),
    "mined across": (0.04, 12_000),
    "segment across": (0.02, 8_000),
    "name": (0.03, 8_000),
    "renamed": (0.02, 4_000),
}
"""Share of a kind of pair in a batch, and its largest number; the first four are our own."""
FREE, OWN = 2, 4
"""The first kinds, whose vectors may change freely, and the first ones, which are our own."""
NOISY_SHARE = 0.3
"""Share of requests that are replaced by a noisy variant, where there is one."""
VALIDATION = ("library", "typos", "styles", "everyday en", "everyday zh", "tools")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """What `training.mixture` wrote."""

    texts: TokenTable
    pairs: Numbers
    """Request, document, group, kind."""
    messages: Numbers
    """Message and two documents, or -1."""
    variants: Mapping[int, Sequence[int]]
    """Noisy variants of a request."""
    validation: Mapping[str, Mapping[str, Numbers]]

    @classmethod
    def read(cls, path: Path) -> "Mixture":
        """Read the file."""
        with np.load(path) as kept:
            arrays = {name: kept[name].astype(np.int64) for name in kept.files if name != "flat"}
            flat = kept["flat"].astype(np.int32)
        parts = ("documents", "queries", "targets", "messages")
        return cls(
            texts=TokenTable.restored(flat, arrays["lengths"]),
            pairs=arrays["pairs"],
            messages=arrays["messages"],
            variants={row[0]: row[1:] for row in arrays["variants"].tolist()},
            validation={
                name: {part: arrays[f"{name}/{part}"] for part in parts} for name in VALIDATION
            },
        )


class PairSampler:
    """Random pairs: a kind by its share, then a pair of it; some requests are noisy."""

    def __init__(self, pairs: Numbers, variants: Mapping[int, Sequence[int]], seed: int) -> None:
        self._pairs, self._variants = pairs, variants
        self.numbers = np.random.default_rng(seed)
        kinds, shares = pairs[:, 3], np.array([share for share, _ in KINDS.values()])
        counts = np.maximum(np.bincount(kinds, minlength=len(shares)), 1)
        weights = (shares / counts)[kinds]
        self._cumulative = np.cumsum(weights / weights.sum())

    def __call__(self, size: int) -> tuple[Numbers, Numbers]:
        """Sample about `size` pairs; return their requests with noise, and the pairs."""
        rows = self._pairs[self.places(size)]
        return self.noisy(rows[:, 0]), rows

    def places(self, size: int) -> Numbers:
        """Sample the places of about `size` pairs, each once."""
        places = np.unique(np.searchsorted(self._cumulative, self.numbers.random(size)))
        return np.minimum(places, len(self._pairs) - 1)

    def noisy(self, requests: Numbers) -> Numbers:
        """Replace some requests by a noisy variant."""
        swaps = self.numbers.random(len(requests)) < NOISY_SHARE
        return np.array(
            [
                int(self.numbers.choice(self._variants[text]))
                if swap and text in self._variants
                else text
                for text, swap in zip(requests.tolist(), swaps.tolist(), strict=True)
            ],
            np.int64,
        )
