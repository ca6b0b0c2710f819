"""Robustness stage: the query encoder learns noisy requests; document vectors stay as they are.

A noisy request (typing errors, background sentences, a pasted log) moves to the vector that the
shipped encoder has for the clean one, ranks documents as that does, and prefers the document that
answers it to all others. Clean requests and small talk are kept in place by the same loss.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from training.corpus import language_of
from training.encoder import Encoder
from training.long_requests import Background
from training.objectives import HEAT, PULL, Schedule, run
from training.pasted_logs import ask_about, with_log
from training.request_pool import Pool, Vectors
from training.token_table import padded, read_tokenizer, token_ids
from training.typos import Typos

_SPREAD = 0.5
"""Weight of the contrastive term."""
_NEGATIVES = 8_000
_RELATED = 0.9
"""Documents closer than this to the one that answers may answer as well, and are no negatives."""
_TOKENS = 128
"""Rows of the position table: long requests need all of them, and none may be cut off here."""
_NO_DOCUMENT = -1
_PART = 32
_ELABORATED, _CHATTY, _BOTH, _IDLE_TYPOS = 0.3, 0.2, 0.12, 0.4
"""Shares: of long requests a second one for the same document, small talk, or typing errors in
them; of small talk, typing errors."""
_SECOND = 0.5
"""Weight of the second request's vector."""


@dataclass(frozen=True, slots=True)
class Example:
    """A noisy text, the vector it should have, and the document that answers it."""

    text: str
    goal: Vectors
    document: int = _NO_DOCUMENT
    group: int = _NO_DOCUMENT


class Augmenter:
    """Generator of noisy requests, in unlimited number."""

    def __init__(self, pool: Pool, typos: Typos, background: Background, seed: int = 1) -> None:
        self._pool, self._typos, self._background = pool, typos, background
        self._chance = random.Random(seed)  # noqa: S311  # no secret hangs on it
        self._numbers = np.random.default_rng(seed)
        self._of_document = defaultdict[int, list[int]](list)
        for request, document, _ in pool.pairs.tolist():
            self._of_document[document].append(request)
        self._kinds: Sequence[tuple[float, Callable[[], Example]]] = (
            (0.22, self._clean),
            (0.45, self._misspelt),
            (0.12, self._long),
            (0.08, self._logged),
            (0.05, self._error),
            (0.08, self._idle),
        )
        self._cumulative = np.cumsum(pool.shares)

    def batch(self, size: int) -> list[Example]:
        """Make examples of all kinds, in fixed shares."""
        return [make() for share, make in self._kinds for _ in range(max(1, round(share * size)))]

    def _pair(self) -> tuple[int, int, int]:
        place = int(np.searchsorted(self._cumulative, self._numbers.random()))
        request, document, group = self._pool.pairs[min(place, len(self._pool.pairs) - 1)].tolist()
        return request, document, group

    def _clean(self) -> Example:
        request, document, group = self._pair()
        goal = self._pool.request_vectors[request]
        return Example(self._pool.requests[request], goal, document, group)

    def _misspelt(self) -> Example:
        given = self._clean()
        text = self._typos.misspelt(given.text, self._chance)
        return Example(text, given.goal, given.document, given.group)

    def _long(self) -> Example:
        pool, chance = self._pool, self._chance
        request, document, group = self._pair()
        text, goal = pool.requests[request], pool.request_vectors[request]
        language, others = language_of(text), list[str]()
        if chance.random() < _ELABORATED:
            second = chance.choice(self._of_document[document])
            if second != request and language_of(pool.requests[second]) == language:
                others.append(pool.requests[second])
                goal = goal + _SECOND * pool.request_vectors[second]
        elif chance.random() < _CHATTY:
            others.append(chance.choice(pool.small_talk))
        text = self._background.around(text, language, chance, others)
        if chance.random() < _BOTH:
            text = self._typos.misspelt(text, chance)
        return Example(text, goal / np.linalg.norm(goal), document, group)

    def _logged(self) -> Example:
        given = self._clean()
        name = self._pool.documents[given.document].partition(". ")[0]
        text = with_log(given.text, self._chance, name)
        return Example(text, given.goal, given.document, given.group)

    def _error(self) -> Example:
        place = self._chance.randrange(len(self._pool.errors))
        language = self._chance.choice(("en", "zh"))
        text = ask_about(self._pool.errors[place], language, self._chance)
        return Example(text, self._pool.error_vectors[language][place])

    def _idle(self) -> Example:
        place = self._chance.randrange(len(self._pool.small_talk))
        text = self._pool.small_talk[place]
        if self._chance.random() < _IDLE_TYPOS:
            text = self._typos.misspelt(text, self._chance)
        return Example(text, self._pool.small_talk_vectors[place])


