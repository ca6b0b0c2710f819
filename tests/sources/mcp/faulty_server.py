"""Faulty and older MCP servers, without the SDK so that they start fast."""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

KIND, PLACE = sys.argv[1], Path(sys.argv[2])


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def requests() -> Iterator[tuple[str, Any]]:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            yield message["method"], message["id"]


def answer_as_older(
    method: str, number: Any, *, version: str = "2025-06-18", name: object = "old"
) -> None:
    """Speak as before `server/discover`."""
    if method == "initialize":
        answer: dict[str, Any] = {
            "protocolVersion": version,
            "capabilities": {"prompts": {"listChanged": True}},
            "serverInfo": {"name": "older", "version": "1"},
        }
    elif method == "prompts/list":
        answer = {"prompts": [{"name": name}]}
    else:
        say({"id": number, "error": {"code": -32601, "message": f"no {method}"}})
        return
    say({"id": number, "result": answer})


def silent() -> None:
    """Never answer, and be hard to end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for _ in requests():
        pass


def dying() -> None:
    """End at a question, as long as a file says so."""
    for method, number in requests():
        if method == "prompts/list" and (PLACE / "die").exists():
            sys.exit(f"no licence for {os.environ['GIVEN']}")
        answer_as_older(method, number)


def chatter() -> None:
    sys.stdout.write("Welcome! Listening…\n{}\n")
    sys.stdout.flush()
    silent()


def secretive() -> None:
    sys.exit(f"\x1b[31mcannot log in with {os.environ['GIVEN']}")


def loud() -> None:
    sys.exit("noise\n" * 100_000 + "the last line")


def deaf() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(60)


def older() -> None:
    """Notify of a change whenever prompts were listed."""
    for method, number in requests():
        answer_as_older(method, number)
        if method == "prompts/list":
            say({"method": "notifications/prompts/list_changed"})


def late() -> None:
    """Notify of a change once a file exists."""
    for method, number in requests():
        answer_as_older(method, number)
        if method == "prompts/list":
            while not (PLACE / "go").exists():
                time.sleep(0.02)
            say({"method": "notifications/prompts/list_changed"})


def future() -> None:
    for method, number in requests():
        answer_as_older(method, number, version="2999-01-01")


def nonsense() -> None:
    for method, number in requests():
        answer_as_older(method, number, name=5)


if __name__ == "__main__":
    with (PLACE / "pids").open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")
    kinds = (chatter, deaf, dying, future, late, loud, nonsense, older, secretive, silent)
    {kind.__name__: kind for kind in kinds}[KIND]()
