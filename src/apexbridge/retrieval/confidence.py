"""Confidence: the calibrated probability that the best hit serves the query.

A logistic regression over the evidence for a hit. Cosines have no absolute scale, so that they are
expressed in the embedder's own: standard deviations from the cosine of two unrelated texts.
Whether the query is a task or conversation is one part of the evidence among others, since weather
or a greeting is small talk for most libraries and the very subject of a skill in others.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from apexbridge.retrieval.base import Matrix
from apexbridge.retrieval.fusion import FusionWeights
from apexbridge.retrieval.skill_document import MAX_VIEWS

_MIN_SPREAD = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class CosineScale:
    """Mean and spread of an embedder's cosines, so that one calibration fits all embedders."""

    mean: float
    spread: float

    @classmethod
    def fit(cls, cosines: Matrix) -> "CosineScale":
        """Fit to the cosines of the reference texts, which are the same for every embedder."""
        others = cosines[cosines < 1 - 1e-4]  # a text is not compared with itself
        if not len(others):
            return cls(mean=0.0, spread=1.0)
        spread = float(others.std())
        return cls(mean=float(others.mean()), spread=spread if spread > _MIN_SPREAD else 1.0)

    def standardize(self, cosine: float) -> float:
        """Convert a cosine to standard deviations from that of two unrelated texts."""
        return (cosine - self.mean) / self.spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Evidence that a hit serves a query."""

    near: float
    """Cosine of query and hit, standardized."""
    meaning: float = 0.0
    """Z-score of the hit: how far it stands out from all other skills and the reference texts."""
    task: float = 0.0
    """Log-odds that the query asks for something to be done, and is no conversation."""
    lexical: float = 0.0
    """BM25 share, weighted by the evidence in the query's words."""
    name: float = 0.0
    """How clearly the query mentions the hit by its name, in 0..1."""
    length: int = 1
    """Bytes of the query: a long one has more in common with everything."""
    count: int = 1
    """Number of skills: the nearest of many is weaker evidence than the nearest of few."""


_MAX_TASK = 4.0
"""Beyond this the classifier is sure, and a skill that is near must still outweigh it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfidenceCalibration:
    """Weights of a logistic regression, fitted by `python -m benchmarks calibration`."""

    bias: float = -1.205
    near: float = 1.348
    meaning: float = 0.0
    task: float = 0.455
    lexical: float = 1.412
    name: float = 1.896
    length: float = -0.149
    """For ln(1 + length)."""
    size: float = -0.412
    """For ln(count)."""

    def confidence(self, evidence: Evidence) -> float:
        """Return the probability, in 0..1, that the hit serves the query."""
        return 1 / (1 + math.exp(-max(-50.0, min(50.0, self.logit(evidence)))))

    def logit(self, evidence: Evidence) -> float:
        """Return the weighted sum of the evidence: the log-odds."""
        return (
            self.bias
            + self.near * evidence.near
            + self.meaning * evidence.meaning
            + self.task * max(-_MAX_TASK, min(_MAX_TASK, evidence.task))
            + self.lexical * evidence.lexical
            + self.name * evidence.name
            + self.length * math.log1p(evidence.length)
            + self.size * math.log(evidence.count)
        )


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
    fusion=FusionWeights(view=0.0, lexical=3.5, background=0.8),
    calibration=ConfidenceCalibration(
        bias=-2.57,
        near=2.242,
        meaning=0.644,
        task=0.497,
        lexical=0.869,
        name=0.379,
        length=-0.54,
        size=-0.478,
    ),
)
_PROFILES: Mapping[str, EmbedderProfile] = {"apexbridge-retriever": DEFAULT_PROFILE}
"""By the prefix of an embedder's id; the generic weights were fitted to USE."""


def profile_for(embedder_id: str) -> EmbedderProfile:
    """Look up the profile of an embedder by its id."""
    return _PROFILES.get(embedder_id.partition(":")[0], GENERIC_PROFILE)
