"""Bi-encoder on one device: query encoder, document encoder and a linear probe; validation."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from training.encoder import Encoder
from training.mixture_file import Mixture, Numbers
from training.token_table import DOCUMENT_TOKENS, TokenTable

Encode = Callable[[TokenTable, Numbers], Tensor]

REQUEST_TOKENS = 128
_PARTS = 3
_BATCH = 8_192


class Encoders(nn.Module):
    """Query and document encoder, and the linear probe that tells requests from messages."""

    def __init__(self, queries: Encoder, documents: Encoder) -> None:
        super().__init__()
        self.queries, self.documents = queries, documents
        self.probe = nn.Linear(queries.shape.width, 1)
        for encoder in (queries, documents):
            encoder.words.weight.requires_grad_(False)

    def ask(self, texts: TokenTable, numbers: Numbers) -> Tensor:
        """Encode requests."""
        return _encode(self.queries, texts, numbers, REQUEST_TOKENS)

    def find(self, texts: TokenTable, numbers: Numbers) -> Tensor:
        """Encode documents."""
        return _encode(self.documents, texts, numbers, DOCUMENT_TOKENS)


def _encode(encoder: Encoder, texts: TokenTable, numbers: Numbers, limit: int) -> Tensor:
    device = encoder.words.weight.device
    parts, order = list[Tensor](), list[Numbers]()
    for places, ids, is_word in texts.groups(numbers, limit, _PARTS):
        with torch.autocast(device.type, torch.bfloat16):
            parts.append(encoder(ids.to(device), is_word.to(device)))
        order.append(places)
    back = torch.as_tensor(np.argsort(np.concatenate(order)), device=device)
    return torch.cat(parts)[back]


def encode_all(encode: Encode, texts: TokenTable, numbers: Numbers) -> Tensor:
    """Encode many texts without gradients, in half precision."""
    with torch.no_grad():
        return torch.cat(
            [
                encode(texts, numbers[start : start + _BATCH]).half()
                for start in range(0, len(numbers), _BATCH)
            ]
        )


def validate(encoders: Encoders, mixture: Mixture) -> dict[str, float]:
    """Evaluate on what was kept back: hit@1, R@5 of several tools, AUROC beside messages."""
    found = dict[str, float]()
    for name, rows in mixture.validation.items():
        documents = encode_all(encoders.find, mixture.texts, rows["documents"])
        scores = encode_all(encoders.ask, mixture.texts, rows["queries"]) @ documents.T
        targets = torch.as_tensor(rows["targets"], device=scores.device)
        first = scores.topk(min(5, scores.shape[1])).indices
        wanted = targets[:, 0].clone() if name != "tools" else None
        if wanted is not None:
            found[f"{name} @1"] = float((scores.argmax(1) == wanted).float().mean())
            found[f"{name} @5"] = float((first == wanted[:, None]).any(1).float().mean())
        else:
            hits = (first[:, :, None] == targets[:, None]).any(1)
            share = (hits & (targets >= 0)).sum(1) / (targets >= 0).sum(1)
            found[f"{name} R@5"] = float(share.mean())
        if len(rows["messages"]):
            idle = encode_all(encoders.ask, mixture.texts, rows["messages"]) @ documents.T
            found[f"{name} AUROC"] = _auroc(scores.amax(1), idle.amax(1))
    return found


def _auroc(higher: Tensor, lower: Tensor) -> float:
    return float((higher[:, None] > lower[None]).float().mean())
