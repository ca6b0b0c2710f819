"""`make bench`: run every benchmark and print its table."""

import argparse
from pathlib import Path

from benchmarks import reading, sandboxes, starting


def main() -> None:
    """Run them all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--corpus", type=Path, help="JSON lines (may be .gz) with name, description and body"
    )
    arguments = parser.parse_args()
    starting.main()
    reading.main(arguments.corpus)
    sandboxes.main()


if __name__ == "__main__":
    main()
