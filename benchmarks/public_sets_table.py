"""Public tool-retrieval sets: the default search beside its vectors, BM25 and MiniLM."""

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import anyio

from apexbridge.evals.retrieval_eval import build_index, search_index
from apexbridge.retrieval.base import Embedder
from apexbridge.retrieval.embedders.default import DefaultEmbedder
from apexbridge.retrieval.embedders.onnx import OnnxEmbedder
from apexbridge.retrieval.embedders.use import UseEmbedder
from apexbridge.retrieval.fusion import FusionWeights
from apexbridge.retrieval.index import SkillIndex
from benchmarks.labelled_queries import DENSE_ONLY, WORDS_ALONE
from benchmarks.public_sets import (
    ToolRequest,
    ToolSet,
    read_livemcpbench,
    read_seal_tools,
    read_toole,
    read_toollens,
    read_ultratool,
)

DEPTH = 5
_TITLE = 54
PEER = "MiniLM"
OURS: Mapping[str, FusionWeights | None] = {
    "ours": None,
    "vectors": DENSE_ONLY,
    "BM25": WORDS_ALONE,
}
"""Fusion weights of each column: the index's own, and one part alone."""
READERS: Mapping[str, tuple[str, Callable[[Path], Iterable[ToolSet]]]] = {
    "ultratool": ("UltraTool", read_ultratool),
    "toole": ("MetaTool", read_toole),
    "toollens": ("COLT", read_toollens),
    "seal_tools": ("Seal-Tools", read_seal_tools),
    "livemcpbench": ("LiveMCPBench", read_livemcpbench),
}
"""Repository and reader by option."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Retrieval figures of one system on one set, each in 0..1."""

    recall: float
    """Mean share of the needed tools that are among the first five."""
    completeness: float
    """Share of requests whose needed tools are all among the first five."""
    hit: float
    """Share of requests whose first result is a needed tool."""


def main(
    folders: Mapping[str, Path | None],
    *,
    ours: Literal["default", "use"] = "default",
    minilm: Path | None = None,
    sample: int = 0,
) -> None:
    """Print the table; `sample` is the number of requests of each row, 0 for all."""
    embedder = DefaultEmbedder() if ours == "default" else UseEmbedder()
    anyio.run(_main, folders, embedder, OnnxEmbedder(minilm) if minilm else None, sample)


async def _main(
    folders: Mapping[str, Path | None], ours: Embedder, minilm: Embedder | None, sample: int
) -> None:
    print("\nFinding the tools of public sets")
    if minilm is None:
        print("MiniLM is not measured: --minilm FOLDER has model.onnx and tokenizer.json")
    columns = [*OURS, PEER] if minilm is not None else [*OURS]
    print(f"{'':{_TITLE + 7}}" + "".join(f"{column:>9}" for column in columns))
    for option, (repository, read) in READERS.items():
        folder = folders.get(option)
        if folder is None or not folder.is_dir():
            flag = option.replace("_", "-")
            print(f"{repository} is not measured: --{flag} FOLDER is a checkout of it")
            continue
        for measured in read(folder):
            part = replace(measured, requests=evenly_spaced(measured.requests, sample))
            _print_rows(part, await measure(part, ours, minilm))


def evenly_spaced(requests: Sequence[ToolRequest], count: int) -> Sequence[ToolRequest]:
    """Return `count` requests; evenly spaced, because files are ordered by tool; 0 for all."""
    if not 0 < count < len(requests):
        return requests
    return [requests[at * len(requests) // count] for at in range(count)]


async def measure(measured: ToolSet, ours: Embedder, minilm: Embedder | None) -> dict[str, Figures]:
    """Return the figures of each system."""
    found = await _search_all(await build_index(measured.tools, ours), OURS, measured.requests)
    if minilm is not None:
        index = await build_index(measured.tools, minilm)
        found |= await _search_all(index, {PEER: DENSE_ONLY}, measured.requests)
    return {system: figures(results) for system, results in found.items()}


async def _search_all(
    index: SkillIndex,
    systems: Mapping[str, FusionWeights | None],
    requests: Sequence[ToolRequest],
) -> dict[str, list[tuple[ToolRequest, list[str]]]]:
    found = {system: list[tuple[ToolRequest, list[str]]]() for system in systems}
    for request in requests:  # all systems at once, so that a request is embedded once
        first, *others = request.texts
        chinese = others[0] if others else None
        for system, fusion in systems.items():
            results = await search_index(
                index, first, others=(None, chinese), limit=DEPTH, fusion=fusion
            )
            found[system].append((request, [hit.name for hit in results.hits]))
    return found


def figures(results: Sequence[tuple[ToolRequest, Sequence[str]]]) -> Figures:
    """Compute R@5, COMP@5 and hit@1 of requests with the ids of their first five results."""
    shares = [
        statistics.fmean(not ids.isdisjoint(names) for ids in request.needed)
        for request, names in results
    ]
    hits = [
        any(name in ids for ids in request.needed for name in names[:1])
        for request, names in results
    ]
    return Figures(
        recall=statistics.fmean(shares),
        completeness=statistics.fmean(share == 1 for share in shares),
        hit=statistics.fmean(hits),
    )


def _print_rows(measured: ToolSet, found: Mapping[str, Figures]) -> None:
    tools, requests = len(measured.tools), len(measured.requests)
    title = f"{measured.name}: {tools:,} tools, {requests:,} requests"
    for metric, values in _rows(measured, list(found.values())):
        print(f"{title:{_TITLE}}{metric:>7}" + "".join(f"{value:>9.3f}" for value in values))
        title = ""


def _rows(measured: ToolSet, found: Sequence[Figures]) -> Iterator[tuple[str, list[float]]]:
    yield "R@5", [each.recall for each in found]
    if any(len(request.needed) > 1 for request in measured.requests):  # else it equals R@5
        yield "COMP@5", [each.completeness for each in found]
    yield "hit@1", [each.hit for each in found]
