"""How often the right skill is found, beside what its parts and its peers find alone."""

import random
import statistics
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
import numpy as np

from apexbridge.evals.corpus import CorpusSkill, EvalQuery, read_corpus, read_queries
from apexbridge.evals.retrieval_eval import index_of, language_of
from apexbridge.retrieval.base import Embedder, Entry, Matrix
from apexbridge.retrieval.embedders.checked import embed_checked
from apexbridge.retrieval.embedders.onnx import OnnxEmbedder
from apexbridge.retrieval.embedders.use import UseEmbedder
from apexbridge.retrieval.fuse import Fusion
from apexbridge.retrieval.index import SkillIndex
from apexbridge.retrieval.shelf import top
from apexbridge.retrieval.stores.memory import MemoryStore
from apexbridge.retrieval.text import SkillText, digest
from apexbridge.retrieval.words import words

REQUESTS = Path(__file__).parent / "requests"
DEPTH = 10
THRESHOLD = 0.5
RANK_CONSTANT = 60
ALONE = Fusion(view=0, lexical=0, language=0)
WORDS_ALONE = Fusion(dense=0, lexical=1)
WAYS = ("EN", "ZH", "both")
"""The request in English, in Chinese, and in both at once."""
VIEWS = (0.5, 1.0, 1.5, 2.0)
LEXICALS = (3.0, 4.0, 5.0, 6.0, 7.0, 8.0)
REPETITIONS, FOLDS = 20, 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A request in one language or in both, and the skills that would be right for it."""

    way: str
    pair: str
    texts: tuple[str, ...]
    accept: frozenset[str]


Rank = float
"""Where the first right skill came; infinite beyond the depth."""
Find = Callable[[Question], Awaitable[Sequence[str]]]
"""Gives the ids of the best skills, the best first."""


def main(
    corpus: Path | None = None,
    queries: Path | None = None,
    minilm: Path | None = None,
    *,
    cross_validates: bool = False,
) -> None:
    """Print the tables."""
    print("\nFinding the right skill")
    if corpus is None or queries is None:
        print("not measured: it needs --corpus (id, name, description, body) and --queries")
        return
    anyio.run(_main, corpus, queries, minilm, cross_validates)


async def _main(corpus: Path, queries: Path, minilm: Path | None, cross_validates: bool) -> None:
    skills = read_corpus(corpus)
    asked = read_queries(queries, {skill.id for skill in skills}).queries
    questions = [*_single(asked), *_paired(asked)]
    ours = await index_of(skills, UseEmbedder())
    counts = Counter(question.way for question in questions)
    told = ", ".join(f"{counts[way]} {way}" for way in WAYS)
    print(f"{len(skills)} skills; requests: {told}; hit@1 and MRR@{DEPTH} over EN and ZH")
    groups = ("EN R@5", "R@10", "ZH R@5", "R@10", "both R@5", "R@10", "hit@1", "MRR")
    print(f"{'':32}" + "".join(f"{group:>9}" for group in groups))
    await _compare(await _systems(skills, ours, minilm), questions)
    if minilm is None:
        print(f"{'MiniLM-L6 alone':32}  not measured: --minilm FOLDER has model and tokenizer.json")
    await _show_confidence(ours, asked)
    if cross_validates:
        await _cross_validate(ours, questions)


def _single(asked: Sequence[EvalQuery]) -> Iterator[Question]:
    for number, query in enumerate(asked):
        yield Question(
            way=language_of(query).upper(),
            pair=query.pair or f"alone {number}",
            texts=(query.query,),
            accept=frozenset(query.accept),
        )


def _paired(asked: Sequence[EvalQuery]) -> Iterator[Question]:
    pairs = dict[str, dict[str, EvalQuery]]()
    for query in asked:
        if query.pair is not None:
            pairs.setdefault(query.pair, {})[language_of(query)] = query
    for pair, found in pairs.items():
        if len(found) == 2:
            both = (found["en"], found["zh"])
            accept = frozenset(id_ for query in both for id_ in query.accept)
            texts = tuple(query.query for query in both)
            yield Question(way="both", pair=pair, texts=texts, accept=accept)


async def _systems(
    skills: Sequence[CorpusSkill], ours: SkillIndex, minilm: Path | None
) -> dict[str, Find]:
    plain = await _whole_texts(skills, UseEmbedder(is_adapted=False))
    systems = {
        "ours": _searching(ours, None),
        "BM25 alone": _searching(ours, WORDS_ALONE),
        "USE alone": _searching(plain, ALONE),
        "USE with our layer alone": _searching(ours, ALONE),
        "  and with views": _searching(ours, Fusion(lexical=0, language=0)),
        "rank fusion (BM25, USE)": _fusing_ranks(plain),
        "rank fusion (BM25, our layer)": _fusing_ranks(ours),
    }
    if minilm is not None:
        index = await _whole_texts(skills, OnnxEmbedder(minilm))
        systems["MiniLM-L6 alone"] = _searching(index, ALONE)
    return systems


async def _whole_texts(skills: Sequence[CorpusSkill], embedder: Embedder) -> SkillIndex:
    """An index without views, for those that are not asked for any."""
    cuts = [
        digest(SkillText(name=skill.name, summary=skill.description, body=skill.body))
        for skill in skills
    ]
    vectors = await embed_checked(embedder, [cut.whole for cut in cuts], kind="document")
    index = SkillIndex(embedder, MemoryStore(embedder.id))
    entries = [
        Entry(
            name=skill.id,
            fingerprint="",
            texts=(cut.whole,),
            vectors=vectors[row : row + 1],
            terms=cut.terms,
            counts=cut.counts,
        )
        for row, (skill, cut) in enumerate(zip(skills, cuts, strict=True))
    ]
    await index.store.upsert(entries)
    await index.refresh()
    return index


def _searching(index: SkillIndex, fusion: Fusion | None) -> Find:
    async def find(question: Question) -> Sequence[str]:
        first, *others = question.texts
        chinese = others[0] if others else None
        results = await index.search(first, query_zh=chinese, limit=DEPTH, fusion=fusion)
        if results.problem is not None:
            raise results.problem
        return [hit.name for hit in results.hits]

    return find


def _fusing_ranks(index: SkillIndex) -> Find:
    """Two whole rankings for each wording: 1 / (k + rank), summed."""

    async def find(question: Question) -> Sequence[str]:
        vectors = await embed_checked(index.embedder, question.texts, kind="query")
        total: Matrix = np.zeros(len(index.shelf.names), np.float32)
        for text, vector in zip(question.texts, vectors, strict=True):
            dense, _ = index.shelf.scores(vector)
            found = index.shelf.lexicon.match(words(text, kind="query")).scores
            total += _shares(dense, np.ones(len(dense), np.bool_)) + _shares(found, found > 0)
        best: list[int] = top(total, DEPTH).tolist()
        return [index.shelf.names[row] for row in best]

    return find


def _shares(scores: Matrix, is_found: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Matrix:
    ranks = np.empty(len(scores), np.float32)
    ranks[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)
    return (is_found / (RANK_CONSTANT + ranks)).astype(np.float32)


async def _compare(systems: Mapping[str, Find], questions: Sequence[Question]) -> None:
    for name, find in systems.items():
        ranks = [(question, await _rank(find, question)) for question in questions]
        print(f"{name:32}" + "".join(f"{figure:>9.2f}" for figure in _row(ranks)))


async def _rank(find: Find, question: Question) -> Rank:
    found = await find(question)
    places = (place for place, name in enumerate(found, 1) if name in question.accept)
    return next(places, float("inf"))


def _row(ranks: Sequence[tuple[Question, Rank]]) -> Iterator[float]:
    """The figures of a table's row."""
    for way in WAYS:
        of_way = [rank for question, rank in ranks if question.way == way]
        yield from (_share(of_way, 5), _share(of_way, 10))
    single = [rank for question, rank in ranks if question.way != "both"]
    yield from (_share(single, 1), _mrr(single))


