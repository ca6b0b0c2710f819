"""`make bench`: run the benchmarks and print their tables."""

import argparse
from pathlib import Path

from benchmarks import (
    agent_loop,
    calibration,
    cli_startup,
    dependencies,
    directory_scan,
    embedders,
    gateway,
    indexing,
    install,
    public_sets_table,
    retrieval_quality,
    retrieval_speed,
    sandboxes,
    skill_parsing,
)


def main() -> None:
    """Run the benchmarks that are named, or all."""
    options = _parser().parse_args()
    benchmarks = {
        "cli_startup": cli_startup.main,
        "skill_parsing": lambda: skill_parsing.main(options.corpus),
        "sandboxes": sandboxes.main,
        "dependencies": dependencies.main,
        "install": install.main,
        "directory_scan": lambda: directory_scan.main(options.corpus),
        "retrieval_quality": lambda: retrieval_quality.main(
            retrieval_quality.Options(
                corpus=options.corpus,
                queries=options.queries,
                minilm=options.minilm,
                ours=options.embedder,
                cross_validates=options.cross_validate,
            )
        ),
        "calibration": lambda: calibration.main(
            options.corpus, options.queries, retrieval_quality.embedder(options.embedder)
        ),
        "public_sets": lambda: public_sets_table.main(
            {name: getattr(options, name) for name in public_sets_table.READERS},
            ours=options.embedder,
            minilm=options.minilm,
            sample=options.sample,
        ),
        "embedders": lambda: embedders.main(options.minilm),
        "retrieval_speed": lambda: retrieval_speed.main(options.chroma),
        "indexing": lambda: indexing.main(options.corpus),
        "agent_loop": agent_loop.main,
        "gateway": lambda: gateway.main(options.litellm),
    }
    unknown = [name for name in options.names if name not in benchmarks]
    if unknown:
        raise SystemExit(f"{', '.join(unknown)}: choose from {', '.join(benchmarks)}")
    for name, run in benchmarks.items():
        if name in options.names or not options.names:
            run()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help="benchmarks to run; all by default")
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
        "--embedder", choices=("default", "use"), default="default", help="embedder to evaluate"
    )
    for name, (repository, _) in public_sets_table.READERS.items():
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, type=Path, help=f"a checkout of {repository}, a public set")
    parser.add_argument(
        "--sample", type=int, default=0, help="requests of each public set; all by default"
    )
    parser.add_argument("--litellm", type=Path, help="a virtual environment with LiteLLM's proxy")
    parser.add_argument("--chroma", type=Path, help="an interpreter with chromadb, as a peer")
    parser.add_argument(
        "--cross-validate", action="store_true", help="cross-validate the fusion weights"
    )
    return parser


if __name__ == "__main__":
    main()
