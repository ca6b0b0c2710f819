"""ToolE benchmark: English queries for 199 tools that were not trained on.

The folder is a checkout of MetaTool, of which two files are read.
"""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from apexbridge.evals.corpus import CorpusSkill
from apexbridge.evals.retrieval_eval import build_index
from apexbridge.retrieval.base import Embedder
from benchmarks.labelled_queries import (
    DENSE_ONLY,
    LabelledQuery,
    Rank,
    rank,
    search_function,
    share,
)

TOOLS = Path("dataset/plugin_des.json")
REQUESTS = Path("dataset/data/all_clean_data.csv")


async def show_toole(folder: Path, embedders: Mapping[str, Embedder], sample: int) -> None:
    """Print R@1 and R@5 of each embedder, alone and with the index's fusion."""
    tools, questions = _tools(folder / TOOLS), _questions(folder / REQUESTS)
    if 0 < sample < len(questions):  # evenly spaced, because the file is ordered by tool
        questions = [questions[at * len(questions) // sample] for at in range(sample)]
    title = f"ToolE, {len(tools)} tools, {len(questions)} requests"
    print(f"\n{title:38}{'R@1':>9}{'R@5':>9}")
    for name, embedder in embedders.items():
        index = await build_index(tools, embedder)
        ways = {
            f"{name} alone": search_function(index, DENSE_ONLY),
            f"{name}, fused": search_function(index),
        }
        ranks: dict[str, list[Rank]] = {way: [] for way in ways}
        for question in questions:  # both at once, so that a query is embedded once
            for way, find in ways.items():
                ranks[way].append(await rank(find, question))
        for way, found in ranks.items():
            print(f"{way:38}{share(found, 1):>9.3f}{share(found, 5):>9.3f}")


def _tools(path: Path) -> list[CorpusSkill]:
    described: dict[str, str] = json.loads(path.read_bytes())
    return [
        CorpusSkill(id=name, name=name, description=description)
        for name, description in described.items()
    ]


def _questions(path: Path) -> Sequence[LabelledQuery]:
    with path.open(encoding="utf-8", newline="") as file:
        return [
            LabelledQuery(
                way="EN", pair=str(at), texts=(row["Query"],), accept=frozenset({row["Tool"]})
            )
            for at, row in enumerate(csv.DictReader(file))
        ]
