"""Score fusion: dense and lexical scores to one number, and from that to a calibrated confidence.

Scores are added, not rank-fused: reciprocal ranks give the best of a hopeless list as much as the
best of a good one, which does harm across languages. To be added, dense scores become z-scores
(standard deviations from what the same query gets from all other skills and the reference texts),
and BM25 scores a share of the best attainable.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apexbridge.retrieval.base import Matrix
from apexbridge.retrieval.skill_document import MAX_VIEWS

Flags = NDArray[np.bool_]

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
    lexical: float = 6.0
    """A perfect BM25 match, in standard deviations of the dense scores."""
    language: float = 1.0
    """How far z-scores are computed within a skill's language, for a query in one language."""
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
        own = [
            _Distribution.fit(scores, [group], sample)
            for group, sample in zip(reference.groups, reference.scores, strict=True)
        ]
        share = min(1.0, max(0.0, language))
        if share < 1:
            every = _Distribution.fit(scores, reference.groups, np.concatenate(reference.scores))
            own = [one.blend(every, 1 - share) for one in own]
        return cls(
            np.array([one.mean for one in own], np.float32),
            np.array([one.spread for one in own], np.float32),
        )

    def standardize(self, scores: Matrix, is_chinese: Flags) -> Matrix:
        """Convert scores to z-scores."""
        language = is_chinese.view(np.uint8)
        return (scores - self.means[language]) / self.spreads[language]


@dataclass(frozen=True, slots=True)
class _Distribution:
    """Mean and standard deviation of a sample."""

    mean: float
    spread: float

    @classmethod
    def fit(cls, scores: Matrix, groups: Sequence[RowMask], sample: Matrix) -> "_Distribution":
        count = sum(group.size for group in groups) + len(sample)
        if not count:
            return cls(0.0, math.inf)  # without a sample, nothing deviates
        total = sum(float(scores @ group.weights) for group in groups)
        mean = (total + float(sample.sum())) / count
        deviations = scores - np.float32(mean)
        deviations *= deviations
        squares = sum(float(deviations @ group.weights) for group in groups)
        squares += float(np.square(sample - np.float32(mean)).sum())
        spread = math.sqrt(squares / count)
        return cls(mean, spread if spread > _MIN_SPREAD else 1.0)

    def blend(self, other: "_Distribution", share: float) -> "_Distribution":
        """Interpolate so that z-scores are the weighted mean of those of both distributions."""
        mine, theirs = (1 - share) / self.spread, share / other.spread
        both = mine + theirs
        if not both:  # both samples are empty
            return self
        return _Distribution((mine * self.mean + theirs * other.mean) / both, 1 / both)


def _spread(values: Matrix) -> float:
    spread = float(values.std())
    return spread if spread > _MIN_SPREAD else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CosineScale:
    """Mean and spread of an embedder's cosines, so that one calibration fits all embedders."""

    mean: float
    spread: float

    @classmethod
    def fit(cls, skills: Matrix, small_talk: Matrix) -> "CosineScale":
        """Fit to the reference texts, which are the same for every embedder."""
        cosines = skills @ np.concatenate((skills, small_talk)).T
        others = cosines[cosines < 1 - 1e-4]  # a text is not compared with itself
        if not len(others):
            return cls(mean=0.0, spread=1.0)
        return cls(mean=float(others.mean()), spread=_spread(others))

    def standardize(self, cosine: float) -> float:
        """Convert a cosine to standard deviations from that of two unrelated texts."""
        return (cosine - self.mean) / self.spread


@dataclass(frozen=True, slots=True, kw_only=True)
class LogisticCurve:
    """Logistic regression over skill similarity, small-talk similarity and number of skills."""

    near: float
    small_talk: float = 0.0
    size: float = 0.0
    """For ln(count): the nearest of many is weaker evidence than the nearest of few."""
    bias: float = 0.0

    def probability(self, near: float, small_talk: float, count: int) -> float:
        """Return the probability."""
        parts = self.near * near + self.small_talk * small_talk + self.size * math.log(count)
        return 1 / (1 + math.exp(-max(-50.0, min(50.0, parts + self.bias))))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfidenceCalibration:
    """Confidence calibration, fitted to queries with a skill, without, and with a missing one."""

    is_task: LogisticCurve = LogisticCurve(near=3.25, small_talk=-4.03, size=-0.53, bias=5.6)
    """Probability that the query is a task and no small talk."""
    is_fitting: LogisticCurve = LogisticCurve(near=2.88, bias=-6.46)
    """Probability that this skill fits the task."""

    def confidence(self, near: float, small_talk: float, count: int) -> float:
        """Return the probability, in 0..1, that a hit is the skill that is wanted."""
        task = self.is_task.probability(near, small_talk, count)
        return task * self.is_fitting.probability(near, small_talk, count)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderProfile:
    """Fusion weights and calibration that were fitted to one embedder."""

    fusion: FusionWeights
    calibration: ConfidenceCalibration
    views: int = MAX_VIEWS
    """Number of views that are embedded: each costs as much as a short document."""


GENERIC_PROFILE = EmbedderProfile(fusion=FusionWeights(), calibration=ConfidenceCalibration())
DEFAULT_PROFILE = EmbedderProfile(
    views=0,
    fusion=FusionWeights(view=0.0, lexical=3.0),
    calibration=ConfidenceCalibration(
        is_task=LogisticCurve(near=1.05, small_talk=-13.74, size=0.47, bias=23.69),
        is_fitting=LogisticCurve(near=3.19, bias=-3.8),
    ),
)
USE_PROFILE = EmbedderProfile(fusion=FusionWeights(), calibration=ConfidenceCalibration())
"""The generic weights were fitted to this embedder."""
_PROFILES: Mapping[str, EmbedderProfile] = {
    "apexbridge-retriever": DEFAULT_PROFILE,
    "use-multilingual-3": USE_PROFILE,
}
"""By the prefix of an embedder's id."""


def profile_for(embedder_id: str) -> EmbedderProfile:
    """Look up the profile of an embedder by its id."""
    return _PROFILES.get(embedder_id.partition(":")[0], GENERIC_PROFILE)
