"""Evaluation of an encoder on validation queries, by its vectors alone."""

from dataclasses import dataclass

import torch
from torch import Tensor

from training.dataset import Dataset
from training.objectives import Trainer, vectors_of
from training.token_table import DOCUMENT_TOKENS, QUERY_TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Recall by language, and AUROC of queries against small talk."""

    first: dict[str, float]
    five: dict[str, float]
    small_talk: float

    def __str__(self) -> str:
        parts = [
            f"{name} hit@1 {self.first[name]:.3f} R@5 {self.five[name]:.3f}" for name in self.first
        ]
        return ", ".join((*parts, f"AUROC {self.small_talk:.3f}"))


def judge(school: Trainer, documents: Trainer | None = None) -> Metrics:
    """Evaluate validation queries against the library, which another encoder may embed."""
    lesson: Dataset = school.lesson
    library = vectors_of(documents or school, lesson.library, DOCUMENT_TOKENS).float()
    asked = vectors_of(school, lesson.asked[:, 0], QUERY_TOKENS).float()
    scores = asked @ library.T
    goal = torch.as_tensor(lesson.asked[:, 1]).to(scores.device)
    own = scores.gather(1, goal[:, None])
    ranks = (scores > own).sum(1).cpu().numpy()
    first, five = dict[str, float](), dict[str, float]()
    for name, is_chinese in (("EN", 0), ("ZH", 1)):
        of_language = ranks[lesson.asked[:, 2] == is_chinese]
        first[name] = float((of_language < 1).mean())
        five[name] = float((of_language < 5).mean())
    idle = vectors_of(school, lesson.idle, QUERY_TOKENS).float()
    near = auroc(scores.max(1).values, (idle @ library.T).max(1).values)
    return Metrics(first=first, five=five, small_talk=near)


def auroc(above: Tensor, below: Tensor) -> float:
    """Compute the area under the ROC curve."""
    return float((above[:, None] > below[None, :]).float().mean())
