"""Retrieval quality: recall of the default search, of its parts and of peers."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import anyio
import numpy as np

from apexbridge.evals.corpus import CorpusSkill, read_corpus, read_queries
from apexbridge.evals.retrieval_eval import build_index
from apexbridge.retrieval.base import Embedder, IndexEntry, Matrix
from apexbridge.retrieval.embedders.default import DefaultEmbedder
from apexbridge.retrieval.embedders.onnx import OnnxEmbedder
from apexbridge.retrieval.embedders.use import UseEmbedder
from apexbridge.retrieval.embedders.validation import embed_validated
from apexbridge.retrieval.fusion import FusionWeights
from apexbridge.retrieval.index import SkillIndex
from apexbridge.retrieval.memory_index import top_rows
from apexbridge.retrieval.skill_document import SkillText, build_document
from apexbridge.retrieval.stores.memory import MemoryStore
from apexbridge.retrieval.tokenizer import tokenize
from benchmarks.fusion_weights import cross_validate
from benchmarks.labelled_queries import (
    DENSE_ONLY,
    DEPTH,
    LANGUAGE_MODES,
    WORDS_ALONE,
    LabelledQuery,
    SearchFunction,
    figures,
    labelled_queries,
    rank,
    search_function,
)
from benchmarks.no_skill_detection import print_no_skill_detection
from training.typos import Typos

RANK_CONSTANT = 60
SEEDS = (1, 2, 3)
HOMOPHONES = Path(__file__).parent.parent / "training" / "requests" / "homophones.txt"
WITH_VIEWS = FusionWeights(lexical=0, language=0, name=0, clause=99, need=99)
Kind = Literal["default", "use"]
KINDS: Sequence[Kind] = ("default", "use")


def embedder(kind: Kind) -> Embedder:
    """Make an embedder by its name."""
    return DefaultEmbedder() if kind == "default" else UseEmbedder()


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of the benchmark; what has no file is left out."""

    corpus: Path | None = None
    queries: Path | None = None
    minilm: Path | None = None
    ours: Kind = "default"
    cross_validates: bool = False

    @property
    def embedders(self) -> dict[str, Embedder]:
        """Return the default embedder, then its peers."""
        others: list[Kind] = [kind for kind in KINDS if kind != self.ours]
        found: dict[str, Embedder] = {kind: embedder(kind) for kind in (self.ours, *others)}
        if self.minilm is not None:
            found["MiniLM-L6"] = OnnxEmbedder(self.minilm)
        return found


def main(wanted: Options) -> None:
    """Print the tables."""
    anyio.run(_main, wanted)


async def _main(wanted: Options) -> None:
    print("\nFinding the right skill")
    if wanted.minilm is None:
        print("MiniLM-L6 is not measured: --minilm FOLDER has model.onnx and tokenizer.json")
    if wanted.corpus is None or wanted.queries is None:
        print("skills are not: --corpus (id, name, description, body) and --queries")
    else:
        await _measure(wanted, wanted.corpus, wanted.queries)


async def _measure(wanted: Options, corpus: Path, queries: Path) -> None:
    skills = read_corpus(corpus)
    asked = read_queries(queries, {skill.id for skill in skills}).queries
    questions = labelled_queries(asked)
    counts = Counter(question.way for question in questions)
    told = ", ".join(f"{counts[way]} {way}" for way in LANGUAGE_MODES)
    print(f"{len(skills)} skills; requests: {told}; MRR@{DEPTH} over EN and ZH")
    groups = [part for way in LANGUAGE_MODES for part in (f"{way} @1", "R@5", "R@10")] + ["MRR"]
    print(f"{'':32}" + "".join(f"{group:>9}" for group in groups))
    ours: SkillIndex | None = None
    for name, embedder in wanted.embedders.items():
        index = await build_index(skills, embedder)
        await _compare(_systems(name, index, is_ours=ours is None), questions)
        if ours is None:
            slips = {f"  with typing errors, {seed}": search_function(index) for seed in SEEDS}
            for seed, system in zip(SEEDS, slips.items(), strict=True):
                await _compare(dict([system]), _misspelt(questions, seed))
        ours = ours or index
    plain = await _whole_texts(skills, UseEmbedder(is_adapted=False))
    peers = {
        "USE as it comes, alone": search_function(plain, DENSE_ONLY),
        "  and BM25": _rank_fusion(plain),
    }
    await _compare(peers, questions)
    if ours is not None:
        await print_no_skill_detection(ours, asked)
        if wanted.cross_validates:
            await cross_validate(ours, questions)


def _misspelt(questions: Sequence[LabelledQuery], seed: int) -> list[LabelledQuery]:
    """Put one or two slips into every request: keyboard, input method, look-alike characters."""
    typos, chance = Typos.read(HOMOPHONES), random.Random(seed)  # noqa: S311
    return [
        replace(
            question,
            texts=tuple(typos.misspelt(text, chance, is_light=True) for text in question.texts),
        )
        for question in questions
    ]


def _systems(name: str, index: SkillIndex, *, is_ours: bool) -> dict[str, SearchFunction]:
    """Return search functions: the index as configured, and ablations of it."""
    systems = {
        f"{name} (ours)" if is_ours else name: search_function(index),
        "  alone": search_function(index, DENSE_ONLY),
        "  alone, with views": search_function(index, WITH_VIEWS),
    }
    if is_ours:
        systems |= {
            "  ranks fused with BM25's": _rank_fusion(index),
            "BM25 alone": search_function(index, WORDS_ALONE),
        }
    return systems


async def _whole_texts(skills: Sequence[CorpusSkill], embedder: Embedder) -> SkillIndex:
    """Build an index without views."""
    cuts = [
        build_document(SkillText(name=skill.name, summary=skill.description, body=skill.body))
        for skill in skills
    ]
    vectors = await embed_validated(embedder, [cut.whole for cut in cuts], kind="document")
    index = SkillIndex(embedder, MemoryStore(embedder.id))
    entries = [
        IndexEntry(
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


def _rank_fusion(index: SkillIndex) -> SearchFunction:
    """Return a search function with reciprocal rank fusion over all wordings."""

    async def find(question: LabelledQuery) -> Sequence[str]:
        vectors = await embed_validated(index.embedder, question.texts, kind="query")
        total: Matrix = np.zeros(len(index.memory.names), np.float32)
        for text, vector in zip(question.texts, vectors, strict=True):
            dense = index.memory.rescore(np.arange(len(total)), vector).dense
            found = index.memory.bm25.match(tokenize(text, kind="query")).scores
            total += _shares(dense, np.ones(len(dense), np.bool_)) + _shares(found, found > 0)
        best: list[int] = top_rows(total, DEPTH).tolist()
        return [index.memory.names[row] for row in best]

    return find


def _shares(scores: Matrix, is_found: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Matrix:
    ranks = np.empty(len(scores), np.float32)
    ranks[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)
    return (is_found / (RANK_CONSTANT + ranks)).astype(np.float32)


async def _compare(
    systems: Mapping[str, SearchFunction], questions: Sequence[LabelledQuery]
) -> None:
    for name, find in systems.items():
        ranks = [(question, await rank(find, question)) for question in questions]
        print(f"{name:32}" + "".join(f"{figure:>9.2f}" for figure in figures(ranks)))
