"""Binary classifier with one hidden layer (ReLU, dropout), trained by Adam with weight decay."""

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

_HIDDEN, _STEPS, _BATCH, _RATE, _DECAY, _DROPOUT = 64, 1_500, 2_048, 3e-3, 1.0, 0.3
_SCALE = 8.0
"""Unit vectors of a few hundred dimensions have components that are too small to learn from."""
_FIRST, _SECOND, _TINY = 0.9, 0.999, 1e-8


def fit_network(
    given: NDArray[np.float32], is_first: NDArray[np.bool_], seed: int = 0
) -> NDArray[np.float32]:
    """Fit to balanced classes; return a row for each hidden unit, and one for the output's bias.

    A row has the unit's input weights, its bias and its output weight.
    """
    chance = np.random.default_rng(seed)
    size, share = given.shape[1], float(is_first.mean())
    balance = np.where(is_first, 0.5 / share, 0.5 / (1 - share))
    bound = 1 / np.sqrt(size)
    weights = chance.uniform(-bound, bound, (_HIDDEN, size + 1))
    out = chance.uniform(-1 / 8, 1 / 8, _HIDDEN + 1)
    moments = [np.zeros_like(part) for part in (weights, weights, out, out)]
    for step in range(1, _STEPS + 1):
        rows = chance.integers(0, len(given), _BATCH)
        vectors = np.hstack((given[rows] * _SCALE, np.ones((_BATCH, 1))))
        reached = vectors @ weights.T
        kept = (reached > 0) * (chance.random(reached.shape) >= _DROPOUT) / (1 - _DROPOUT)
        hidden = reached * kept
        logits = np.clip(hidden @ out[:-1] + out[-1], -30, 30)
        error = (1 / (1 + np.exp(-logits)) - is_first[rows]) * balance[rows] / _BATCH
        slopes = (
            ((error[:, None] * out[:-1]) * kept).T @ vectors,
            np.append(hidden.T @ error, error.sum()),
        )
        for at, (part, slope) in enumerate(zip((weights, out), slopes, strict=True)):
            first, second = moments[2 * at : 2 * at + 2]
            first *= _FIRST
            first += (1 - _FIRST) * slope
            second *= _SECOND
            second += (1 - _SECOND) * slope**2
            change = first / (1 - _FIRST**step) / (np.sqrt(second / (1 - _SECOND**step)) + _TINY)
            part -= _RATE * (change + _DECAY * part)
    found = np.zeros((_HIDDEN + 1, size + 2), np.float32)
    found[:-1, :size] = weights[:, :-1] * _SCALE
    found[:-1, size], found[:-1, size + 1] = weights[:, -1], out[:-1]
    found[-1, size + 1] = out[-1]
    return found
