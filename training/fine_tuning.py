"""Fine-tuning stage: both encoders learn the mixture together, on one GPU.

They learn the ranking of a cross-encoder over lists of candidates. Requests for everyday skills and
for tools, which are few, also learn by InfoNCE, with the others of their kind as negatives. Kinds
of pairs that earlier stages learnt stay near their shipped vectors, a noisy request near that of
the clean one. Messages that need no skill are kept apart from the documents that they are near to,
and a linear probe on the query's vector must tell them from requests. The word table is frozen: one
file has that of both encoders.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from training.bi_encoder import Encoders, encode_all
from training.cross_encoder import CandidateLists
from training.mixture_file import FREE, OWN, Mixture, Numbers, PairSampler
from training.objectives import HEAT, Schedule, run

_LIST_SHARE = 0.4
"""Share of a batch that is lists; the rest is pairs of the free kinds, for InfoNCE."""
_MESSAGES = 0.25
"""Messages that need no skill, as a share of the batch."""
_NEAR_DUPLICATE = 0.93
"""Documents closer than this in a batch may answer as well: no negatives."""
_BACKWARD = 0.5
"""Weight of InfoNCE from document to request, in that of both directions."""
_MARGIN, _WIDTH = 0.45, 0.05
"""Highest similarity of a message to a document on its subject, and how soft that limit is."""
_APART, _PROBE, _PROBE_RATE = 0.1, 0.1, 1e-2
_DECAY = 0.99
"""Of the moving average of the weights, which is the result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossWeights:
    """Weights of terms of the loss; the ranking of the candidates has 1."""

    contrast: float = 0.5
    """Of InfoNCE."""
    pull: float = 2.0
    """Of the distance of requests to their shipped vectors."""
    document_pull: float = 4.0
    """Of the distance of documents to theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Text numbers of a batch."""

    asked: Numbers
    """Requests of the lists, some of them noisy."""
    rows: Numbers
    """Pairs of the lists."""
    candidates: Numbers
    scores: Tensor
    free_asked: Numbers
    free_rows: Numbers
    messages: Numbers


class BatchSampler:
    """Random batches of lists, free pairs and messages."""

    def __init__(self, mixture: Mixture, lists: CandidateLists, seed: int = 1) -> None:
        self._lists, self._messages = lists, mixture.messages
        free = mixture.pairs[mixture.pairs[:, 3] < FREE]
        self._free = PairSampler(free, mixture.variants, seed)
        self._listed = PairSampler(lists.pairs, mixture.variants, seed)

    def batch(self, size: int) -> Batch:
        """Sample a batch of about `size` requests."""
        lists, listed = self._lists, self._listed
        places = listed.places(int(size * _LIST_SHARE))
        rows = lists.pairs[places]
        free_asked, free_rows = self._free(size - len(places))
        chosen = listed.numbers.integers(0, len(self._messages), int(size * _MESSAGES))
        return Batch(
            asked=listed.noisy(rows[:, 0]),
            rows=rows,
            candidates=lists.candidates[places],
            scores=lists.scores[torch.as_tensor(places, device=lists.scores.device)],
            free_asked=free_asked,
            free_rows=free_rows,
            messages=self._messages[chosen],
        )


