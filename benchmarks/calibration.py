"""Confidence calibration: fit the logistic regression, and evaluate it on held-out requests.

Fitted to the best hits of requests in libraries of 1 to 6,000 skills: everyday requests (the half
for fitting), those for everyday skills that training kept back, with messages on their subjects,
requests for skills of the corpus, the same where the right skill is missing, and requests that need
none. Evaluated on the other half of the everyday set.
"""

import dataclasses
import random
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path

import anyio
import numpy as np

from apexbridge.evals.corpus import CorpusSkill, EvalQuery, read_corpus, read_queries
from apexbridge.evals.retrieval_eval import build_index
from apexbridge.retrieval.base import Embedder, Matrix, TextKind
from apexbridge.retrieval.confidence import ConfidenceCalibration, Evidence, profile_for
from apexbridge.retrieval.index import SkillIndex
from benchmarks.everyday import (
    Case,
    EverydayRequest,
    EverydaySet,
    cases,
    libraries,
    print_cases,
    print_reliability,
    read_everyday,
)
from benchmarks.logistic_regression import Numbers, fit_logistic
from training.held_out import HeldOut, is_validation
from training.jsonl import read_rows

SIZES = (1, 3, 10, 30, 300)
"""Sizes of the sampled libraries, half of which have the right skill."""
LIBRARY_REQUESTS = Path(__file__).parent / "requests" / "library.jsonl"
TRAINING_REQUESTS = Path(__file__).parent.parent / "training" / "requests"
RIDGE = 1.0

_NAMES = [field.name for field in dataclasses.fields(ConfidenceCalibration)]


def main(corpus: Path | None, queries: Path | None, embedder: Embedder) -> None:
    """Print the fitted weights, and the figures of the built-in and the fitted ones."""
    if corpus is None or queries is None:
        print("\nConfidence is not measured: --corpus and --queries")
        return
    anyio.run(_main, read_corpus(corpus), queries, MemoizingEmbedder(embedder))


class MemoizingEmbedder:
    """Embedder that embeds each document once, however many libraries have it."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._vectors = dict[str, Matrix]()
        self.close = embedder.close

    @property
    def id(self) -> str:
        """Id of the wrapped embedder."""
        return self._embedder.id

    @property
    def dimensions(self) -> int:
        """Size of every vector."""
        return self._embedder.dimensions

    async def embed(self, texts: Sequence[str], *, kind: TextKind) -> Matrix:
        """Embed queries, and documents that are new."""
        if kind == "query":
            return await self._embedder.embed(texts, kind=kind)
        new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        self._vectors |= zip(new, await self._embedder.embed(new, kind=kind), strict=True)
        return np.stack([self._vectors[text] for text in texts])


async def _main(corpus: Sequence[CorpusSkill], queries: Path, embedder: Embedder) -> None:
    everyday = read_everyday()
    known = {skill.id for skill in corpus}
    asked = [
        *read_queries(queries, known).queries,
        *read_queries(LIBRARY_REQUESTS, known).queries,
    ]
    found = await libraries(everyday, corpus, embedder)
    skills = [*everyday.skills, *corpus]
    whole = await build_index(skills, embedder)
    training = [case async for case in _training_cases(everyday, asked, found, skills, whole)]
    fitted = fit(training)
    print(
        f"\nConfidence, fitted to {len(training):,} best hits in libraries of 1 to {len(whole):,}"
    )
    print(f"{fitted}")
    built_in = profile_for(embedder.id).calibration
    for label, calibration in (("built in", built_in), ("fitted now", fitted)):
        print(f"\n{label}: everyday requests that were held out")
        every = list[Case]()
        for name, index in found.items():
            part = await cases(index, everyday.held_out)
            print_cases(name, part, calibration)
            every += part
        print_reliability(every, calibration)
        print(f"{label}: everyday requests that were fitted to")
        for name, index in found.items():
            print_cases(name, await cases(index, everyday.fitted), calibration)


async def _training_cases(
    everyday: EverydaySet,
    asked: Sequence[EvalQuery],
    found: Mapping[str, SkillIndex],
    skills: Sequence[CorpusSkill],
    whole: SkillIndex,
) -> AsyncIterator[Case]:
    for index in found.values():
        for case in await cases(index, everyday.fitted):
            yield case
    labelled = [(one, frozenset((one.skill, *one.alike)) - {""}) for one in everyday.fitted]
    kept_back = list(_kept_back(everyday))
    skills = [*skills, *(skill for skill, _ in kept_back)]
    corpus_requests = [
        (
            EverydayRequest(query=one.query, lang=one.lang or "", kind="library", skill="library"),
            frozenset(one.accept),
        )
        for one in asked
    ]
    for request, accept in corpus_requests:
        hit, evidence = await whole.best_evidence(request.query)
        yield Case(request, hit, evidence, hit in accept)
    # A message that needs no skill is tried beside the one on its subject, and without.
    beside = [(one, frozenset((skill.id,))) for skill, some in kept_back for one in some]
    chance = random.Random(3)  # noqa: S311  # no secret hangs on it
    for request, present in (*labelled, *corpus_requests, *beside):
        accept = present if request.skill else frozenset[str]()
        size = chance.choice(SIZES)
        others = [skill for skill in skills if skill.id not in present]
        right = [skill for skill in skills if skill.id in present]
        for is_there in (True, False) if right else (False,):
            some = chance.sample(others, size)
            if is_there:
                some[0] = chance.choice(right)
            index = await build_index(some, whole.embedder)
            hit, evidence = await index.best_evidence(request.query)
            yield Case(request, hit, evidence, hit in accept)


def _kept_back(everyday: EverydaySet) -> Iterator[tuple[CorpusSkill, list[EverydayRequest]]]:
    """Yield everyday skills that training kept back, each with some requests and a message."""
    held_out, chance = HeldOut(), random.Random(4)  # noqa: S311  # no secret hangs on it
    for skill in everyday.skills:
        held_out.add(skill.name, skill.description)
    for path in sorted(TRAINING_REQUESTS.glob("everyday-*.jsonl")):
        for row in read_rows(path):
            name, lang = row["name"], chance.choice(("en", "zh"))
            if not is_validation(name) or held_out.covers(name, row["en"], row["zh"]):
                continue
            asked = [*row["requests_en"], *row["requests_zh"]]
            near = [*row.get("near_en", ()), *row.get("near_zh", ())]
            said = [(text, name) for text in chance.sample(asked, 2)]
            said += [(text, "") for text in chance.sample(near, min(1, len(near)))]
            yield (
                CorpusSkill(id=name, name=name, description=row[lang]),
                [
                    EverydayRequest(query=text, lang=lang, kind="kept back", skill=skill)
                    for text, skill in said
                ],
            )


def features(evidence: Evidence) -> list[float]:
    """Return the inputs of the regression, in the order of the calibration's weights."""
    unit = {
        name: ConfidenceCalibration(**{**dict.fromkeys(_NAMES, 0.0), name: 1.0}) for name in _NAMES
    }
    return [unit[name].logit(evidence) for name in _NAMES]


def fit(found: Sequence[Case]) -> ConfidenceCalibration:
    """Fit the weights of the confidence."""
    given: Numbers = np.array([features(case.evidence) for case in found])
    is_right: Numbers = np.array([case.is_right for case in found], np.float64)
    weights = fit_logistic(given, is_right, np.ones(len(given)), RIDGE)
    values = (round(float(weight), 3) for weight in weights)
    return ConfidenceCalibration(**dict(zip(_NAMES, values, strict=True)))
