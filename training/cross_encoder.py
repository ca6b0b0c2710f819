"""Cross-encoder: reads request and document together, and teaches the bi-encoder what it finds.

It ranks better than two vectors can, and is a thousand times too slow for a search. So it ranks
lists of candidates once, here: the document that answers a request, and those that the bi-encoder
finds beside it. Soft targets also say which of them answer as well, where pairs call them wrong.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from training.bi_encoder import Encoders, encode_all
from training.encoder import Encoder, State, build
from training.mixture_file import KINDS, OWN, Mixture, Numbers, PairSampler
from training.objectives import Schedule, run
from training.token_table import DOCUMENT_TOKENS

_REQUEST_TOKENS = 64
_PARTS = 6
_RELATED = 0.88
"""Documents closer than this to the one that answers may answer as well: no negatives."""
_SAMPLE, _NEAREST = 30_000, 40
"""Sample of the bank for a batch, and the nearest documents that negatives are drawn from."""
_CANDIDATES, _HARDEST, _RANGE = 24, 14, 100
"""Candidates of a list: the right one, the hardest, and others among so many nearest."""
_LISTS = 45_000
"""Lists for pairs of other kinds, by their shares; each of our own pairs has one."""
_BI_WEIGHT, _CROSS_WEIGHT = 33.0, 0.5
"""Weights of cosine and cross-encoder in the target, chosen on the validation sets."""


class CrossEncoder(nn.Module):
    """Encoder of pairs, from the weights of a query encoder; a vector marks the document."""

    def __init__(self, weights: State) -> None:
        super().__init__()
        self.encoder: Encoder = build(weights)
        self.encoder.words.weight.requires_grad_(False)
        width = self.encoder.shape.width
        self.document = nn.Parameter(torch.zeros(width))
        self.score = nn.Linear(width, 1)

    def forward(self, asked: tuple[Tensor, Tensor], found: tuple[Tensor, Tensor]) -> Tensor:
        """Score pairs; each side is padded ids and attention mask."""
        encoder, (ids, is_word) = self.encoder, asked
        document_ids, is_document_word = found
        places = encoder.places.weight
        given = torch.cat(
            (
                encoder.words(ids) + places[: ids.shape[1]],
                encoder.words(document_ids) + places[: document_ids.shape[1]] + self.document,
            ),
            dim=1,
        )
        given, seen = encoder.norm(given), torch.cat((is_word, is_document_word), dim=1)
        mask = seen[:, None, None, :]
        for layer in encoder.layers:
            given = layer(given, mask)
        share = seen[:, :, None].to(given.dtype)
        return self.score((given * share).sum(1) / share.sum(1))[:, 0].float()


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateLists:
    """Requests with candidate documents, the right one first, and the teacher's scores."""

    pairs: Numbers
    """Request, document, group, kind."""
    candidates: Numbers
    scores: Tensor


class DocumentBank:
    """All documents of the mixture with their vectors."""

    def __init__(self, encoders: Encoders, mixture: Mixture) -> None:
        self.device = encoders.probe.weight.device
        self.rows = np.unique(mixture.pairs[:, 1])
        self.vectors = encode_all(encoders.find, mixture.texts, self.rows)
        groups = np.zeros(len(mixture.texts.starts) - 1, np.int64)
        groups[mixture.pairs[:, 1]] = mixture.pairs[:, 2]
        self.groups = torch.as_tensor(groups[self.rows], device=self.device)
        self._places = np.full(len(groups), -1, np.int64)
        self._places[self.rows] = np.arange(len(self.rows))

    def places(self, documents: Numbers) -> Tensor:
        """Return the places of documents in the bank."""
        return torch.as_tensor(self._places[documents], device=self.device)

    def sample(self, count: int) -> Tensor:
        """Sample places."""
        return torch.randperm(len(self.rows), device=self.device)[:count]


