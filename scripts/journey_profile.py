"""Count package changes along three journeys: a chat, upload to search, a chat with a script.

    python -m scripts.journey_profile [--pairs 12]

A `sys.setprofile` hook sees every call of an `apexbridge` function, and every resumption of a
coroutine or generator. A change is counted where a call goes to another sub-package than the call
before it in the same thread: how often a reader who follows the journey call by call has to open
another folder. The journeys, in an order in which most modules are imported before one counts:

- chat: the second request of a session with the embedded model, which calls a built-in tool;
- upload: a new runtime on an empty data folder, with the default embedder, installs a zip file and
  then searches for its skill, which opens, builds and syncs the index;
- script: a request that a scripted model answers by a search, a skill and the script of that skill.
  Needs a sandbox.
"""

import argparse
import json
import sys
import tempfile
import threading
import zipfile
from collections import Counter
from pathlib import Path
from types import FrameType

import anyio

from apexbridge import Extensions, Runtime
from apexbridge.messages import ToolCall
from apexbridge.models.base import ModelDelta
from apexbridge.settings import Config, load
from apexbridge.testing import ScriptedServer

SKILL = """---
name: greet
description: Say hello politely to the person named in the request.
---

# Greet

Run `scripts/greet.py`.
"""


class PackageChanges:
    """A profile hook that counts calls, and those that change the package."""

    def __init__(self) -> None:
        self.is_counting = False
        self.calls = 0
        self.pairs = Counter[tuple[str, str]]()
        self._last = dict[int, str]()

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """See one event of the interpreter."""
        if event != "call" or not self.is_counting:
            return
        parts = str(frame.f_globals.get("__name__", "")).split(".")
        if parts[0] != "apexbridge" or len(parts) < 2 or parts[1] == "testing":
            return
        self.calls += 1
        thread = threading.get_ident()
        last, self._last[thread] = self._last.get(thread, parts[1]), parts[1]
        if last != parts[1]:
            self.pairs[last, parts[1]] += 1

    def begin(self) -> None:
        """Count from here."""
        self.calls, self.is_counting = 0, True
        self.pairs.clear()
        self._last.clear()

    def report(self, journey: str, most: int) -> None:
        """Stop counting and print what was counted."""
        self.is_counting = False
        print(f"{journey}: {self.pairs.total()} package changes in {self.calls:,} calls")
        for (left, right), times in self.pairs.most_common(most):
            print(f"  {times:4} {left} -> {right}")


def _call(name: str, **arguments: object) -> list[ModelDelta]:
    return [ModelDelta(tool_calls=(ToolCall(id="c", name=name, arguments=json.dumps(arguments)),))]


REPLIES = [
    _call("SkillSearch", query="summarise a CSV file with numbers"),
    _call("Skill", skill="csv-report", arguments="sales.csv"),
    _call("SkillScript", skill="csv-report", arguments=["sales.csv"], files=["sales.csv"]),
    [ModelDelta(text="The mean is 3.50.")],
]


def _config(place: Path, **flags: object) -> Config:
    flags["data_dir"] = str(place / "data")
    return load(project=place, flags=flags, environment={"HOME": str(place)})


async def upload(place: Path, changes: PackageChanges, most: int) -> None:
    """Install a zip file into a new runtime, then find its skill."""
    archive = place / "greet.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("greet/SKILL.md", SKILL)
        packed.writestr("greet/scripts/greet.py", "print('hello')\n")
    async with Runtime.open(_config(place), extensions=Extensions()) as runtime:
        changes.begin()
        await runtime.manager.install(archive)
        found = await runtime.search("say hello")
        changes.report("upload", most)
        if found.hits[0].name != "greet":
            raise RuntimeError("the uploaded skill was not found")


async def chat(place: Path, changes: PackageChanges, most: int) -> None:
    """Answer the second request of a session, without a language model."""
    async with Runtime.open(_config(place), extensions=Extensions()) as runtime:
        for request in ("What is 17*23?", "What is 17*24?"):
            changes.begin()
            events = [event async for event in runtime.chat(request, session="s")]
        changes.report("chat", most)
        if "408" not in str(events[-1]):
            raise RuntimeError(f"the chat failed: {events[-1]}")


async def script(place: Path, changes: PackageChanges, most: int) -> None:
    """Answer one request with a search, a skill and its script."""
    (place / "sales.csv").write_text("month,sales\n2026-01,3\n2026-02,4\n", encoding="utf-8")
    async with ScriptedServer(REPLIES) as server:
        model = {"base_url": server.base_url, "name": "scripted", "api_key": "none"}
        config = _config(place, index={"embedder": "hash"}, model=model)
        async with Runtime.open(config, extensions=Extensions()) as runtime:
            await runtime.search("warm up")
            changes.begin()
            events = [e async for e in runtime.chat("What is the mean of my sales?")]
            changes.report("script", most)
            if "3.50" not in str(events[-1]):
                raise RuntimeError(f"the chat failed: {events[-1]}")


async def _main(most: int) -> None:
    changes = PackageChanges()
    # Worker threads take the hook when they start, so it is there before the first one.
    threading.setprofile(changes)
    sys.setprofile(changes)
    for journey in (chat, upload, script):
        with tempfile.TemporaryDirectory() as place:
            await journey(Path(place), changes, most)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Count package changes along three journeys.")
    parser.add_argument("--pairs", type=int, default=8, help="how many pairs to print")
    anyio.run(_main, parser.parse_args().pairs)
