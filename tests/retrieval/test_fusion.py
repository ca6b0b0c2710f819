"""Score fusion and confidence calibration."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from apexbridge.retrieval.base import Matrix
from apexbridge.retrieval.fusion import (
    ConfidenceCalibration,
    CosineScale,
    FusionWeights,
    LogisticCurve,
    ReferenceScores,
    RowMask,
    ZScoreScale,
)

COSINES = st.floats(-1, 1, width=32)
NUMBERS = st.floats(-20, 20)


def _row(*values: float) -> Matrix:
    return np.array(values, np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    is_chinese: NDArray[np.bool_]
    sample: ReferenceScores


def _sample(
    scores: Matrix,
    *,
    chinese: tuple[int, ...] = (),
    dead: tuple[int, ...] = (),
    background: Matrix | None = None,
    background_chinese: tuple[int, ...] = (),
) -> _Given:
    beside = np.zeros(0, np.float32) if background is None else background
    is_chinese = np.isin(np.arange(len(scores)), chinese)
    is_alive = ~np.isin(np.arange(len(scores)), dead)
    is_beside_chinese = np.isin(np.arange(len(beside)), background_chinese)
    groups = (_row_mask(is_alive & ~is_chinese), _row_mask(is_alive & is_chinese))
    others = (beside[~is_beside_chinese], beside[is_beside_chinese])
    return _Given(is_chinese=is_chinese, sample=ReferenceScores(groups=groups, scores=others))


def _row_mask(flags: NDArray[np.bool_]) -> RowMask:
    return RowMask(flags.astype(np.float32), int(flags.sum()))


def standardise(scores: Matrix, given: _Given, language: float) -> Matrix:
    return ZScoreScale.fit(scores, given.sample, language).standardize(scores, given.is_chinese)


def test_scores_become_z_scores() -> None:
    scores, background = _row(0.1, 0.5, 0.9), _row(0.2, 0.4)
    found = standardise(scores, _sample(scores, background=background), 0)
    every = [0.1, 0.5, 0.9, 0.2, 0.4]
    mean = sum(every) / 5
    spread = math.sqrt(sum((one - mean) ** 2 for one in every) / 5)
    assert found == pytest.approx([(one - mean) / spread for one in (0.1, 0.5, 0.9)], abs=1e-5)
    assert found.dtype == np.float32


def test_z_scores_are_computed_within_each_language() -> None:
    scores = _row(0.5, 0.7, 0.1, 0.3)
    sample = _sample(scores, chinese=(2, 3), background=_row(0.6, 0.2), background_chinese=(1,))
    found = standardise(scores, sample, 1)
    english, chinese = _row(0.5, 0.7), _row(0.1, 0.3)
    alone = [
        standardise(english, _sample(english, background=_row(0.6)), 0),
        standardise(chinese, _sample(chinese, background=_row(0.2)), 0),
    ]
    assert found == pytest.approx(np.concatenate(alone), abs=1e-5)
    assert found[0] == pytest.approx(found[2], abs=1e-4)  # as far below its own as the other
    of_all = standardise(scores, sample, 0)
    between = standardise(scores, sample, 0.25)
    assert between == pytest.approx(0.25 * found + 0.75 * of_all, abs=1e-5)
    assert standardise(scores, sample, 2) == pytest.approx(found)


@pytest.mark.parametrize("language", [0.0, 0.5, 1.0])
def test_deleted_rows_are_not_in_the_sample(language: float) -> None:
    living = _row(0.1, 0.5, 0.9)
    scores = np.append(living, np.float32(40))
    with_dead = standardise(scores, _sample(scores, dead=(3,)), language)
    without = standardise(living, _sample(living), language)
    assert with_dead[:3] == pytest.approx(without, abs=1e-5)


@pytest.mark.parametrize("language", [0.0, 0.5, 1.0])
def test_a_small_sample_is_no_error(language: float) -> None:
    empty = _row()
    assert standardise(empty, _sample(empty), language).shape == (0,)
    one = _row(0.7)
    assert standardise(one, _sample(one), language).tolist() == [0]
    assert standardise(one, _sample(one, dead=(0,)), language).tolist() == [0]
    assert standardise(one, _sample(one, background=_row(0.1)), language)[0] >= 0


@given(value=COSINES, size=st.integers(1, 2_000), language=st.sampled_from([0.0, 0.5, 1.0]))
def test_equal_scores_deviate_from_nothing(value: float, size: int, language: float) -> None:
    scores = np.full(size, value, np.float32)
    sample = _sample(scores, chinese=tuple(range(0, size, 3)))
    assert np.abs(standardise(scores, sample, language)).max() < 1e-4


@given(st.lists(COSINES, min_size=1, max_size=30), st.lists(COSINES, max_size=10))
def test_the_order_is_kept_and_all_is_finite(scores: list[float], background: list[float]) -> None:
    given_scores = _row(*scores)
    sample = _sample(given_scores, background=_row(*background))
    found = standardise(given_scores, sample, 1)
    assert np.isfinite(found).all()
    assert np.all(np.diff(found[np.argsort(given_scores)]) >= 0)


def test_the_cosine_scale_is_fitted_to_unrelated_texts() -> None:
    skills = np.eye(3, dtype=np.float32)
    talk = np.array([[0.6, 0.8, 0.0]], np.float32)
    ruler = CosineScale.fit(skills, talk)
    others = [0.0] * 6 + [0.6, 0.8, 0.0]  # a text is not compared with itself
    assert ruler.mean == pytest.approx(sum(others) / 9, abs=1e-6)
    assert ruler.spread == pytest.approx(float(np.std(others)), abs=1e-6)
    assert ruler.standardize(ruler.mean) == 0
    assert ruler.standardize(ruler.mean + 2 * ruler.spread) == pytest.approx(2)


def test_the_cosine_scale_of_equal_texts_has_a_spread() -> None:
    same = np.tile(_row(0.6, 0.8), (4, 1))
    assert CosineScale.fit(same, same) == CosineScale(mean=0.0, spread=1.0)
    angle = np.pi / 3
    pair = _row(1, 0)[None], _row(math.cos(angle), math.sin(angle))[None]
    ruler = CosineScale.fit(*pair)
    assert (ruler.mean, ruler.spread) == (pytest.approx(0.5), 1.0)


@given(near=NUMBERS, more=st.floats(0, 10), talk=NUMBERS, count=st.integers(1, 10**6))
def test_confidence_rises_with_nearness_and_falls_with_small_talk_and_number(
    near: float, more: float, talk: float, count: int
) -> None:
    calibration = ConfidenceCalibration()
    sure = calibration.confidence(near, talk, count)
    assert 0 <= sure <= 1
    assert calibration.confidence(near + more, talk, count) >= sure
    assert calibration.confidence(near, talk + more, count) <= sure
    assert calibration.confidence(near, talk, count * 2) <= sure


def test_a_curve_is_logistic_and_has_ends() -> None:
    curve = LogisticCurve(near=2, small_talk=-3, size=-0.5, bias=1)
    assert curve.probability(0, 0, 1) == pytest.approx(1 / (1 + math.exp(-1)))
    log_odds = 2 * 0.7 - 3 * 0.4 - 0.5 * math.log(100) + 1
    assert curve.probability(0.7, 0.4, 100) == pytest.approx(1 / (1 + math.exp(-log_odds)))
    for extreme in (math.inf, 1e300, 1e3):
        assert curve.probability(extreme, 0, 1) == 1
        assert 0 <= curve.probability(-extreme, 0, 1) < 1e-20


def test_confidence_needs_a_task_and_a_fitting_skill() -> None:
    sure, never = LogisticCurve(near=0, bias=99), LogisticCurve(near=0, bias=-99)
    for is_task, is_fitting in ((sure, never), (never, sure), (never, never)):
        unsure = ConfidenceCalibration(is_task=is_task, is_fitting=is_fitting)
        assert unsure.confidence(1, 0, 10) < 1e-9
    certain = ConfidenceCalibration(is_task=sure, is_fitting=sure)
    assert certain.confidence(1, 0, 10) == pytest.approx(1)


def test_usage_never_outweighs_a_better_match() -> None:
    fusion = FusionWeights()
    assert 0 < fusion.usage < min(fusion.dense, fusion.lexical)