class RobustLoss:
    """Distance, ranking and contrastive loss of noisy requests against fixed documents."""

    def __init__(self, pool: Pool) -> None:
        self._documents = torch.as_tensor(pool.document_vectors)
        groups = np.full(len(pool.documents), _NO_DOCUMENT, np.int64)
        groups[pool.pairs[:, 1]] = pool.pairs[:, 2]
        self._groups = torch.as_tensor(groups)

    def __call__(self, own: Tensor, examples: Sequence[Example]) -> Tensor:
        """Compute the loss of encoded examples; the negatives are a sample of all documents."""
        goal = torch.as_tensor(np.stack([example.goal for example in examples]))
        near = (1 - (own * goal).sum(1)).mean()
        places = torch.randint(len(self._documents), (_NEGATIVES,))
        others = self._documents[places]
        scores, before = own @ others.T / HEAT, goal @ others.T / HEAT
        ours, theirs = (functional.log_softmax(part, dim=1) for part in (scores, before))
        order = functional.kl_div(ours, theirs, reduction="batchmean", log_target=True)
        answered = [at for at, one in enumerate(examples) if one.document != _NO_DOCUMENT]
        if not answered:
            return PULL * near + order
        place = self._documents[[examples[at].document for at in answered]]
        groups = torch.tensor([examples[at].group for at in answered])
        same = (place @ others.T > _RELATED) | (groups[:, None] == self._groups[places])
        right = (own[answered] * place).sum(1, keepdim=True) / HEAT
        every = torch.cat((right, scores[answered].masked_fill(same, -1e4)), dim=1)
        spread = (every.logsumexp(1) - right[:, 0]).mean()
        return PULL * near + order + _SPREAD * spread


class PartwiseLoss:
    """Loss of a batch in parts of similar length, each propagated back by a thread of its own.

    Threads that share one matrix product wait for the slower of them, which on a busy machine is
    most of the time. Here whoever is free takes the next part.
    """

    def __init__(self, encoder: Encoder, loss: RobustLoss, threads: int) -> None:
        self._encoder, self._loss = encoder, loss
        self._pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))

    def __call__(self, rows: Sequence[Sequence[int]], examples: Sequence[Example]) -> Tensor:
        """Add the gradients of a batch; return its loss."""
        order = sorted(range(len(rows)), key=lambda at: -len(rows[at]))
        parts = [order[start : start + _PART] for start in range(0, len(order), _PART)]

        def work(part: Sequence[int]) -> float:
            with torch.autocast("cpu", torch.bfloat16):
                own = self._encoder(*padded([rows[at] for at in part]))
            lost = self._loss(own, [examples[at] for at in part]) * (len(part) / len(rows))
            lost.backward()
            return lost.item()

        return torch.tensor(sum(self._pool.map(work, parts)))


def learn_robustness(
    encoder: Encoder,
    examples: Augmenter,
    pool: Pool,
    plan: Schedule,
    *,
    tokenizer: Path,
    threads: int,
) -> None:
    """Train the query encoder on noisy requests, on the processor; its word table is frozen."""
    encoder.words.weight.requires_grad_(False)
    cut, words = read_tokenizer(tokenizer)
    partwise = PartwiseLoss(encoder, RobustLoss(pool), threads)

    def loss() -> Tensor:
        batch = examples.batch(plan.batch)
        return partwise(token_ids(cut, words, [one.text for one in batch], _TOKENS), batch)

    run(plan, [encoder], loss, "robust")
