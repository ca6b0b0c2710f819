"""Training stages: cross-lingual distillation, contrastive retrieval, and layer distillation."""

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from training.dataset import NO_SKILL, Dataset, Numbers
from training.encoder import Encoder
from training.token_table import DOCUMENT_TOKENS, QUERY_TOKENS

_PARTS = 3
"""Length buckets of a batch: more would compute less, and take longer."""
_NEAR_DUPLICATE = 0.97
HEAT = 0.03
PULL, _SPREAD = 4.0, 0.25
"""Weights of the distance to the teacher, and of the contrastive term."""
_NO_SKILL_SHARE = 0.03
_SWAPPED_ROWS, _SWAPPED_WORDS = 0.5, 0.15
_STIRRED_WORDS = 0.2
_FIRST_WORD = 4
"""Ids below are special tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Schedule of a stage: steps, batch size and learning rate."""

    steps: int
    batch: int = 4_096
    rate: float = 4e-4
    distil: float = 1.0
    """Weight of the distillation loss beside the contrastive one."""


class Trainer:
    """Trainer: an encoder, its training set and the device."""

    def __init__(
        self,
        encoder: Encoder,
        lesson: Dataset,
        device: torch.device,
        swaps: Numbers | None = None,
        *,
        seed: int = 1,
    ) -> None:
        self.encoder = encoder.to(device)
        self.lesson = lesson
        self.device = device
        self.chance = np.random.default_rng(seed)
        self._swaps = None if swaps is None else torch.as_tensor(swaps).to(device)
        """Translation of each word, or the word itself."""
        flat = lesson.texts.flat
        self._every = torch.as_tensor(flat[flat >= _FIRST_WORD].astype(np.int64)).to(device)
        """Words sampled by frequency."""

    def encode(self, numbers: Numbers, limit: int, *, is_mixed: bool = False) -> Tensor:
        """Encode texts to unit vectors; mixed, some words are replaced by translations."""
        parts, order = list[Tensor](), list[Numbers]()
        for places, given, is_word in self._given(numbers, limit):
            ids = self._mix(given) if is_mixed and self._swaps is not None else given
            parts.append(self._vectors(self.encoder, ids, is_word))
            order.append(places)
        return torch.cat(parts)[self._back(order)]

    def encode_stirred(
        self, numbers: Numbers, limit: int, teacher: Encoder
    ) -> tuple[Tensor, Tensor]:
        """Encode texts with random word replacements, by student and teacher."""
        own, goal, order = list[Tensor](), list[Tensor](), list[Numbers]()
        for places, given, is_word in self._given(numbers, limit):
            ids = self._stir(given, is_word)
            own.append(self._vectors(self.encoder, ids, is_word))
            with torch.no_grad():
                goal.append(self._vectors(teacher, ids, is_word))
            order.append(places)
        back = self._back(order)
        return torch.cat(own)[back], torch.cat(goal)[back]

    def _given(self, numbers: Numbers, limit: int) -> Iterator[tuple[Numbers, Tensor, Tensor]]:
        for places, ids, is_word in self.lesson.texts.groups(numbers, limit, _PARTS):
            yield (
                places,
                ids.to(self.device, non_blocking=True),
                is_word.to(self.device, non_blocking=True),
            )

    def _vectors(self, encoder: Encoder, ids: Tensor, is_word: Tensor) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16):
            return encoder(ids, is_word)

    def _back(self, order: list[Numbers]) -> Tensor:
        return torch.as_tensor(np.argsort(np.concatenate(order))).to(self.device)

    def _mix(self, ids: Tensor) -> Tensor:
        assert self._swaps is not None  # noqa: S101  # the only caller looked
        rows = torch.rand(len(ids), 1, device=self.device) < _SWAPPED_ROWS
        chosen = rows & (torch.rand(ids.shape, device=self.device) < _SWAPPED_WORDS)
        return torch.where(chosen, self._swaps[ids], ids)

    def _stir(self, ids: Tensor, is_word: Tensor) -> Tensor:
        """Replace random words; the special tokens stay."""
        inner = is_word.clone()
        inner[:, 0] = False
        inner[:, :-1] &= is_word[:, 1:]
        inner[:, -1] = False
        chosen = inner & (torch.rand(ids.shape, device=self.device) < _STIRRED_WORDS)
        others = self._every[torch.randint(len(self._every), ids.shape, device=self.device)]
        return torch.where(chosen, others, ids)


