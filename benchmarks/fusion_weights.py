"""Cross-validation of the fusion weights."""

import random
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from apexbridge.retrieval.confidence import profile_for
from apexbridge.retrieval.index import SkillIndex
from benchmarks.labelled_queries import (
    LANGUAGE_MODES,
    LabelledQuery,
    Rank,
    figures,
    mrr,
    rank,
    search_function,
    share,
)

VIEWS = (0.0, 0.5, 1.0, 1.5, 2.0)
LEXICALS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)
REPETITIONS, FOLDS = 20, 6


async def cross_validate(index: SkillIndex, questions: Sequence[LabelledQuery]) -> None:
    """Choose the weights on five sixths of the queries, and evaluate on the rest."""
    built_in = profile_for(index.store.embedder_id).fusion
    tried = dict[tuple[float, float], list[Rank]]()
    for weights in ((view, lexical) for view in VIEWS for lexical in LEXICALS):
        find = search_function(index, replace(built_in, view=weights[0], lexical=weights[1]))
        tried[weights] = [await rank(find, question) for question in questions]
    chosen, held_out = Counter[tuple[float, float]](), list[list[float]]()
    for repetition in range(REPETITIONS):
        ranks = list[tuple[LabelledQuery, Rank]]()
        for train, test in _folds(questions, repetition):
            best = max(tried, key=lambda weights: _worth(questions, tried[weights], train))
            chosen[best] += 1
            ranks += [(questions[row], tried[best][row]) for row in test]
        held_out.append(list(figures(ranks)))
    print(f"\nFusion(view, lexical), {REPETITIONS} times {FOLDS}-fold cross-validation over pairs")
    print("weights chosen by mean R@5 over EN, ZH and both, equals by MRR")
    for name, figure in (("held out, mean", statistics.fmean), ("held out, spread", _spread)):
        columns = [figure(column) for column in zip(*held_out, strict=True)]
        print(f"{name:32}" + "".join(f"{value:>9.3f}" for value in columns))
    if (default := (built_in.view, built_in.lexical)) in tried:
        row = figures(list(zip(questions, tried[default], strict=True)))
        print(f"{f'as built in {default}':32}" + "".join(f"{value:>9.3f}" for value in row))
    for weights, times in chosen.most_common():
        print(f"view {weights[0]:g}, lexical {weights[1]:g}: chosen {times} times")


def _folds(questions: Sequence[LabelledQuery], seed: int) -> Iterator[tuple[list[int], list[int]]]:
    """Yield folds of training and test queries; translations stay together."""
    pairs = sorted({question.pair for question in questions})
    random.Random(seed).shuffle(pairs)  # noqa: S311  # no secret hangs on it
    fold_of = {pair: number % FOLDS for number, pair in enumerate(pairs)}
    rows = range(len(questions))
    for fold in range(FOLDS):
        test = [row for row in rows if fold_of[questions[row].pair] == fold]
        yield [row for row in rows if fold_of[questions[row].pair] != fold], test


def _worth(
    questions: Sequence[LabelledQuery], ranks: Sequence[Rank], rows: Sequence[int]
) -> tuple[float, float]:
    of_way = [[ranks[row] for row in rows if questions[row].way == way] for way in LANGUAGE_MODES]
    present = [part for part in of_way if part]
    return (
        round(statistics.fmean(share(part, 5) for part in present), 9),
        statistics.fmean(mrr(part) for part in present),
    )


def _spread(values: Sequence[float]) -> float:
    return statistics.stdev(values)
