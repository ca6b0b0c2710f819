"""A program that indexes skills for ever, to be killed: indexer.py HOME PROJECT.

Everything is loaded once. For each line on stdin a fork begins to index and says `ready` with its
number; when it was killed, the signal is said.
"""

import os
import sys
from pathlib import Path

import anyio

from apexbridge.extensions import Extensions
from apexbridge.retrieval import sync
from apexbridge.retrieval.embedders.hashing import HashEmbedder
from apexbridge.retrieval.stores.sqlite import SqliteStore
from apexbridge.runtime import Runtime
from apexbridge.runtime.index_service import IndexService
from apexbridge.settings import load

LOADED = (HashEmbedder, SqliteStore, IndexService)
"""What is imported late, and here before the first fork."""


async def index_for_ever(home: str, project: str) -> None:
    sync.BATCH_SIZE = 8  # many moments at which something is half done
    environment = {
        "HOME": home,
        "APEXBRIDGE_INDEX__EMBEDDER": "hash",
        "APEXBRIDGE_SKILLS__MAX_FOLDERS": "10000",
    }
    loaded = load(project=Path(project), environment=environment)
    async with Runtime.open(loaded, extensions=Extensions()) as runtime:
        _say(f"ready {os.getpid()}")
        while True:
            await runtime.index_service.sync()
            await runtime.index_service.sync(everything=True)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(home: str, project: str) -> None:
    for _ in sys.stdin:
        child = os.fork()
        if not child:
            try:
                anyio.run(index_for_ever, home, project)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        _say(f"ended {os.waitstatus_to_exitcode(status)}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
