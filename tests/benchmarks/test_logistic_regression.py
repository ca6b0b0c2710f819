"""Logistic regression: the fitted weights minimize the penalized loss."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.logistic_regression import Numbers, fit_logistic


def _made(seed: int, weights: Numbers, rows: int) -> tuple[Numbers, Numbers]:
    """Draw rows, and outcomes with the probabilities that the weights give them."""
    chance = np.random.default_rng(seed)
    given: Numbers = chance.standard_normal((rows, len(weights)))
    given[:, 0] = 1
    odds: Numbers = 1 / (1 + np.exp(-given @ weights))
    is_true: Numbers = (chance.random(rows) < odds).astype(np.float64)
    return given, is_true


def _slope(
    given: Numbers, is_true: Numbers, shares: Numbers, weights: Numbers, ridge: float
) -> Numbers:
    odds: Numbers = 1 / (1 + np.exp(-given @ weights))
    slope: Numbers = given.T @ (shares * (odds - is_true)) + ridge * weights
    return slope


def test_the_weights_of_made_up_data_are_recovered() -> None:
    true: Numbers = np.array([-0.5, 2.0, 0.0, -1.0])
    given, is_true = _made(1, true, 20_000)
    found = fit_logistic(given, is_true, np.ones(len(given)), 1.0)
    assert found == pytest.approx(true, abs=0.1)


@given(st.integers(0, 2**16), st.integers(1, 6), st.integers(2, 60), st.sampled_from([0.1, 1, 10]))
def test_the_slope_at_the_weights_is_zero(seed: int, size: int, rows: int, ridge: float) -> None:
    chance = np.random.default_rng(seed)
    given_rows, is_true = _made(seed, chance.standard_normal(size), rows)
    shares: Numbers = chance.random(rows) + 0.1
    found = fit_logistic(given_rows, is_true, shares, ridge)
    assert np.isfinite(found).all()
    assert _slope(given_rows, is_true, shares, found, ridge) == pytest.approx(0, abs=1e-6)


def test_a_share_of_two_is_the_row_twice() -> None:
    given_rows, is_true = _made(3, np.array([0.3, 1.0]), 50)
    shares: Numbers = np.where(np.arange(50) < 20, 2.0, 1.0)
    weighted = fit_logistic(given_rows, is_true, shares, 1.0)
    twice = fit_logistic(
        np.concatenate((given_rows, given_rows[:20])),
        np.concatenate((is_true, is_true[:20])),
        np.ones(70),
        1.0,
    )
    assert weighted == pytest.approx(twice, abs=1e-9)


def test_separable_data_have_finite_weights_and_a_penalty_makes_them_smaller() -> None:
    given_rows: Numbers = np.array([[1.0, x] for x in (-3, -2, -1, 1, 2, 3)])
    is_true: Numbers = (given_rows[:, 1] > 0).astype(np.float64)
    sizes = [
        float(np.abs(fit_logistic(given_rows, is_true, np.ones(6), ridge)[1]))
        for ridge in (0.01, 1.0, 100.0)
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert np.isfinite(sizes).all()
