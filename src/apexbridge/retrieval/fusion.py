"""Score fusion: dense and lexical scores to one number.

Scores are added, not rank-fused: reciprocal ranks give the best of a hopeless list as much as the
best of a good one, which does harm across languages. To be added, dense scores become z-scores
(standard deviations from what the same query gets from all other skills and the reference texts).
BM25 scores are a share of the best attainable one, times the evidence in the query: a match of
seven rare words says more than a match of one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apexbridge.retrieval.base import Matrix

Flags = NDArray[np.bool_]

_BACKGROUND_RANK = 10
_MIN_SPREAD = 1e-6
"""A smaller spread is rounding noise: all scores are equal."""


class RowMask(NamedTuple):
    """Row mask: 1.0 for each row of a group, else 0.0, and the size of the group."""

    weights: Matrix
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionWeights:
    """Fusion weights, chosen by cross-validation."""

    dense: float = 1.0
    """Cosine of the main text."""
    view: float = 1.0
    """Cosine of the best view, relative to that of the main text."""
    lexical: float = 3.0
    """A perfect BM25 match of one rare word, in standard deviations of the dense scores."""
    background: float = 0.0
    """Share of the tenth best lexical score that is deducted from all of them."""
    language: float = 0.25
    """How far z-scores are computed within a skill's language, for a query in one language."""
    name: float = 4.0
    """A query that is the name of a skill, or calls it by its name."""
    clause: float = 2.0
    """Deduction from the score of a part of a query, compared with that of the whole."""
    need: float = 6.0
    """Score, dense and lexical, from which on a row clearly meets a part of a query."""
    usage: float = 0.25
    """Bonus of the most used skill: enough to break ties, no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceScores:
    """Sample for z-scores: groups of rows and reference scores, English first, then Chinese."""

    groups: tuple[RowMask, RowMask]
    scores: tuple[Matrix, Matrix]


@dataclass(frozen=True, slots=True)
class ZScoreScale:
    """Mean and standard deviation of the dense scores, for English and for Chinese skills."""

    means: Matrix
    spreads: Matrix

    @classmethod
    def fit(cls, scores: Matrix, reference: ReferenceScores, language: float) -> "ZScoreScale":
        """Fit to all scores (language 0), to those of each language (1), or interpolate."""
        size = sum(group.size for group in reference.groups)
        center = sum(float(scores @ group.weights) for group in reference.groups) / max(1, size)
        shifted = scores - np.float32(center)  # so that squares of single precision lose nothing
        squares: Matrix = np.square(shifted)
        moments = [
            _Moments.from_sample(shifted, squares, group, sample - np.float32(center))
            for group, sample in zip(reference.groups, reference.scores, strict=True)
        ]
        own = [one.distribution(center) for one in moments]
        share = min(1.0, max(0.0, language))
        if share < 1:
            every = moments[0].join(moments[1]).distribution(center)
            own = [one.blend(every, 1 - share) for one in own]
        return cls(
            np.array([one.mean for one in own], np.float32),
            np.array([one.spread for one in own], np.float32),
        )

    def standardize(self, scores: Matrix, is_chinese: Flags) -> Matrix:
        """Convert scores to z-scores."""
        language = is_chinese.view(np.uint8)
        return (scores - self.means[language]) / self.spreads[language]


class _Moments(NamedTuple):
    """Number, sum and sum of squares of a sample, of which the center was subtracted."""

    size: int
    total: float
    squares: float

    @classmethod
    def from_sample(
        cls, shifted: Matrix, squares: Matrix, group: RowMask, sample: Matrix
    ) -> "_Moments":
        """Add up the rows of a group and reference scores."""
        total, square = float(sample.sum()), float(sample @ sample)
        if group.size:
            total += float(shifted @ group.weights)
            square += float(squares @ group.weights)
        return cls(group.size + len(sample), total, square)

    def join(self, other: "_Moments") -> "_Moments":
        """Add another sample."""
        return _Moments(
            self.size + other.size, self.total + other.total, self.squares + other.squares
        )

    def distribution(self, center: float) -> "_Distribution":
        """Return mean and standard deviation."""
        if not self.size:
            return _Distribution(0.0, math.inf)  # without a sample, nothing deviates
        mean = self.total / self.size
        spread = math.sqrt(max(0.0, self.squares / self.size - mean * mean))
        return _Distribution(center + mean, spread if spread > _MIN_SPREAD else 1.0)


@dataclass(frozen=True, slots=True)
class _Distribution:
    """Mean and standard deviation of a sample."""

    mean: float
    spread: float

    def blend(self, other: "_Distribution", share: float) -> "_Distribution":
        """Interpolate so that z-scores are the weighted mean of those of both distributions."""
        mine, theirs = (1 - share) / self.spread, share / other.spread
        both = mine + theirs
        if not both:  # both samples are empty
            return self
        return _Distribution((mine * self.mean + theirs * other.mean) / both, 1 / both)


def fuse_wordings(scores: Sequence[Matrix]) -> Matrix:
    """Fuse the dense scores of several wordings of one query.

    Half the maximum and half the mean: the mean alone lets a poor translation spoil a good wording,
    the maximum alone ignores that two wordings agree.
    """
    if len(scores) == 1:
        return scores[0]
    return (np.max(scores, axis=0) + np.mean(scores, axis=0)) / 2


def fuse_lexical(scores: Sequence[Matrix]) -> Matrix:
    """Fuse the lexical scores of wordings: the best one, and half of what the others add."""
    if len(scores) == 1:
        return scores[0]
    best = np.max(scores, axis=0)
    return best + (np.sum(scores, axis=0) - best) / 2


def deduct_background(scores: Matrix, share: float) -> Matrix:
    """Deduct what many rows have in common with a query: it tells none of them from the others.

    A long request shares incidental words with many documents (`Friday`, `daughter`, `today`).
    """
    found = scores[scores > 0]
    if not share or len(found) < _BACKGROUND_RANK:
        return scores
    background = np.partition(found, len(found) - _BACKGROUND_RANK)[len(found) - _BACKGROUND_RANK]
    return np.maximum(scores - np.float32(share) * background, np.float32(0))
