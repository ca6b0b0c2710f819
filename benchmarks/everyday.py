"""Everyday requests: small skills in libraries of several sizes, and requests that need none.

The skills and requests are in `requests/everyday`. Every second skill, with its requests, and every
second request that needs none are for fitting; the others are held out.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, TypeAdapter

from apexbridge.evals.corpus import CorpusSkill
from apexbridge.evals.retrieval_eval import build_index
from apexbridge.retrieval.base import Embedder
from apexbridge.retrieval.confidence import ConfidenceCalibration, Evidence
from apexbridge.retrieval.index import SkillIndex

FOLDER = Path(__file__).parent / "requests" / "everyday"
THRESHOLD = 0.5
BINS = 10
MIDDLE_SIZE = 106


class EverydayRequest(BaseModel):
    """A request; `skill` is empty if it needs none, `alike` are equally good library skills."""

    query: str
    lang: str
    kind: str
    skill: str = ""
    alike: tuple[str, ...] = ()


class Case(NamedTuple):
    """The best hit for a request in one library."""

    request: EverydayRequest
    hit: str
    evidence: Evidence
    is_right: bool


@dataclass(frozen=True, slots=True)
class EverydaySet:
    """Skills and requests, of which one half is held out."""

    skills: Sequence[CorpusSkill]
    fitted: Sequence[EverydayRequest]
    held_out: Sequence[EverydayRequest]


def read_everyday() -> EverydaySet:
    """Read the set and split it: requests by their skill, the others in turn."""
    skills = [CorpusSkill.model_validate_json(line) for line in _lines("skills.jsonl")]
    half = {skill.id for skill in skills[::2]}
    parse = TypeAdapter(EverydayRequest).validate_json
    asked, idle = (list(map(parse, _lines(name))) for name in ("requests.jsonl", "none.jsonl"))
    return EverydaySet(
        skills=skills,
        fitted=[*(one for one in asked if one.skill in half), *idle[::2]],
        held_out=[*(one for one in asked if one.skill not in half), *idle[1::2]],
    )


def _lines(name: str) -> Iterator[bytes]:
    return iter((FOLDER / name).read_bytes().splitlines())


async def libraries(
    everyday: EverydaySet, corpus: Sequence[CorpusSkill], embedder: Embedder
) -> Mapping[str, SkillIndex]:
    """Index the everyday skills alone, among a hundred and among all of the corpus."""
    others = random.Random(5).sample(  # noqa: S311  # no secret hangs on it
        corpus, max(0, min(len(corpus), MIDDLE_SIZE - len(everyday.skills)))
    )
    return {
        "alone": await build_index(everyday.skills, embedder),
        "among 106": await build_index([*everyday.skills, *others], embedder),
        f"among {len(corpus):,}": await build_index(
            [*everyday.skills, *corpus[len(everyday.skills) :]], embedder
        ),
    }


async def cases(index: SkillIndex, requests: Sequence[EverydayRequest]) -> list[Case]:
    """Search for every request."""
    found = list[Case]()
    for request in requests:
        hit, evidence = await index.best_evidence(request.query)
        is_right = bool(request.skill) and hit in (request.skill, *request.alike)
        found.append(Case(request, hit, evidence, is_right))
    return found


def print_cases(name: str, found: Sequence[Case], calibration: ConfidenceCalibration) -> None:
    """Print how often the right skill is first and offered, and the false offers."""
    needing = [case for case in found if case.request.skill]
    right = [case for case in needing if case.is_right]
    idle = [case for case in found if not case.request.skill]
    offered = [case for case in right if calibration.confidence(case.evidence) >= THRESHOLD]
    false = [case for case in idle if calibration.confidence(case.evidence) >= THRESHOLD]
    print(
        f"{name:16} first {len(right) / len(needing):.3f}, offered of those "
        f"{len(offered) / max(1, len(right)):.3f}, false offers {len(false) / len(idle):.3f}"
        f"  ({len(needing)} and {len(idle)} requests)"
    )


def reliability(
    found: Sequence[Case], calibration: ConfidenceCalibration
) -> tuple[float, list[tuple[int, float, float]]]:
    """Return the expected calibration error, and number, mean confidence and share right a bin."""
    rated = [(calibration.confidence(case.evidence), case.is_right) for case in found]
    bins = list[tuple[int, float, float]]()
    for number in range(BINS):
        part = [one for one in rated if min(BINS - 1, int(one[0] * BINS)) == number]
        if part:
            mean = sum(sure for sure, _ in part) / len(part)
            bins.append((len(part), mean, sum(right for _, right in part) / len(part)))
        else:
            bins.append((0, 0.0, 0.0))
    error = sum(count * abs(mean - share) for count, mean, share in bins) / len(rated)
    return error, bins


def print_reliability(found: Sequence[Case], calibration: ConfidenceCalibration) -> None:
    """Print the reliability diagram."""
    error, bins = reliability(found, calibration)
    print(f"expected calibration error {error:.3f}, {len(found)} cases")
    for number, (count, mean, share) in enumerate(bins):
        bar = "#" * round(40 * share)
        label = f"{number / BINS:.1f}-{(number + 1) / BINS:.1f}"
        print(f"  {label}  {count:5}  mean {mean:.2f}  right {share:.2f}  {bar}")
