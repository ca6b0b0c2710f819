"""A release can be built, holds what it must, and works in an empty environment."""

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from scripts.release_check import check_data_files, check_wheel

ROOT = Path(__file__).parents[2]


@pytest.mark.unmeasured
def test_the_release_check_passes(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scripts.release_check", "--output", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("release check: ok, apexbridge-")
    assert len(list(tmp_path.iterdir())) == 4  # an sdist and a wheel of each


def test_a_wheel_without_its_data_files_or_with_tests_in_it_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "apexbridge-0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("apexbridge/__init__.py", "")
        archive.writestr("tests/test_x.py", "")
    problems = check_wheel("apexbridge", wheel)
    assert any("lacks apexbridge/py.typed" in problem for problem in problems)
    assert any("has no license" in problem for problem in problems)
    assert any("holds tests/test_x.py" in problem for problem in problems)
    assert any("apexbridge/__init__.pyi" in problem for problem in check_data_files(wheel))


def _locked() -> dict[str, str]:
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line.removesuffix("\\").strip()) for line in lines if "==" in line]
    return {_canonical(pin.name): str(pin.specifier).removeprefix("==") for pin in pins}


def _canonical(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def test_the_lock_file_satisfies_what_the_project_asks_for() -> None:
    data = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = data["dependency-groups"]
    wanted = [
        *data["project"]["dependencies"],
        *[text for extra in data["project"]["optional-dependencies"].values() for text in extra],
        *groups["test"],
        *groups["e2e"],
    ]
    locked = _locked()
    ours = {"apexbridge", "apexbridge-retriever"}
    for requirement in map(Requirement, wanted):
        name = _canonical(requirement.name)
        if name not in ours:
            assert name in locked, f"{name} is not locked: run `make lock`"
            assert requirement.specifier.contains(locked[name]), f"{name}: run `make lock`"
