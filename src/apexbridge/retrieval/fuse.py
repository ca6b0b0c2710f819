"""From the parts of a score to one number, and from that to how sure one can be.

Vectors and words are added, not ranked against each other: ranks give the best of a hopeless list
as much as the best of a good one, which across languages does harm. To be added, the vectors'
scores are told in standard deviations from what this very request gets from everything else, and
the words' scores as a share of the best attainable.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apexbridge.retrieval.base import Matrix
from apexbridge.retrieval.blas import one_thread

Flags = NDArray[np.bool_]

_LEAST_SPREAD = 1e-6
"""Less is rounding noise: all are equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fusion:
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
class Company:
    """Whom the scores of a request are judged among."""

    is_chinese: Flags
    is_alive: Flags
    background: Matrix
    background_is_chinese: Flags


def standardise(scores: Matrix, company: Company, language: float) -> Matrix:
    """Tell scores in standard deviations: among all, and among those of the same language."""
    of_all = of_language = np.zeros(0, np.float32)
    if language < 1:
        everyone = _Place.of(scores, company.is_alive, company.background)
        of_all = (scores - np.float32(everyone.mean)) / np.float32(everyone.spread)
    if language > 0:
        english, chinese = (_of_language(scores, company, is_zh) for is_zh in (False, True))
        means = np.array([english.mean, chinese.mean], np.float32)
        spreads = np.array([english.spread, chinese.spread], np.float32)
        which = company.is_chinese.view(np.uint8)
        of_language = (scores - means[which]) / spreads[which]
    if language >= 1:
        return of_language
    if language <= 0:
        return of_all
    return (language * of_language + (1 - language) * of_all).astype(np.float32)


def _of_language(scores: Matrix, company: Company, is_chinese: bool) -> "_Place":
    members = company.is_chinese if is_chinese else ~company.is_chinese
    background = company.background[company.background_is_chinese == is_chinese]
    return _Place.of(scores, members & company.is_alive, background)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where scores lie, and how far apart."""

    mean: float
    spread: float

    @classmethod
    def of(cls, scores: Matrix, members: Flags, background: Matrix) -> "_Place":
        weights = members.astype(np.float32)
        count = np.count_nonzero(members) + len(background)
        if not count:
            return cls(0.0, math.inf)  # who has no company deviates from nothing
        with one_thread():
            mean = (float(scores @ weights) + float(background.sum())) / count
            off = scores - np.float32(mean)
            off *= off
            squares = float(off @ weights) + float(np.square(background - np.float32(mean)).sum())
        spread = math.sqrt(squares / count)
        return cls(mean, spread if spread > _LEAST_SPREAD else 1.0)


def _spread(values: Matrix) -> float:
    spread = float(values.std())
    return spread if spread > _LEAST_SPREAD else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruler:
    """How an embedder's cosines spread, so that one calibration fits them all."""

    mean: float
    spread: float

    @classmethod
    def of(cls, skills: Matrix, small_talk: Matrix) -> "Ruler":
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
class Curve:
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
class Calibration:
    """How sure one can be, fitted to requests with a skill, without, and for one not there."""

    is_task: Curve = Curve(near=3.25, small_talk=-4.03, size=-0.53, bias=5.6)
    """That something is to be done, rather than talked about."""
    is_fitting: Curve = Curve(near=2.88, bias=-6.46)
    """That this skill does it."""

    def confidence(self, near: float, small_talk: float, count: int) -> float:
        """The chance that a hit is what was asked for, in 0..1."""
        task = self.is_task.chance(near, small_talk, count)
        return task * self.is_fitting.chance(near, small_talk, count)
