"""Detection of queries that need no skill, by the confidence."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from apexbridge.evals.corpus import EvalQuery
from apexbridge.retrieval.index import SkillIndex

REQUESTS = Path(__file__).parent / "requests"
THRESHOLD = 0.5

Scores = Mapping[str, float]
"""Confidence of each query."""


async def print_no_skill_detection(index: SkillIndex, asked: Sequence[EvalQuery]) -> None:
    """Print accuracy at the threshold, and the AUROC."""
    idle = await _scores(index, read_queries("no_skill.txt"))
    short = await _scores(index, read_queries("short.txt"))
    queries = await _scores(index, [query.query for query in asked])
    print(f"\n{f'Confidence, threshold {THRESHOLD}':32}{_HEAD}")
    _show_shares("need no skill, below", idle, is_above=False)
    _show_shares("short ones that do, above", short, is_above=True)
    _show_shares("the queries, above", queries, is_above=True)
    print(f"\n{'Needs a skill at all, AUROC':32}{_HEAD}")
    _show_auroc("short ones", short, idle)
    _show_auroc("the queries", queries, idle)
    _show_auroc("both", {**short, **queries}, idle)


_HEAD = f"{'all':>9}{'EN':>9}{'ZH':>9}{'requests':>10}"


async def _scores(index: SkillIndex, texts: Sequence[str]) -> Scores:
    return {text: (await index.search(text, limit=1)).confidence for text in texts}


def read_queries(name: str) -> list[str]:
    """Read a list of queries."""
    return (REQUESTS / name).read_text(encoding="utf-8").split("\n")[:-1]


def _show_shares(name: str, scores: Scores, *, is_above: bool) -> None:
    shares = [
        statistics.fmean((score >= THRESHOLD) == is_above for score in part)
        for part in _by_language(scores)
    ]
    print(f"{name:32}{''.join(f'{value:>9.2f}' for value in shares)}{len(scores):>10}")


def _show_auroc(name: str, needing: Scores, idle: Scores) -> None:
    parts = zip(_by_language(needing), _by_language(idle), strict=True)
    values = "".join(f"{auroc(some, others):>9.3f}" for some, others in parts)
    print(f"{name:32}{values}{len(needing) + len(idle):>10}")


def auroc(above: Sequence[float], below: Sequence[float]) -> float:
    """Compute the area under the ROC curve; ties count half."""
    pairs = ((one > other) + (one == other) / 2 for one in above for other in below)
    return statistics.fmean(pairs)


def _by_language(scores: Scores) -> tuple[list[float], list[float], list[float]]:
    """Split the scores: all, English, Chinese."""
    english = [score for text, score in scores.items() if text.isascii()]
    chinese = [score for text, score in scores.items() if not text.isascii()]
    return [*scores.values()], english, chinese