def run(
    plan: Schedule,
    encoders: Sequence[nn.Module],
    loss: Callable[[], Tensor],
    name: str,
    *,
    rates: Sequence[float] = (),
    after_step: Callable[[int], None] = lambda _: None,
) -> None:
    """Run the optimization steps of a stage, with warm-up and decay of the learning rate.

    `rates` are the learning rates of the encoders; without them, all have the plan's.
    """
    every = [p for encoder in encoders for p in encoder.parameters() if p.requires_grad]
    groups = list[dict[str, Any]]()
    for encoder, rate in zip(encoders, rates or [plan.rate] * len(encoders), strict=True):
        table = encoder.words.weight if isinstance(encoder, Encoder) else None
        others = [p for p in encoder.parameters() if p.requires_grad and p is not table]
        groups.append({"params": others, "lr": rate})
        if table is not None and table.requires_grad:
            groups.append({"params": [table], "lr": 2 * rate})
    optimiser = torch.optim.AdamW(groups, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    warm = max(1, plan.steps // 20)

    def pace(step: int) -> float:
        if step < warm:
            return (step + 1) / warm
        return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (step - warm) / (plan.steps - warm)))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, pace)
    begun = time.monotonic()
    for step in range(plan.steps):
        optimiser.zero_grad(set_to_none=True)
        lost = loss()
        if lost.requires_grad:  # else it was computed, and propagated back, part by part
            lost.backward()
        torch.nn.utils.clip_grad_norm_(every, 1.0)
        optimiser.step()
        schedule.step()
        after_step(step)
        if step % 50 == 0 or step == plan.steps - 1:
            took = time.monotonic() - begun
            sys.stdout.write(f"{name}: step {step}, loss {lost.item():.3f}, {took:.0f} s\n")
            sys.stdout.flush()


def vectors_of(school: Trainer, numbers: Numbers, limit: int, batch: int = 4_096) -> Tensor:
    """Encode many texts without gradients."""
    school.encoder.eval()
    with torch.no_grad():
        parts = [
            school.encode(numbers[start : start + batch], limit).half()
            for start in range(0, len(numbers), batch)
        ]
    school.encoder.train()
    return torch.cat(parts)


