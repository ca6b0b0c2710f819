"""What was fitted to each embedder: how its vectors are weighed, and how sure they make one.

An embedder that is not listed gets the general numbers. `python -m benchmarks retrieval_quality
--cross-validate` chooses the weights anew.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from apexbridge.retrieval.fuse import Calibration, Curve, Fusion
from apexbridge.retrieval.text import MAX_VIEWS


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """The numbers that belong to one embedder."""

    fusion: Fusion
    calibration: Calibration
    views: int = MAX_VIEWS
    """Views that get a vector of their own: each costs as much as a short document."""


GENERAL = Tuning(fusion=Fusion(), calibration=Calibration())
OWN = Tuning(
    views=0,
    fusion=Fusion(view=0.0, lexical=3.0),
    calibration=Calibration(
        is_task=Curve(near=1.05, small_talk=-13.74, size=0.47, bias=23.69),
        is_fitting=Curve(near=3.19, bias=-3.8),
    ),
)
USE = Tuning(
    fusion=Fusion(view=1.0, lexical=6.0),
    calibration=Calibration(
        is_task=Curve(near=3.25, small_talk=-4.03, size=-0.53, bias=5.6),
        is_fitting=Curve(near=2.88, bias=-6.46),
    ),
)
_OF_KIND: Mapping[str, Tuning] = {"apexbridge-retriever": OWN, "use-multilingual-3": USE}
"""By what an embedder's id begins with."""


def tuning_of(embedder_id: str) -> Tuning:
    """The numbers for the embedder of this id."""
    return _OF_KIND.get(embedder_id.partition(":")[0], GENERAL)
