"""Watchdog: a server whose event loop is stuck ends, and says where it was."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# `_announce` runs on the event loop when the server is ready.
_STUCK = """
import sys, time
from apexbridge.cli import main
from apexbridge.cli.commands import serve

def get_stuck(*_):
    time.sleep(600)

serve._announce = get_stuck
sys.argv = ["apexbridge", "serve", "--port", "0"]
main.main()
"""
_HELD_LOCK = """
import anyio, re
from apexbridge.server.watchdog import watch_event_loop

async def main():
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch_event_loop, 1)
        await anyio.sleep(0.1)
        re.match("(a+)+$", "a" * 64 + "b")  # holds the interpreter lock all the time

anyio.run(main)
"""


def _run(code: str, home: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    places = {"HOME": str(home), "APEXBRIDGE_DATA_DIR": str(home / "data")}
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **places, **variables},
        cwd=home,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


def test_a_server_whose_event_loop_is_stuck_ends_and_says_where(tmp_path: Path) -> None:
    ended = _run(_STUCK, tmp_path, APEXBRIDGE_SERVER__WATCHDOG_SECONDS="2")
    assert ended.returncode == 1, ended.stderr
    assert "Timeout (0:00:02)!" in ended.stderr
    assert "get_stuck" in ended.stderr


def test_the_watchdog_needs_no_interpreter_lock(tmp_path: Path) -> None:
    ended = _run(_HELD_LOCK, tmp_path)
    assert ended.returncode == 1, ended.stderr
    assert "Timeout (0:00:01)!" in ended.stderr


@pytest.mark.parametrize("seconds", ["0", "0.5"])
def test_a_server_that_ends_in_time_is_left_alone(tmp_path: Path, seconds: str) -> None:
    code = _STUCK.replace("time.sleep(600)", "__import__('os').kill(__import__('os').getpid(), 15)")
    ended = _run(code, tmp_path, APEXBRIDGE_SERVER__WATCHDOG_SECONDS=seconds)
    assert ended.returncode == 0, ended.stderr
    assert "Timeout" not in ended.stderr
