"""The commands and programs of the README work."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.unmeasured

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _environment(home: Path) -> dict[str, str]:
    programs = Path(sys.executable).parent
    return {
        "HOME": str(home),
        "PATH": f"{programs}:{os.environ['PATH']}",
        "LANG": "C.UTF-8",
        "APEXBRIDGE_INDEX__EMBEDDER": "hash",  # ours takes a second of each command to load
    }


@pytest.mark.needs("sandbox")
def test_the_five_minutes_of_the_readme_work(home: Path, tmp_path: Path) -> None:
    (block,) = [b for b in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) if "init" in b]
    commands = block.split("pip install ./retriever .\n")[1]
    place = tmp_path / "project"
    place.mkdir()
    done = subprocess.run(
        ["/bin/sh", "-euc", commands],
        cwd=place, env=_environment(home), capture_output=True, text=True, encoding="utf-8",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "pdf-tables: some words" in done.stdout
    assert (place / "pdf-tables.zip").exists()


def test_the_python_of_the_readme_works(home: Path) -> None:
    (source,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", source],
        cwd=home, env=_environment(home), capture_output=True, text=True, encoding="utf-8",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("changelog bundled ")


def test_the_request_of_the_readme_is_answered(home: Path) -> None:
    (asked,) = [b for b in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) if "curl" in b]
    environment = _environment(home)
    with subprocess.Popen(
        [Path(sys.executable).parent / "apexbridge", "serve", "--port", "0"],
        cwd=home, env=environment, stdout=subprocess.PIPE, text=True, encoding="utf-8",
    ) as server:  # fmt: skip
        try:
            told = iter(server.stdout or ())
            address = next(m[0] for line in told if (m := re.search(r"http://[\d.:]+", line)))
            done = subprocess.run(
                ["/bin/sh", "-euc", asked.replace("http://127.0.0.1:8484", address)],
                env=environment, capture_output=True, text=True, encoding="utf-8",
            )  # fmt: skip
        finally:
            server.terminate()
            server.wait(30)
    assert "391" in done.stdout, done.stdout + done.stderr
    assert server.returncode == 0
