"""A program that indexes skills for ever, to be killed: indexer.py HOME PROJECT."""

import sys
from pathlib import Path

import anyio

from apexbridge.retrieval import sync
from apexbridge.runtime import Runtime
from apexbridge.settings import load


async def main(home: str, project: str) -> None:
    sync.BATCH = 8  # many moments at which something is half done
    environment = {
        "HOME": home,
        "APEXBRIDGE_INDEX__EMBEDDER": "hash",
        "APEXBRIDGE_SKILLS__MAX_FOLDERS": "10000",
    }
    async with Runtime.open(load(project=Path(project), environment=environment)) as runtime:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            await runtime.searching.vectorise()
            await runtime.searching.vectorise(everything=True)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2])
