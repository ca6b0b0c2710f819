"""Everyday stage: both encoders learn requests of daily life, which earlier data had as small talk.

Query and document encoder are trained together by InfoNCE, with negatives from the batch, a random
sample of the request pool, and hard negatives mined from a larger one. Pool requests, pool
documents and small talk are distilled to their shipped vectors. Everyday ones are not: those
vectors are what is wrong. Document vectors change, so that every index has to be rebuilt.
"""

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from apexbridge.retrieval.skill_document import SkillText, main_text
from training.encoder import Encoder
from training.jsonl import Row, read_rows
from training.objectives import HEAT, Schedule, run
from training.request_pool import Pool, Vectors
from training.token_table import DOCUMENT_TOKENS, padded, read_tokenizer, token_ids
from training.typos import Typos

SHARES = {
    "written": 0.40,
    "thing": 0.25,
    "framed": 0.07,
    "mined A": 0.06,
    "mined B": 0.08,
    "mined across": 0.06,
    "segment across": 0.03,
    "name": 0.03,
    "renamed": 0.02,
}
"""Shares of the kinds of pool pairs: more written requests than in the robustness stage."""
_EVERYDAY, _CLEAN, _MISSPELT, _IDLE = 40, 48, 28, 14
"""Batch: everyday requests, pool requests without and with typing errors, small talk."""
_EVERYDAY_TYPOS = 0.15
_RATE, _DOCUMENT_RATE = 1e-4, 5e-5
"""Learning rates: documents of other subjects should move little."""
_NEGATIVES, _MINED, _HARD = 4_000, 16_000, 6
"""Random negatives, the sample that hard ones are mined from, and hard ones for each request."""
_NEAR_DUPLICATE, _RELATED = 0.93, 0.9
"""Documents closer than this, in the batch and in the pool, may answer as well: no negatives."""
_BACKWARD, _PULL, _DOCUMENT_PULL, _IDLE_PULL = 0.5, 1.0, 4.0, 0.5
"""Weights: document to request in InfoNCE; distance of requests, documents and small talk."""
_IDLE_MARGIN, _IDLE_WIDTH = 0.45, 0.05
"""Highest similarity of small talk to everyday documents, and how soft that limit is."""
_FIRST_GROUP = -1_000
"""Groups of everyday skills count down from here; those of the pool are above."""
_REQUEST_TOKENS = 128
_KEPT_BACK = 10
_PART = 32


@dataclass(frozen=True, slots=True)
class EverydaySkill:
    """A skill of daily life: its document and its requests, each in English and Chinese."""

    documents: tuple[str, str]
    requests: tuple[Sequence[str], Sequence[str]]


def read_skills(requests: Path) -> tuple[list[EverydaySkill], list[EverydaySkill]]:
    """Read the everyday skills for training, and every tenth one, kept back for validation."""
    paths = sorted(requests.glob("everyday-*.jsonl"))
    rows = [row for path in paths for row in read_rows(path)]
    kept_back = rows[::_KEPT_BACK]
    names = {row["name"] for row in kept_back}  # a few skills occur twice, under the same name
    return (
        [_skill(row) for row in rows if row["name"] not in names],
        [_skill(row) for row in kept_back],
    )