def _share(ranks: Sequence[Rank], limit: int) -> float:
    return statistics.fmean(rank <= limit for rank in ranks) if ranks else float("nan")


def _mrr(ranks: Sequence[Rank]) -> float:
    return statistics.fmean(1 / rank for rank in ranks) if ranks else float("nan")


async def _show_confidence(index: SkillIndex, asked: Sequence[EvalQuery]) -> None:
    groups = {
        "need no skill, below": (_lines("no_skill.txt"), False),
        "short ones that do, above": (_lines("short.txt"), True),
        "the queries, above": ([query.query for query in asked], True),
    }
    title = f"Confidence, threshold {THRESHOLD}"
    print(f"\n{title:32}{'share':>9}{'EN':>9}{'ZH':>9}{'requests':>10}")
    for name, (texts, is_above) in groups.items():
        good = dict[str, bool]()
        for text in texts:
            confidence = (await index.search(text, limit=1)).confidence
            good[text] = (confidence >= THRESHOLD) == is_above
        chinese = [is_good for text, is_good in good.items() if not text.isascii()]
        english = [is_good for text, is_good in good.items() if text.isascii()]
        shares = [statistics.fmean(part) for part in (good.values(), english, chinese)]
        print(f"{name:32}{''.join(f'{share:>9.2f}' for share in shares)}{len(good):>10}")


