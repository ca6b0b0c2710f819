"""From the parts of a score to one number, and from that to how sure one can be.

Vectors and words are added, not ranked against each other: ranks give the best of a hopeless list
as much as the best of a good one, which across languages does harm. To be added, the vectors'
scores are told in standard deviations from what this very request gets from everything else, and
the words' scores as a share of the best attainable.
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
"""Less is rounding noise: all are equal."""


class RowMask(NamedTuple):
    """Some of the rows: a one for each that is among them, else a zero; and how many they are."""

    weights: Matrix
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionWeights:
    """How much each part counts; the weights were chosen by cross-validation."""

    dense: float = 1.0
    """The whole skill's vector."""
    view: float = 1.0
    """The best view's vector, beside the whole's."""
    lexical: float = 6.0
    """A perfect match of words, in standard deviations of the vectors' scores."""
    language: float = 1.0
    """How far a skill is judged among those of its own language, when the request has only one."""
    usage: float = 0.25
    """What the most used skill gains over one never used: enough to part equals, no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceScores:
    """Whom the scores of a request are judged among: English ones first, then Chinese ones."""

    members: tuple[RowMask, RowMask]
    background: tuple[Matrix, Matrix]


@dataclass(frozen=True, slots=True)
class ZScoreScale:
    """How scores are told in standard deviations, in English and in Chinese skills."""

    centres: Matrix
    spreads: Matrix

    @classmethod
    def of(cls, scores: Matrix, company: ReferenceScores, language: float) -> "ZScoreScale":
        """Judge among all (language 0), among those of the same language (1), or between."""
        own = [
            _Distribution.of(scores, [members], beside)
            for members, beside in zip(company.members, company.background, strict=True)
        ]
        share = min(1.0, max(0.0, language))
        if share < 1:
            every = _Distribution.of(scores, company.members, np.concatenate(company.background))
            own = [one.towards(every, 1 - share) for one in own]
        return cls(
            np.array([one.mean for one in own], np.float32),
            np.array([one.spread for one in own], np.float32),
        )

    def tell(self, scores: Matrix, is_chinese: Flags) -> Matrix:
        """Scores in standard deviations."""
        which = is_chinese.view(np.uint8)
        return (scores - self.centres[which]) / self.spreads[which]


@dataclass(frozen=True, slots=True)
class _Distribution:
    """Where scores lie, and how far apart."""

    mean: float
    spread: float

    @classmethod
    def of(cls, scores: Matrix, groups: Sequence[RowMask], background: Matrix) -> "_Distribution":
        count = sum(group.number for group in groups) + len(background)
        if not count:
            return cls(0.0, math.inf)  # who has no company deviates from nothing
        total = sum(float(scores @ group.weights) for group in groups)
        mean = (total + float(background.sum())) / count
        off = scores - np.float32(mean)
        off *= off
        squares = sum(float(off @ group.weights) for group in groups)
        squares += float(np.square(background - np.float32(mean)).sum())
        spread = math.sqrt(squares / count)
        return cls(mean, spread if spread > _MIN_SPREAD else 1.0)

    def towards(self, other: "_Distribution", share: float) -> "_Distribution":
        """A place at which deviations are the weighed mean of those at two."""
        mine, theirs = (1 - share) / self.spread, share / other.spread
        both = mine + theirs
        if not both:  # nobody has company
            return self
        return _Distribution((mine * self.mean + theirs * other.mean) / both, 1 / both)


def _spread(values: Matrix) -> float:
    spread = float(values.std())
    return spread if spread > _MIN_SPREAD else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CosineScale:
    """How an embedder's cosines spread, so that one calibration fits them all."""

    mean: float
    spread: float

    @classmethod
    def of(cls, skills: Matrix, small_talk: Matrix) -> "CosineScale":
        """Measured on texts that are the same for every embedder."""
        cosines = skills @ np.concatenate((skills, small_talk)).T
        others = cosines[cosines < 1 - 1e-4]  # a text is not compared with itself
        if not len(others):
            return cls(mean=0.0, spread=1.0)
        return cls(mean=float(others.mean()), spread=_spread(others))

    def measure(self, cosine: float) -> float:
        """A cosine in standard deviations from that of two texts that happened to meet."""
        return (cosine - self.mean) / self.spread


@dataclass(frozen=True, slots=True, kw_only=True)
class LogisticCurve:
    """A logistic curve over how near a skill is, how near small talk is, and how many there are."""

    near: float
    small_talk: float = 0.0
    size: float = 0.0
    """For each ln(count): the nearest of many says less than the nearest of few."""
    bias: float = 0.0

    def chance(self, near: float, small_talk: float, count: int) -> float:
        """A probability."""
        parts = self.near * near + self.small_talk * small_talk + self.size * math.log(count)
        return 1 / (1 + math.exp(-max(-50.0, min(50.0, parts + self.bias))))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfidenceCalibration:
    """How sure one can be, fitted to requests with a skill, without, and for one not there."""

    is_task: LogisticCurve = LogisticCurve(near=3.25, small_talk=-4.03, size=-0.53, bias=5.6)
    """That something is to be done, rather than talked about."""
    is_fitting: LogisticCurve = LogisticCurve(near=2.88, bias=-6.46)
    """That this skill does it."""

    def confidence(self, near: float, small_talk: float, count: int) -> float:
        """The chance that a hit is what was asked for, in 0..1."""
        task = self.is_task.chance(near, small_talk, count)
        return task * self.is_fitting.chance(near, small_talk, count)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderProfile:
    """The numbers that belong to one embedder."""

    fusion: FusionWeights
    calibration: ConfidenceCalibration
    views: int = MAX_VIEWS
    """Views that get a vector of their own: each costs as much as a short document."""


GENERIC_PROFILE = EmbedderProfile(fusion=FusionWeights(), calibration=ConfidenceCalibration())
DEFAULT_PROFILE = EmbedderProfile(
    views=0,
    fusion=FusionWeights(view=0.0, lexical=3.0),
    calibration=ConfidenceCalibration(
        is_task=LogisticCurve(near=1.05, small_talk=-13.74, size=0.47, bias=23.69),
        is_fitting=LogisticCurve(near=3.19, bias=-3.8),
    ),
)
USE_PROFILE = EmbedderProfile(
    fusion=FusionWeights(view=1.0, lexical=6.0),
    calibration=ConfidenceCalibration(
        is_task=LogisticCurve(near=3.25, small_talk=-4.03, size=-0.53, bias=5.6),
        is_fitting=LogisticCurve(near=2.88, bias=-6.46),
    ),
)
_PROFILES: Mapping[str, EmbedderProfile] = {
    "apexbridge-retriever": DEFAULT_PROFILE,
    "use-multilingual-3": USE_PROFILE,
}
"""By what an embedder's id begins with."""


def profile_for(embedder_id: str) -> EmbedderProfile:
    """The numbers for the embedder of this id."""
    return _PROFILES.get(embedder_id.partition(":")[0], GENERIC_PROFILE)