def _skill(row: Row) -> EverydaySkill:
    english, chinese = (
        main_text(SkillText(name=row["name"], summary=row[language])) for language in ("en", "zh")
    )
    return EverydaySkill((english, chinese), (row["requests_en"], row["requests_zh"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Requests with their documents, row by row, the everyday ones first; and small talk."""

    requests: Sequence[str]
    documents: Sequence[str]
    groups: Tensor
    everyday: int
    """Number of everyday rows; the rows after them have vectors to stay near."""
    request_goals: Tensor
    document_goals: Tensor
    small_talk: Sequence[str]
    small_talk_goals: Tensor


class Sampler:
    """Random batches of everyday skills and of the request pool."""

    def __init__(
        self, pool: Pool, skills: Sequence[EverydaySkill], typos: Typos, seed: int = 1
    ) -> None:
        self._pool, self._skills, self._typos = pool, skills, typos
        self._chance = random.Random(seed)  # noqa: S311  # no secret hangs on it
        self._numbers = np.random.default_rng(seed)

    def batch(self) -> Batch:
        """Sample a batch; a skill occurs in it once, a pool pair by the share of its kind."""
        pool, numbers = self._pool, self._numbers
        count = min(_EVERYDAY, len(self._skills))
        chosen = numbers.choice(len(self._skills), count, replace=False).tolist()
        asked, found = zip(*map(self._everyday, chosen), strict=True)
        places = numbers.choice(len(pool.pairs), _CLEAN + _MISSPELT, p=pool.shares)
        rows: list[list[int]] = pool.pairs[places].tolist()
        texts = [pool.requests[request] for request, _, _ in rows]
        texts[_CLEAN:] = [self._typos.misspelt(text, self._chance) for text in texts[_CLEAN:]]
        idle: list[int] = numbers.integers(0, len(pool.small_talk), _IDLE).tolist()
        own_groups = [_FIRST_GROUP - place for place in chosen]
        return Batch(
            requests=[*asked, *texts],
            documents=[*found, *(pool.documents[document] for _, document, _ in rows)],
            groups=torch.tensor([*own_groups, *(group for _, _, group in rows)]),
            everyday=count,
            request_goals=_tensor(pool.request_vectors[[request for request, _, _ in rows]]),
            document_goals=_tensor(pool.document_vectors[[document for _, document, _ in rows]]),
            small_talk=[pool.small_talk[one] for one in idle],
            small_talk_goals=_tensor(pool.small_talk_vectors[idle]),
        )

    def _everyday(self, place: int) -> tuple[str, str]:
        """Choose a request of a skill, in either language, and its document, in either."""
        skill, chance = self._skills[place], self._chance
        text = chance.choice(chance.choice(skill.requests))
        if chance.random() < _EVERYDAY_TYPOS:
            text = self._typos.misspelt(text, chance)
        return text, chance.choice(skill.documents)


class JointLoss:
    """InfoNCE of requests and documents, distillation of the pool, and small talk kept apart."""

    def __init__(self, pool: Pool) -> None:
        self._documents = _tensor(pool.document_vectors)
        groups = np.zeros(len(pool.documents), np.int64)
        groups[pool.pairs[:, 1]] = pool.pairs[:, 2]  # each document of the pool is in a pair
        self._groups = torch.as_tensor(groups)

    def __call__(self, asked: Tensor, found: Tensor, idle: Tensor, batch: Batch) -> Tensor:
        """Compute the loss of the vectors of requests, documents and small talk."""
        first = batch.everyday
        apart = ((idle @ found[:first].T).amax(1) - _IDLE_MARGIN) / _IDLE_WIDTH
        return (
            self._contrast(asked, found, batch.groups)
            + _PULL * _distance(asked[first:], batch.request_goals)
            + _DOCUMENT_PULL * _distance(found[first:], batch.document_goals)
            + _IDLE_PULL * _distance(idle, batch.small_talk_goals)
            + _IDLE_WIDTH * functional.softplus(apart).mean()
        )

    def _contrast(self, asked: Tensor, found: Tensor, groups: Tensor) -> Tensor:
        fixed = found.detach()
        same = (groups[:, None] == groups) | (fixed @ fixed.T > _NEAR_DUPLICATE)
        same.fill_diagonal_(fill_value=False)
        inside = (asked @ found.T / HEAT).masked_fill(same, -1e4)
        places = torch.randint(len(self._documents), (_NEGATIVES,))
        others = self._documents[places]
        drawn = self._masked(asked @ others.T, fixed @ others.T, groups, places)
        places = self._mine(asked)
        others = self._documents[places]
        scores, near = ((one[:, None] * others).sum(-1) for one in (asked, fixed))
        hard = self._masked(scores, near, groups, places)
        goal = torch.arange(len(asked))
        forward = functional.cross_entropy(torch.cat((inside, drawn, hard), dim=1), goal)
        return forward + _BACKWARD * functional.cross_entropy(inside.T, goal)

    def _mine(self, asked: Tensor) -> Tensor:
        """Mine the pool documents nearest to each request, with the encoder as it is now."""
        sample = torch.randint(len(self._documents), (_MINED,))
        with torch.no_grad():
            near = (asked @ self._documents[sample].T).topk(_HARD, dim=1).indices
        return sample[near]

    def _masked(self, scores: Tensor, near: Tensor, groups: Tensor, places: Tensor) -> Tensor:
        """Scale the scores of pool documents, and mask those that may answer as well."""
        same = (groups[:, None] == self._groups[places]) | (near > _RELATED)
        return (scores / HEAT).masked_fill(same, -1e4)


class JointEncoders:
    """Query and document encoder with frozen word tables, on threads of the processor."""

    def __init__(self, queries: Encoder, documents: Encoder, tokenizer: Path, threads: int) -> None:
        self.queries, self.documents = queries, documents
        for encoder in (queries, documents):
            encoder.words.weight.requires_grad_(False)  # one file has the table of both
        self._cut, self._words = read_tokenizer(tokenizer)
        self._pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))

    def ask(self, texts: Sequence[str]) -> Tensor:
        """Encode queries."""
        return self._encode(self.queries, texts, _REQUEST_TOKENS)

    def find(self, texts: Sequence[str]) -> Tensor:
        """Encode documents."""
        return self._encode(self.documents, texts, DOCUMENT_TOKENS)

    def _encode(self, encoder: Encoder, texts: Sequence[str], limit: int) -> Tensor:
        rows = token_ids(self._cut, self._words, texts, limit)
        order = sorted(range(len(rows)), key=lambda at: len(rows[at]))
        parts = [order[start : start + _PART] for start in range(0, len(order), _PART)]
        is_learning = torch.is_grad_enabled()  # a setting of each thread

        def work(part: Sequence[int]) -> Tensor:
            with torch.set_grad_enabled(is_learning), torch.autocast("cpu", torch.bfloat16):
                return encoder(*padded([rows[at] for at in part]))

        return torch.cat(list(self._pool.map(work, parts)))[torch.as_tensor(np.argsort(order))]


def hit_at_1(encoders: JointEncoders, skills: Sequence[EverydaySkill]) -> tuple[float, float]:
    """Measure how often a skill's own document is the nearest, of English and of Chinese ones."""
    own = torch.tensor(
        [place for place, one in enumerate(skills) for texts in one.requests for _ in texts]
    )
    with torch.no_grad():
        asked = encoders.ask([text for one in skills for texts in one.requests for text in texts])
        shares = [
            float(((asked @ encoders.find(documents).T).argmax(1) == own).float().mean())
            for documents in zip(*(one.documents for one in skills), strict=True)
        ]
    return shares[0], shares[1]


def learn_everyday(encoders: JointEncoders, examples: Sampler, pool: Pool, steps: int) -> None:
    """Train both encoders on everyday requests, on the processor."""
    joint = JointLoss(pool)

    def loss() -> Tensor:
        batch = examples.batch()
        asked = encoders.ask([*batch.requests, *batch.small_talk])
        found = encoders.find(batch.documents)
        count = len(batch.requests)
        return joint(asked[:count], found, asked[count:], batch)

    plan = Schedule(steps=steps, rate=_RATE)
    both = [encoders.queries, encoders.documents]
    run(plan, both, loss, "everyday", rates=(_RATE, _DOCUMENT_RATE))


def _distance(own: Tensor, goal: Tensor) -> Tensor:
    return (1 - (own * goal).sum(1)).mean()


def _tensor(vectors: Vectors) -> Tensor:
    return torch.as_tensor(vectors.astype(np.float32))
