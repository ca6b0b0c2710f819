"""Change one skill repeatedly: concurrent_client.py HOME PROJECT ARCHIVE SEED ROUNDS."""

import json
import random
import sys
from collections import Counter
from pathlib import Path

import anyio

from apexbridge.errors import ApexBridgeError
from apexbridge.runtime import Runtime
from apexbridge.settings import Config, load

NAME = "garden"
ACTIONS = ("install", "install", "install", "uninstall", "uninstall", "edit", "search", "undo")
REFUSALS = frozenset({"skill_exists", "skill_not_found"})
"""Expected refusals of a concurrent change."""


def loaded_for(home: Path, project: Path) -> Config:
    environment = {"HOME": str(home), "APEXBRIDGE_INDEX__EMBEDDER": "hash"}
    return load(project=project, environment=environment)


async def change(runtime: Runtime, archive: Path, seed: int, rounds: int) -> Counter[str]:
    """Do something at random to the skill, many times; how often each thing came of it."""
    chance, outcomes = random.Random(seed), Counter[str]()  # noqa: S311  # no secret hangs on it
    for number in range(rounds):
        action = chance.choice(ACTIONS)
        try:
            match action:
                case "install":
                    await runtime.manager.install(archive)
                case "uninstall":
                    await runtime.manager.uninstall(NAME)
                case "edit":
                    text = f"Grows tomatoes, as {seed} says in {number}."
                    await runtime.manager.edit_description(NAME, text)
                case "undo":
                    await runtime.manager.restore(NAME)
                case _:
                    await runtime.search("grow tomatoes")
            outcomes[action] += 1
        except ApexBridgeError as error:
            outcomes[error.code] += 1
    return outcomes


async def main(home: str, project: str, archive: str, seed: str, rounds: str) -> None:
    async with Runtime.open(loaded_for(Path(home), Path(project))) as runtime:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        outcomes = await change(runtime, Path(archive), int(seed), int(rounds))
    sys.stdout.write(json.dumps(outcomes) + "\n")


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])  # pyright: ignore[reportArgumentType]
