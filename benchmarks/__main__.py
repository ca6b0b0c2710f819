"""`make bench`: run the benchmarks and print their tables."""

import argparse
from pathlib import Path

from benchmarks import (
    agent_loop,
    embedders,
    gateway,
    indexing,
    installing,
    reading,
    retrieval_quality,
    retrieval_speed,
    sandboxes,
    scanning,
    starting,
)


def main() -> None:
    """Run those that are named, or all of them."""
    options = _parser().parse_args()
    benchmarks = {
        "starting": starting.main,
        "reading": lambda: reading.main(options.corpus),
        "sandboxes": sandboxes.main,
        "installing": installing.main,
        "scanning": lambda: scanning.main(options.corpus),
        "retrieval_quality": lambda: retrieval_quality.main(
            retrieval_quality.Wanted(
                corpus=options.corpus,
                queries=options.queries,
                minilm=options.minilm,
                toole=options.toole,
                sample=options.sample,
                ours=options.embedder,
                cross_validates=options.cross_validate,
            )
        ),
        "embedders": lambda: embedders.main(options.minilm),
        "retrieval_speed": lambda: retrieval_speed.main(options.chroma),
        "indexing": lambda: indexing.main(options.corpus),
        "agent_loop": agent_loop.main,
        "doors": lambda: gateway.main(options.litellm),
    }
    strange = [name for name in options.names if name not in benchmarks]
    if strange:
        raise SystemExit(f"{', '.join(strange)}: choose from {', '.join(benchmarks)}")
    for name, run in benchmarks.items():
        if name in options.names or not options.names:
            run()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help="which to run, by module; all unless named")
    parser.add_argument(
        "--corpus", type=Path, help="JSON lines (may be .gz) with id, name, description and body"
    )
    parser.add_argument(
        "--queries", type=Path, help="JSON lines with query, accept (ids), lang and pair"
    )
    parser.add_argument(
        "--minilm", type=Path, help="a folder with all-MiniLM-L6-v2 as ONNX and tokenizer.json"
    )
    parser.add_argument(
        "--embedder", choices=("own", "use"), default="own", help="which is measured as ours"
    )
    parser.add_argument("--toole", type=Path, help="a checkout of MetaTool, for its ToolE requests")
    parser.add_argument(
        "--sample", type=int, default=0, help="how many requests of ToolE; all unless given"
    )
    parser.add_argument("--litellm", type=Path, help="an environment that has LiteLLM's proxy")
    parser.add_argument("--chroma", type=Path, help="a Python that has chromadb, as a peer")
    parser.add_argument(
        "--cross-validate", action="store_true", help="choose the weights of the fusion anew"
    )
    return parser


if __name__ == "__main__":
    main()