def learn_chinese(school: Trainer, teacher: Callable[[Numbers], Tensor], plan: Schedule) -> None:
    """Distil: both sides of a translation move to the teacher's vector of the English side."""
    lesson, chance = school.lesson, school.chance

    def loss() -> Tensor:
        rows = lesson.parallel[chance.integers(len(lesson.parallel), size=plan.batch)]
        more = lesson.alone[chance.integers(len(lesson.alone), size=plan.batch // 4)]
        english = np.concatenate((rows[:, 0], more))
        goal = teacher(english).float()
        own = school.encode(english, DOCUMENT_TOKENS)
        chinese = school.encode(rows[:, 1], DOCUMENT_TOKENS, is_mixed=True)
        near = (1 - (own * goal).sum(1)).mean() + (1 - (chinese * goal[: plan.batch]).sum(1)).mean()
        return PULL * near + _SPREAD * _apart(chinese, goal[: plan.batch], rows[:, 0])

    run(plan, [school.encoder], loss, "chinese")


def learn_answers(school: Trainer, teacher: Callable[[Numbers], Tensor], plan: Schedule) -> None:
    """Train contrastively: a query moves closer to its skill than to any other."""
    lesson, chance = school.lesson, school.chance

    def loss() -> Tensor:
        pairs = _with_small_talk(lesson, plan.batch, chance)
        asked = school.encode(pairs[:, 0], QUERY_TOKENS, is_mixed=True)
        found = school.encode(pairs[:, 1], DOCUMENT_TOKENS)
        lost = contrast(asked, found, pairs)
        if plan.distil:
            lost = lost + plan.distil * _stay(school, teacher, plan.batch // 4)
        return lost

    run(plan, [school.encoder], loss, "answers")


class Teacher:
    """Full encoder as a teacher: cached vectors for the training set, computed for other texts."""

    def __init__(self, encoder: Encoder, remembered: Callable[[Numbers], Tensor]) -> None:
        self.encoder = encoder.eval()
        self.of = remembered


def hand_down(requests: Trainer, documents: Trainer, elder: Teacher, plan: Schedule) -> None:
    """Distil the full encoder into a query encoder and a document encoder with fewer layers.

    Each learns the teacher's vectors, and both together its ranking. Queries with random word
    replacements contribute most, because their number is unlimited.
    """
    lesson, chance = requests.lesson, requests.chance

    def loss() -> Tensor:
        pairs = _with_small_talk(lesson, plan.batch, chance)
        asked = requests.encode(pairs[:, 0], QUERY_TOKENS)
        found = documents.encode(pairs[:, 1], DOCUMENT_TOKENS)
        goal, place = (elder.of(pairs[:, side]).float() for side in (0, 1))
        lost = contrast(asked, found, pairs) + PULL * (_near(asked, goal) + _near(found, place))
        lost = lost + _order(asked @ found.T, goal @ place.T)
        lost = lost + _order(found @ asked.T, place @ goal.T)
        other = lesson.pairs[chance.integers(len(lesson.pairs), size=plan.batch), 0]
        own, theirs = requests.encode_stirred(other, QUERY_TOKENS, elder.encoder)
        lost = lost + PULL * _near(own, theirs) + _order(own @ found.T, theirs @ place.T)
        rows = lesson.parallel[chance.integers(len(lesson.parallel), size=plan.batch // 8)].ravel()
        more = documents.encode(rows, DOCUMENT_TOKENS)
        return lost + PULL * _near(more, elder.of(rows).float())

    run(plan, [requests.encoder, documents.encoder], loss, "handed down")


def hand_down_documents(documents: Trainer, elder: Teacher, plan: Schedule) -> None:
    """Distil the document encoder alone, for any query.

    Texts with random word replacements, and short ones, are added: other libraries have many
    of them.
    """
    lesson, chance = documents.lesson, documents.chance

    def loss() -> Tensor:
        pairs = _with_small_talk(lesson, plan.batch, chance)
        found = documents.encode(pairs[:, 1], DOCUMENT_TOKENS)
        goal, place = (elder.of(pairs[:, side]).float() for side in (0, 1))
        lost = contrast(goal, found, pairs) + PULL * _near(found, place)
        lost = (
            lost + _order(goal @ found.T, goal @ place.T) + _order(found @ goal.T, place @ goal.T)
        )
        for side, size, limit in (
            (0, plan.batch, QUERY_TOKENS),
            (1, plan.batch // 2, DOCUMENT_TOKENS),
        ):
            some = lesson.pairs[chance.integers(len(lesson.pairs), size=size), side]
            own, theirs = documents.encode_stirred(some, limit, elder.encoder)
            lost = lost + PULL * _near(own, theirs) + _order(own @ goal.T, theirs @ goal.T)
        rows = lesson.parallel[chance.integers(len(lesson.parallel), size=plan.batch // 8)].ravel()
        more = documents.encode(rows, DOCUMENT_TOKENS)
        return lost + PULL * _near(more, elder.of(rows).float())

    run(plan, [documents.encoder], loss, "documents handed down")


def _near(own: Tensor, goal: Tensor) -> Tensor:
    """Distance loss to the teacher's vectors."""
    return (1 - (own * goal).sum(1)).mean()


def _order(own: Tensor, goal: Tensor) -> Tensor:
    """Ranking loss: KL divergence between the students' and the teacher's similarities."""
    ours, theirs = (functional.log_softmax(scores / HEAT, dim=1) for scores in (own, goal))
    return functional.kl_div(ours, theirs, reduction="batchmean", log_target=True)


def _with_small_talk(lesson: Dataset, batch: int, chance: np.random.Generator) -> Numbers:
    pairs = lesson.pairs[chance.integers(len(lesson.pairs), size=batch)].copy()
    for place in range(int(batch * _NO_SKILL_SHARE)):
        kind = lesson.none[chance.integers(len(lesson.none))]
        one, other = chance.choice(kind, 2)
        pairs[place] = (one, other, NO_SKILL)
    return pairs


def _stay(school: Trainer, teacher: Callable[[Numbers], Tensor], count: int) -> Tensor:
    lesson = school.lesson
    rows = lesson.parallel[school.chance.integers(len(lesson.parallel), size=count)]
    goal = teacher(rows[:, 0]).float()
    own = school.encode(rows.T.ravel(), DOCUMENT_TOKENS)
    return (1 - (own * goal.repeat(2, 1)).sum(1)).mean()


def _apart(own: Tensor, goal: Tensor, numbers: Numbers) -> Tensor:
    """Share of each target among all targets; duplicates are no negatives."""
    same = torch.as_tensor(numbers).to(own.device)
    is_same = (same[:, None] == same[None, :]).fill_diagonal_(fill_value=False)
    scores = (own @ goal.T / HEAT).masked_fill(is_same, -1e4)
    return functional.cross_entropy(scores, torch.arange(len(own), device=own.device))


def contrast(asked: Tensor, found: Tensor, pairs: Numbers) -> Tensor:
    """Symmetric InfoNCE; the same skill or query, and near-duplicates, are no negatives."""
    rows = torch.as_tensor(pairs).to(asked.device)
    same = (rows[:, 2, None] == rows[None, :, 2]) | (rows[:, 0, None] == rows[None, :, 0])
    same = same | (found.detach() @ found.detach().T > _NEAR_DUPLICATE)
    same.fill_diagonal_(fill_value=False)
    scores = (asked @ found.T / HEAT).masked_fill(same, -1e4)
    goal = torch.arange(len(rows), device=asked.device)
    return (functional.cross_entropy(scores, goal) + functional.cross_entropy(scores.T, goal)) / 2
