"""Score fusion: z-scores of the dense scores, and the scores of several wordings."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from apexbridge.retrieval.base import Matrix
from apexbridge.retrieval.fusion import (
    FusionWeights,
    ReferenceScores,
    RowMask,
    ZScoreScale,
    deduct_background,
    fuse_lexical,
    fuse_wordings,
)

COSINES = st.floats(-1, 1, width=32)
SHARES = st.floats(0, 1, width=32)
FUSIONS = {"dense": fuse_wordings, "lexical": fuse_lexical}


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


@pytest.mark.parametrize("fuse", FUSIONS.values(), ids=FUSIONS)
def test_one_wording_is_taken_as_it_is(fuse: Callable[[Sequence[Matrix]], Matrix]) -> None:
    scores = _row(0.1, -2, 7)
    assert fuse([scores]) is scores


def test_dense_scores_of_wordings_are_half_the_best_and_half_the_mean() -> None:
    found = fuse_wordings([_row(4, 0, 2), _row(0, 0, 2)])
    assert found == pytest.approx([3, 0, 2])
    poor_translation = fuse_wordings([_row(4, 1), _row(-4, 1)])
    assert poor_translation[0] > poor_translation[1]
    agreeing, lone = fuse_wordings([_row(3, 3), _row(3, 0)])
    assert agreeing > lone


def test_lexical_scores_of_wordings_are_the_best_and_half_of_the_others() -> None:
    assert fuse_lexical([_row(4, 0, 2), _row(0, 0, 2)]) == pytest.approx([4, 0, 3])
    three = fuse_lexical([_row(1), _row(4), _row(2)])
    assert three == pytest.approx([4 + 3 / 2])


@given(st.lists(st.tuples(COSINES, COSINES, COSINES), min_size=1, max_size=4))
def test_fused_dense_scores_are_between_mean_and_maximum(rows: list[tuple[float, ...]]) -> None:
    wordings = [_row(*row) for row in rows]
    found = fuse_wordings(wordings)
    assert (found <= np.max(wordings, axis=0) + 1e-6).all()
    assert (found >= np.mean(wordings, axis=0) - 1e-6).all()
    assert found == pytest.approx(fuse_wordings(wordings[::-1]), abs=1e-6)


@given(st.lists(st.tuples(SHARES, SHARES, SHARES), min_size=1, max_size=4))
def test_another_wording_lowers_no_lexical_score(rows: list[tuple[float, ...]]) -> None:
    wordings = [_row(*row) for row in rows]
    found = fuse_lexical(wordings)
    assert (found >= np.max(wordings, axis=0) - 1e-6).all()
    assert (found <= np.sum(wordings, axis=0) + 1e-5).all()


@pytest.mark.parametrize("share", [0.0, 0.5, 0.8])
def test_of_lexical_scores_a_share_of_the_tenth_best_is_deducted(share: float) -> None:
    scores = _row(*range(20, 0, -1), 0, 0)
    found = deduct_background(scores, share)
    assert found == pytest.approx(np.maximum(scores - share * 11, 0))


def test_words_that_few_documents_have_lose_nothing() -> None:
    scores = _row(5, 4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0)
    assert deduct_background(scores, 0.8) is scores


@given(st.lists(SHARES, max_size=40))
def test_the_deduction_keeps_the_order_and_is_never_below_zero(shares: list[float]) -> None:
    scores = _row(*shares)
    found = deduct_background(scores, 0.8)
    assert (found >= 0).all()
    assert (found <= scores).all()
    order = np.argsort(scores, kind="stable")
    assert (np.diff(found[order]) >= 0).all()


def test_usage_never_outweighs_a_better_match() -> None:
    fusion = FusionWeights()
    assert 0 < fusion.usage < min(fusion.dense, fusion.lexical)


def test_a_clause_is_worth_less_than_the_whole_query_and_a_name_more_than_usage() -> None:
    fusion = FusionWeights()
    assert fusion.clause >= 0
    assert fusion.name > fusion.usage
