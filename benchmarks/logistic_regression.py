"""Logistic regression by Newton's method."""

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
_STEPS = 40


def fit_logistic(given: Numbers, is_true: Numbers, shares: Numbers, ridge: float) -> Numbers:
    """Fit the weights of each column; `shares` weighs the rows, `ridge` is the L2 penalty."""
    weights: Numbers = np.zeros_like(given[0], np.float64)
    penalty: Numbers = ridge * np.eye(len(weights))
    for _ in range(_STEPS):
        weights = weights - _step(given, is_true, shares, weights, penalty)
    return weights


def _step(
    given: Numbers, is_true: Numbers, shares: Numbers, weights: Numbers, penalty: Numbers
) -> Numbers:
    chance: Numbers = 1 / (1 + np.exp(-np.clip(given @ weights, -50, 50)))
    slope: Numbers = given.T @ (shares * (chance - is_true)) + penalty @ weights
    bend: Numbers = (given * (shares * chance * (1 - chance))[:, None]).T @ given
    return np.linalg.solve(bend + penalty, slope).astype(np.float64)
