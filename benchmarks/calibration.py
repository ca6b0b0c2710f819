"""Confidence calibration: fit the logistic curves, and evaluate them on held-out queries.

Libraries of several sizes are sampled from the skills, with or without an accepted skill. One curve
learns whether a query is a task at all, the other whether the best hit fits it.
"""

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apexbridge.evals.corpus import EvalQuery
from apexbridge.retrieval.fusion import ConfidenceCalibration, LogisticCurve, profile_for
from apexbridge.retrieval.index import SkillIndex
from benchmarks.no_skill_detection import auroc, read_queries

SIZES = (6, 50, 600)
DRAWS = 4
FOLDS = 6
STEPS = 30
RIDGE = 1e-3
BEST = 3
"""Accepted skills that count, by rank: the others fit only loosely."""

Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A query in a library, and its best hit."""

    text: str
    near: float
    small_talk: float
    count: int
    is_task: bool
    is_fitting: bool | None
    """None if no accepted skills are known."""


async def calibrate(index: SkillIndex, asked: Sequence[EvalQuery]) -> None:
    """Print the fitted curves, and their accuracy on held-out queries."""
    cases = await _cases(index, asked)
    fitted = fit(cases)
    held_out = list[tuple[Case, float]]()
    texts = sorted({case.text for case in cases})
    random.Random(1).shuffle(texts)  # noqa: S311  # no secret hangs on it
    for fold in range(FOLDS):
        test = set(texts[fold::FOLDS])
        curves = fit([case for case in cases if case.text not in test])
        held_out += [(case, _sure(curves, case)) for case in cases if case.text in test]
    print(f"\nConfidence, {FOLDS}-fold cross-validation over {len(texts)} requests")
    for count in sorted({case.count for case in cases}):
        _show([(case, sure) for case, sure in held_out if case.count == count], count)
    print(f"is_task={fitted.is_task}\nis_fitting={fitted.is_fitting}")
    built_in = profile_for(index.store.embedder_id).calibration
    print("as built in, on all requests")
    for count in sorted({case.count for case in cases}):
        _show([(case, _sure(built_in, case)) for case in cases if case.count == count], count)


def fit(cases: Sequence[Case]) -> ConfidenceCalibration:
    """Fit both curves independently."""
    task = _logistic(
        np.array([[case.near, case.small_talk, math.log(case.count), 1.0] for case in cases]),
        np.array([case.is_task for case in cases], np.float64),
    )
    known = [case for case in cases if case.is_task and case.is_fitting is not None]
    fitting = _logistic(
        np.array([[case.near, 1.0] for case in known]),
        np.array([bool(case.is_fitting) for case in known], np.float64),
    )
    return ConfidenceCalibration(
        is_task=LogisticCurve(near=task[0], small_talk=task[1], size=task[2], bias=task[3]),
        is_fitting=LogisticCurve(near=fitting[0], bias=fitting[1]),
    )


def _logistic(given: Numbers, is_true: Numbers) -> list[float]:
    """Fit a logistic regression by Newton's method, with balanced classes."""
    share = float(is_true.mean())
    shares = np.where(is_true > 0, 0.5 / share, 0.5 / (1 - share))
    weights: Numbers = np.zeros_like(given[0], np.float64)
    for _ in range(STEPS):
        weights = weights - _step(given, is_true, shares, weights)
    return [round(float(weight), 2) for weight in weights]


def _step(given: Numbers, is_true: Numbers, shares: Numbers, weights: Numbers) -> Numbers:
    chance: Numbers = 1 / (1 + np.exp(-np.clip(given @ weights, -50, 50)))
    slope: Numbers = given.T @ (shares * (chance - is_true)) + RIDGE * weights
    bend: Numbers = (given * (shares * chance * (1 - chance))[:, None]).T @ given
    return np.linalg.solve(bend + RIDGE * np.eye(len(weights)), slope).astype(np.float64)


async def _cases(index: SkillIndex, asked: Sequence[EvalQuery]) -> list[Case]:
    chance = random.Random(2)  # noqa: S311
    names = index.memory.names
    row_of = {name: row for row, name in enumerate(names)}
    groups = (
        ((query.query, {row_of[name] for name in query.accept}, True) for query in asked),
        ((text, None, True) for text in read_queries("short.txt")),
        ((text, None, False) for text in read_queries("no_skill.txt")),
    )
    found = list[Case]()
    for text, accept, is_task in (case for group in groups for case in group):
        near, small_talk, total = await index.score_all(text)
        is_known = accept is not None or not is_task
        ordered = sorted(accept or (), key=lambda row: -float(total[row]))
        for rows in _libraries(len(names), ordered, chance, is_drawn=is_known):
            best = rows[int(total[rows].argmax())]
            found.append(
                Case(
                    text=text,
                    near=float(near[best]),
                    small_talk=small_talk,
                    count=len(rows),
                    is_task=is_task,
                    is_fitting=None if accept is None else int(best) in accept,
                )
            )
    return found


def _libraries(
    size: int, accept: Sequence[int], chance: random.Random, *, is_drawn: bool
) -> Iterable[NDArray[np.intp]]:
    """Yield rows of libraries: all, and samples, half of which have an accepted skill."""
    yield np.arange(size)
    if not is_drawn:
        return
    others = sorted(set(range(size)) - set(accept))
    for count in SIZES:
        for draw in range(DRAWS):
            rows = chance.sample(others, count)
            if accept and draw % 2:
                rows[0] = chance.choice(accept[:BEST])
            yield np.array(rows, np.intp)


def _sure(curves: ConfidenceCalibration, case: Case) -> float:
    return curves.confidence(case.near, case.small_talk, case.count)


def _show(judged: Sequence[tuple[Case, float]], count: int) -> None:
    tasks = [(case, sure) for case, sure in judged if case.is_task]
    needing = [(case, sure) for case, sure in tasks if case.is_fitting is not False]
    idle = [(case, sure) for case, sure in judged if not case.is_task]
    missing = [sure for case, sure in judged if case.is_fitting is False]
    parts = list[str]()
    for name, is_ascii in (("EN", True), ("ZH", False)):
        above = [sure for case, sure in needing if case.text.isascii() == is_ascii]
        below = [sure for case, sure in idle if case.text.isascii() == is_ascii]
        parts.append(f"{name} AUROC {auroc(above, below):.3f}")
    kept = np.mean([sure >= 0.5 for _, sure in needing])
    refused = np.mean([sure < 0.5 for _, sure in idle])
    wrong = np.mean([sure < 0.5 for sure in missing]) if missing else math.nan
    parts.append(f"right hit kept {kept:.2f}, small talk refused {refused:.2f}")
    print(f"{count:6} skills: {', '.join(parts)}, wrong hit refused {wrong:.2f}")
