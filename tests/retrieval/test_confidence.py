"""Confidence: a bounded, monotone probability, from evidence in the embedder's own scale."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apexbridge.retrieval.base import Matrix
from apexbridge.retrieval.confidence import (
    DEFAULT_PROFILE,
    GENERIC_PROFILE,
    ConfidenceCalibration,
    CosineScale,
    Evidence,
)

CALIBRATIONS = [DEFAULT_PROFILE.calibration, GENERIC_PROFILE.calibration]
BOTH = pytest.mark.parametrize("calibration", CALIBRATIONS, ids=["default", "generic"])
NUMBERS = st.floats(-20, 20)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
EVIDENCE = st.builds(
    Evidence,
    near=NUMBERS,
    task=NUMBERS,
    lexical=st.floats(0, 5),
    name=st.floats(0, 1),
    length=st.integers(0, 10**6),
    count=st.integers(1, 10**6),
)
NOTHING = ConfidenceCalibration(
    **dict.fromkeys((field.name for field in dataclasses.fields(ConfidenceCalibration)), 0.0)
)


def _row(*values: float) -> Matrix:
    return np.array(values, np.float32)


def test_the_cosine_scale_is_fitted_to_unrelated_texts() -> None:
    skills = np.eye(3, dtype=np.float32)
    talk = np.array([[0.6, 0.8, 0.0]], np.float32)
    scale = CosineScale.fit(skills @ np.concatenate((skills, talk)).T)
    others = [0.0] * 6 + [0.6, 0.8, 0.0]  # a text is not compared with itself
    assert scale.mean == pytest.approx(sum(others) / 9, abs=1e-6)
    assert scale.spread == pytest.approx(float(np.std(others)), abs=1e-6)
    assert scale.standardize(scale.mean) == 0
    assert scale.standardize(scale.mean + 2 * scale.spread) == pytest.approx(2)


def test_the_cosine_scale_of_equal_texts_has_a_spread() -> None:
    same = np.tile(_row(0.6, 0.8), (4, 1))
    assert CosineScale.fit(same @ same.T) == CosineScale(mean=0.0, spread=1.0)
    scale = CosineScale.fit(_row(0.5)[None])
    assert (scale.mean, scale.spread) == (pytest.approx(0.5), 1.0)


@given(
    st.lists(st.floats(-1, 0.5, width=32), min_size=2, max_size=40),
    st.floats(-1, 1),
    st.floats(0, 1),
)
def test_a_higher_cosine_is_no_fewer_standard_deviations(
    cosines: list[float], cosine: float, more: float
) -> None:
    scale = CosineScale.fit(_row(*cosines))
    assert scale.spread > 0
    assert scale.standardize(cosine + more) >= scale.standardize(cosine)
    assert math.isfinite(scale.standardize(cosine))


@BOTH
@given(evidence=EVIDENCE, more=st.floats(0, 10))
def test_confidence_rises_with_nearness_words_name_and_task(
    calibration: ConfidenceCalibration, evidence: Evidence, more: float
) -> None:
    sure = calibration.confidence(evidence)
    for field in ("near", "lexical", "name", "task"):
        stronger = dataclasses.replace(evidence, **{field: getattr(evidence, field) + more})
        assert calibration.confidence(stronger) >= sure, field


@BOTH
@given(evidence=EVIDENCE)
def test_confidence_falls_with_the_number_of_skills(
    calibration: ConfidenceCalibration, evidence: Evidence
) -> None:
    among_more = dataclasses.replace(evidence, count=2 * evidence.count)
    assert calibration.confidence(among_more) <= calibration.confidence(evidence)


@BOTH
@given(
    evidence=st.builds(
        Evidence,
        near=FINITE,
        task=FINITE,
        lexical=FINITE,
        name=FINITE,
        length=st.integers(0, 10**9),
        count=st.integers(1, 10**9),
    )
)
def test_confidence_is_a_probability_for_any_finite_evidence(
    calibration: ConfidenceCalibration, evidence: Evidence
) -> None:
    assert 0 <= calibration.confidence(evidence) <= 1


def test_confidence_is_the_logistic_of_the_weighted_sum() -> None:
    calibration = ConfidenceCalibration(
        bias=1, near=2, task=0.5, lexical=3, name=4, length=-0.5, size=-2
    )
    evidence = Evidence(near=0.7, task=-1.5, lexical=0.4, name=0.3, length=20, count=100)
    log_odds = 1 + 1.4 - 0.75 + 1.2 + 1.2 - 0.5 * math.log(21) - 2 * math.log(100)
    assert calibration.logit(evidence) == pytest.approx(log_odds)
    assert calibration.confidence(evidence) == pytest.approx(1 / (1 + math.exp(-log_odds)))


def test_confidence_has_ends() -> None:
    calibration = dataclasses.replace(NOTHING, near=1.0)
    for extreme in (math.inf, 1e300, 1e3):
        assert calibration.confidence(Evidence(near=extreme)) == 1
        assert 0 <= calibration.confidence(Evidence(near=-extreme)) < 1e-20


def test_without_weights_nothing_is_known() -> None:
    evidence = Evidence(near=3, task=1, lexical=1, name=1, length=9, count=9)
    assert NOTHING.confidence(evidence) == 0.5


@BOTH
def test_however_sure_the_classifier_is_other_evidence_can_outweigh_it(
    calibration: ConfidenceCalibration,
) -> None:
    sure, very_sure = (Evidence(near=0, task=task) for task in (-20.0, -1e6))
    assert calibration.logit(very_sure) == calibration.logit(sure)
    near = Evidence(near=8, lexical=1, name=1, task=-1e6, length=9)
    assert calibration.confidence(near) > 0.5