class Teacher:
    """Cross-encoder with the bi-encoder that finds its candidates."""

    def __init__(self, encoders: Encoders, mixture: Mixture, weights: State) -> None:
        self._encoders, self._mixture = encoders, mixture
        self._bank = DocumentBank(encoders, mixture)
        self._cross = CrossEncoder(weights).to(self._bank.device)

    def learn(self, sample: PairSampler, plan: Schedule, negatives: int = 15) -> None:
        """Train the cross-encoder to tell the right document from what the bi-encoder finds."""

        def loss() -> Tensor:
            requests, rows = sample(plan.batch)
            candidates = self._negatives(requests, rows[:, 1], rows[:, 2], negatives)
            scores = self.scores(requests, candidates)
            goal = torch.zeros(len(rows), dtype=torch.long, device=scores.device)
            return functional.cross_entropy(scores, goal)

        run(plan, [self._cross], loss, "cross-encoder")
        self._cross.eval()

    def _negatives(
        self, requests: Numbers, documents: Numbers, groups: Numbers, count: int
    ) -> Numbers:
        bank, places = self._bank, self._bank.sample(_SAMPLE)
        right = bank.places(documents)
        with torch.no_grad():
            asked = self._encoders.ask(self._mixture.texts, requests)
            others = bank.vectors[places].float()
            same = torch.as_tensor(groups, device=bank.device)[:, None] == bank.groups[places]
            same |= bank.vectors[right].float() @ others.T > _RELATED
            scores = (asked @ others.T).masked_fill(same, -9)
            near = scores.topk(min(_NEAREST, len(places)), dim=1).indices
            order = torch.rand(near.shape, device=bank.device).argsort(1)[:, :count]
            chosen = places[torch.gather(near, 1, order)]
        return bank.rows[torch.cat((right[:, None], chosen), dim=1).cpu().numpy()]

    def scores(self, requests: Numbers, candidates: Numbers) -> Tensor:
        """Score the candidates of each request, pairs of similar length together."""
        texts, device = self._mixture.texts, self._bank.device
        ids, is_word = (part.to(device) for part in texts.rows(requests, _REQUEST_TOKENS))
        documents = texts.rows(candidates.ravel(), DOCUMENT_TOKENS)
        document_ids, is_document_word = (part.to(device) for part in documents)
        count = candidates.shape[1]
        ids, is_word = (part.repeat_interleave(count, 0) for part in (ids, is_word))
        order, parts = is_document_word.sum(1).argsort(), list[Tensor]()
        for part in order.chunk(_PARTS):
            width = int(is_word[part].sum(1).max())
            document_width = int(is_document_word[part].sum(1).max())
            with torch.autocast(device.type, torch.bfloat16):
                parts.append(
                    self._cross(
                        (ids[part, :width], is_word[part, :width]),
                        (
                            document_ids[part, :document_width],
                            is_document_word[part, :document_width],
                        ),
                    )
                )
        return torch.cat(parts)[order.argsort()].view(len(requests), count)

    def lists(self, seed: int = 5, batch: int = 384) -> CandidateLists:
        """Find and score candidates: for all of our own pairs, and for a sample of the others."""
        pairs = self._chosen_pairs(np.random.default_rng(seed))
        candidates, scores = list[Numbers](), list[Tensor]()
        with torch.no_grad():
            for start in range(0, len(pairs), batch):
                rows = pairs[start : start + batch]
                found, cosines = self._candidates(rows)
                cross = self.scores(rows[:, 0], found)
                candidates.append(found)
                scores.append(_BI_WEIGHT * cosines + _CROSS_WEIGHT * cross)
        return CandidateLists(
            pairs=pairs, candidates=np.concatenate(candidates), scores=torch.cat(scores)
        )

    def _chosen_pairs(self, numbers: np.random.Generator) -> Numbers:
        pairs, chosen = self._mixture.pairs, list[Numbers]()
        for kind, (share, _) in enumerate(KINDS.values()):
            places = np.flatnonzero(pairs[:, 3] == kind)
            most = len(places) if kind < OWN else int(_LISTS * share)
            chosen.append(numbers.permutation(places)[:most])
        return pairs[np.concatenate(chosen)]

    def _candidates(self, rows: Numbers) -> tuple[Numbers, Tensor]:
        bank, places = self._bank, self._bank.sample(_SAMPLE)
        asked = self._encoders.ask(self._mixture.texts, rows[:, 0])
        right = bank.places(rows[:, 1])
        nearness = asked @ bank.vectors[places].float().T
        nearness = nearness.masked_fill(places == right[:, None], -9)  # it comes first, and once
        near = nearness.topk(min(_RANGE, len(places) - 1), dim=1).indices
        others = torch.rand(near.shape, device=bank.device)
        others[:, :_HARDEST] = -1  # the hardest come first
        order = others.argsort(1)[:, : _CANDIDATES - 1]
        found = torch.cat((right[:, None], places[torch.gather(near, 1, order)]), dim=1)
        cosines = torch.einsum("qd,qkd->qk", asked, bank.vectors[found].float())
        return bank.rows[found.cpu().numpy()], cosines