class FineTuningLoss:
    """Loss of a batch; keeps the shipped vectors of requests and documents."""

    def __init__(self, encoders: Encoders, mixture: Mixture, weights: LossWeights) -> None:
        self._encoders, self._mixture, self._weights = encoders, mixture, weights
        self._device = encoders.probe.weight.device
        bound = mixture.pairs[mixture.pairs[:, 3] >= FREE]
        self._goals, self._places = (
            self._by_number(numbers, encode_all(encode, mixture.texts, numbers))
            for numbers, encode in (
                (np.unique(bound[:, 0]), encoders.ask),
                (np.unique(bound[:, 1]), encoders.find),
            )
        )

    def _by_number(self, numbers: Numbers, vectors: Tensor) -> Tensor:
        size = (len(self._mixture.texts.starts) - 1, vectors.shape[1])
        every = torch.zeros(size, dtype=torch.half, device=self._device)
        every[self._on_device(numbers)] = vectors
        return every

    def _on_device(self, numbers: NDArray[np.generic]) -> Tensor:
        return torch.as_tensor(numbers, device=self._device)

    def __call__(self, batch: Batch) -> Tensor:
        """Compute the loss."""
        near = batch.messages[batch.messages[:, 1] >= 0]
        asked, free, idle, beside = self._ask(
            batch.asked, batch.free_asked, batch.messages[:, 0], near[:, 0]
        )
        listed, found, *subjects = self._find(
            batch.candidates.ravel(), batch.free_rows[:, 1], near[:, 1], near[:, 2]
        )
        candidates = listed.view(*batch.candidates.shape, -1)
        own = torch.cat((free, asked[self._on_device(batch.rows[:, 3] < OWN)]))
        apart = sum((_excess((beside * one).sum(1)) for one in subjects), torch.zeros(()))
        weights = self._weights
        return (
            self._ranking(asked, candidates, batch.scores)
            + weights.contrast * self._contrast(free, found, batch.free_rows)
            + weights.pull * self._distance(asked, self._goals, batch.rows[:, 0], batch)
            + weights.document_pull
            * self._distance(candidates[:, 0], self._places, batch.rows[:, 1], batch)
            + _APART * apart
            + _PROBE * self._told_apart(own, idle)
        )

    def _ask(self, *numbers: Numbers) -> tuple[Tensor, ...]:
        encoded = self._encoders.ask(self._mixture.texts, np.concatenate(numbers))
        return torch.split(encoded, list(map(len, numbers)))

    def _find(self, *numbers: Numbers) -> tuple[Tensor, ...]:
        """Encode documents, each once."""
        unique, places = np.unique(np.concatenate(numbers), return_inverse=True)
        encoded = self._encoders.find(self._mixture.texts, unique)
        return torch.split(encoded[self._on_device(places)], list(map(len, numbers)))

    def _ranking(self, asked: Tensor, candidates: Tensor, goal: Tensor) -> Tensor:
        """KL divergence from the teacher's ranking of the candidates."""
        own = torch.einsum("qd,qkd->qk", asked, candidates) / HEAT
        ours, theirs = (functional.log_softmax(scores, dim=1) for scores in (own, goal))
        return functional.kl_div(ours, theirs, reduction="batchmean", log_target=True)

    def _contrast(self, asked: Tensor, found: Tensor, rows: Numbers) -> Tensor:
        fixed = found.detach()
        same = fixed @ fixed.T > _NEAR_DUPLICATE
        for column in (0, 1, 2):
            row = self._on_device(rows[:, column])
            same |= row[:, None] == row
        same.fill_diagonal_(fill_value=False)
        scores = (asked @ found.T / HEAT).masked_fill(same, -1e4)
        goal = torch.arange(len(asked), device=self._device)
        forward = functional.cross_entropy(scores, goal)
        return forward + _BACKWARD * functional.cross_entropy(scores.T, goal)

    def _distance(self, own: Tensor, goals: Tensor, numbers: Numbers, batch: Batch) -> Tensor:
        goal = functional.normalize(goals[self._on_device(numbers)].float(), dim=1)
        is_bound = self._on_device(batch.rows[:, 3] >= FREE)
        return ((1 - (own * goal).sum(1)) * is_bound).sum() / len(own)

    def _told_apart(self, asked: Tensor, idle: Tensor) -> Tensor:
        logits = self._encoders.probe(torch.cat((asked, idle)))[:, 0]
        is_request = torch.arange(len(logits), device=self._device) < len(asked)
        weight = torch.where(is_request, 0.5 / len(asked), 0.5 / len(idle))
        return functional.binary_cross_entropy_with_logits(
            logits, is_request.float(), weight, reduction="sum"
        )


def _excess(similarity: Tensor) -> Tensor:
    if not len(similarity):
        return similarity.sum()
    return _WIDTH * functional.softplus((similarity - _MARGIN) / _WIDTH).mean()


def learn_mixture(
    encoders: Encoders,
    mixture: Mixture,
    sampler: BatchSampler,
    plan: Schedule,
    document_rate: float,
    weights: LossWeights,
) -> Encoders:
    """Train both encoders; return the moving average of the weights."""
    loss = FineTuningLoss(encoders, mixture, weights)
    average = torch.optim.swa_utils.AveragedModel(
        encoders,
        multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(_DECAY),  # pyright: ignore[reportUnknownArgumentType]
    )
    run(
        plan,
        [encoders.queries, encoders.documents, encoders.probe],
        lambda: loss(sampler.batch(plan.batch)),
        "fine-tuning",
        rates=(plan.rate, document_rate, _PROBE_RATE),
        after_step=lambda _: average.update_parameters(encoders),
    )
    assert isinstance(average.module, Encoders)  # noqa: S101  # a copy of them
    return average.module
