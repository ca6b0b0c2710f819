"""Fixtures: run a command in this process, or as a subprocess."""

import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest
from typer.core import TyperGroup
from typer.main import get_group

from apexbridge.cli.main import app, main


@dataclass(frozen=True)
class CommandResult:
    """Exit code and captured output of a command."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """`data` of the JSON envelope."""
        return json.loads(self.out)["data"]

    @property
    def error(self) -> Any:
        """`error` of the JSON envelope."""
        return json.loads(self.out)["error"]


Run = Callable[..., CommandResult]

_KEPT = ("PATH", "HOME", "LANG")
_COVERED = ("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")


def _kept(names: tuple[str, ...]) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ}


@functools.cache
def commands() -> TyperGroup:
    """The root command group, cached: building it takes longer than most commands."""
    return get_group(app)


@pytest.fixture
def run_subprocess(home: Path, project: Path) -> Run:
    """Run each command as a subprocess, for exit codes, signals and start-up."""
    project.mkdir(exist_ok=True)

    def start(*arguments: str, cwd: Path | None = None, **variables: str) -> CommandResult:
        done = subprocess.run(
            [sys.executable, "-m", "apexbridge", *arguments],
            cwd=cwd or project,
            env={**_kept((*_KEPT, *_COVERED)), "PYTHONWARNINGS": "error", **variables},
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=60,
        )
        return CommandResult(done.returncode, done.stdout, done.stderr)

    return start


@pytest.fixture
def run(home: Path, project: Path) -> Run:
    """Run `main` in this process, with its own argv, environment and file descriptors."""
    project.mkdir(exist_ok=True)

    def run_(
        *arguments: str, cwd: Path | None = None, encoding: str = "utf-8", **variables: str
    ) -> CommandResult:
        with (
            pytest.MonkeyPatch.context() as patch,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            patch.chdir(cwd or project)
            for name in os.environ.keys() - set(_KEPT):
                patch.delenv(name)
            for name, value in variables.items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", ["apexbridge", *arguments])
            patch.setattr("apexbridge.cli.main.app", commands())
            with _streams(out, err, encoding):
                code = exit_code_of(main)
            return CommandResult(code, _text(out), _text(err))

    return run_


def exit_code_of(command: Callable[[], object]) -> int:
    """Exit code of a command; any other exception fails the test."""
    try:
        command()
    except SystemExit as end:
        code = end.code or 0
    else:
        code = 0
    assert isinstance(code, int)
    return code


@contextmanager
def _streams(out: IO[bytes], err: IO[bytes], encoding: str) -> Generator[None]:
    """Redirect file descriptors 0-2, and Python's streams over them, to /dev/null and files."""
    with ExitStack() as undo:
        nothing = undo.enter_context(Path(os.devnull).open("rb"))
        for number, file in enumerate((nothing, out, err)):
            before = os.dup(number)
            undo.callback(os.close, before)
            undo.callback(os.dup2, before, number)
            os.dup2(file.fileno(), number)
        patch = undo.enter_context(pytest.MonkeyPatch.context())
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            mode = "w" if number else "r"
            stream = os.fdopen(number, mode, encoding=encoding, closefd=False)
            undo.callback(stream.close)
            patch.setattr(sys, name, stream)
        yield


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode().replace("\r\n", "\n")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return tmp_path / "project"