def _lines(name: str) -> list[str]:
    return (REQUESTS / name).read_text(encoding="utf-8").split("\n")[:-1]


async def _cross_validate(index: SkillIndex, questions: Sequence[Question]) -> None:
    """Weights chosen on five sixths of the requests, measured on the rest."""
    tried = dict[tuple[float, float], list[Rank]]()
    for weights in ((view, lexical) for view in VIEWS for lexical in LEXICALS):
        find = _searching(index, Fusion(view=weights[0], lexical=weights[1]))
        tried[weights] = [await _rank(find, question) for question in questions]
    chosen, held_out = Counter[tuple[float, float]](), list[list[float]]()
    for repetition in range(REPETITIONS):
        ranks = list[tuple[Question, Rank]]()
        for train, test in _folds(questions, repetition):
            best = max(tried, key=lambda weights: _worth(questions, tried[weights], train))
            chosen[best] += 1
            ranks += [(questions[row], tried[best][row]) for row in test]
        held_out.append(list(_row(ranks)))
    print(f"\nFusion(view, lexical), {REPETITIONS} times {FOLDS}-fold cross-validation over pairs")
    print("weights chosen by mean R@5 over EN, ZH and both, equals by MRR")
    for name, figure in (("held out, mean", statistics.fmean), ("held out, spread", _spread)):
        columns = [figure(column) for column in zip(*held_out, strict=True)]
        print(f"{name:32}" + "".join(f"{value:>9.3f}" for value in columns))
    default = (Fusion().view, Fusion().lexical)
    if default in tried:
        row = _row(list(zip(questions, tried[default], strict=True)))
        print(f"{f'as built in {default}':32}" + "".join(f"{value:>9.3f}" for value in row))
    for weights, times in chosen.most_common():
        print(f"view {weights[0]:g}, lexical {weights[1]:g}: chosen {times} times")


def _folds(questions: Sequence[Question], seed: int) -> Iterator[tuple[list[int], list[int]]]:
    """The questions to choose by and those to measure on; a pair is never parted."""
    pairs = sorted({question.pair for question in questions})
    random.Random(seed).shuffle(pairs)  # noqa: S311  # no secret hangs on it
    fold_of = {pair: number % FOLDS for number, pair in enumerate(pairs)}
    rows = range(len(questions))
    for fold in range(FOLDS):
        test = [row for row in rows if fold_of[questions[row].pair] == fold]
        yield [row for row in rows if fold_of[questions[row].pair] != fold], test


def _worth(
    questions: Sequence[Question], ranks: Sequence[Rank], rows: Sequence[int]
) -> tuple[float, float]:
    of_way = [[ranks[row] for row in rows if questions[row].way == way] for way in WAYS]
    present = [part for part in of_way if part]
    return (
        round(statistics.fmean(_share(part, 5) for part in present), 9),
        statistics.fmean(_mrr(part) for part in present),
    )


def _spread(values: Sequence[float]) -> float:
    return statistics.stdev(values)
