"""The command line as people run it: a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class Done:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """What the envelope holds."""
        return json.loads(self.out)["data"]

    @property
    def error(self) -> Any:
        """The envelope's error."""
        return json.loads(self.out)["error"]


Run = Callable[..., Done]


@pytest.fixture
def run(home: Path, tmp_path: Path) -> Run:
    place = tmp_path / "project"
    place.mkdir()

    def run_(*arguments: str, cwd: Path | None = None, **variables: str) -> Done:
        keep = ("PATH", "HOME", "LANG", "COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")
        environment = {name: os.environ[name] for name in keep if name in os.environ}
        done = subprocess.run(
            [sys.executable, "-m", "apexbridge", *arguments],
            cwd=cwd or place,
            env={**environment, "PYTHONWARNINGS": "error", **variables},
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=60,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return run_


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return tmp_path / "project"
