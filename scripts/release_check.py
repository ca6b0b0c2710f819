"""Build both distributions and try the wheels in an empty environment, as docs/releasing.md says.

    python -m scripts.release_check [--output build/release]

Fails with one sentence for each thing that would make a bad release.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECTS = {"apexbridge": ROOT, "apexbridge_retriever": ROOT / "retriever"}
# Data files that an editable installation finds anyway and a wheel could lack.
NEEDED = {
    "apexbridge": (
        "apexbridge/py.typed",
        "apexbridge/__init__.pyi",
        "apexbridge/bundled/",
        "/console/",
    ),
    "apexbridge_retriever": ("apexbridge_retriever/",),
}


def version(project: Path) -> str:
    """The version that a project file declares."""
    return tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "version"
    ]


def build(project: Path, output: Path) -> None:
    """Build sdist and wheel with the build backend that is installed; nothing is downloaded."""
    command = [
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--outdir",
        str(output),
        str(project),
    ]
    subprocess.run(command, check=True, capture_output=True)


def check_wheel(name: str, wheel: Path) -> list[str]:
    """Everything that is wrong with the contents of a wheel."""
    names = zipfile.ZipFile(wheel).namelist()
    problems = [
        f"{wheel.name} lacks {needed}"
        for needed in NEEDED[name]
        if not any(needed in f"/{entry}" or entry.startswith(needed) for entry in names)
    ]
    if not any("LICENSE" in entry for entry in names):
        problems.append(f"{wheel.name} has no license")
    stray = [n for n in names if n.startswith("tests/") or n.endswith(".pyc")]
    return problems + [f"{wheel.name} holds {entry}" for entry in stray[:3]]


def check_data_files(wheel: Path) -> list[str]:
    """Tracked data files of the package that the wheel does not have."""
    git = shutil.which("git") or "git"
    tracked = subprocess.run(
        [git, "ls-files", "src"], cwd=ROOT, check=True, capture_output=True, encoding="utf-8"
    ).stdout.split()
    names = set(zipfile.ZipFile(wheel).namelist())
    return [
        f"{wheel.name} lacks {path}" for path in tracked if path.removeprefix("src/") not in names
    ]


def check_changelog() -> list[str]:
    """The changelog must have an entry for the version."""
    wanted = re.escape(version(ROOT))
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    return (
        []
        if re.search(rf"^## \[{wanted}\]", text, re.MULTILINE)
        else [f"no entry for {wanted} in CHANGELOG.md"]
    )


def rebuild_from_sdist(sdist: Path, wheel: Path, scratch: Path) -> list[str]:
    """The sdist must build the same files as the working tree did."""
    with tarfile.open(sdist) as archive:
        archive.extractall(scratch, filter="data")
    (folder,) = scratch.iterdir()
    command = [
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--wheel",
        "--outdir",
        str(folder / "out"),
    ]
    subprocess.run([*command, str(folder)], check=True, capture_output=True)
    (again,) = (folder / "out").glob("*.whl")
    here, there = zipfile.ZipFile(wheel).namelist(), zipfile.ZipFile(again).namelist()
    return (
        []
        if sorted(here) == sorted(there)
        else [f"{sdist.name} builds another wheel than the tree"]
    )


def run(python: Path, home: Path, *arguments: str) -> str:
    """Run the installed command away from the sources, and give its output."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}
    done = subprocess.run(
        [python.with_name("apexbridge"), *arguments],
        cwd=home,
        env=environment,
        check=True,
        capture_output=True,
        encoding="utf-8",
    )
    return done.stdout


def try_installed(wheels: list[Path], scratch: Path) -> list[str]:
    """Install the wheels into an empty environment and use them: version, search, chat, sandbox."""
    home, place = scratch / "home", scratch / "venv"
    home.mkdir()
    venv.create(place, with_pip=False)
    python = place / "bin" / "python"
    locked = ["--constraint", str(ROOT / "requirements.lock")]
    uv = Path(sys.executable).with_name("uv")
    subprocess.run(
        [uv, "pip", "install", "--quiet", "--no-sources", "--python", python, *locked, *wheels],
        check=True,
        env=os.environ | index_variables(),
    )
    problems = list[str]()
    if version(ROOT) not in run(python, home, "--version"):
        problems.append("the installed command prints another version")
    found = json.loads(run(python, home, "find", "--json", "会议纪要"))
    if found["data"]["hits"][0]["name"] != "meeting-minutes":
        problems.append("the installed command does not find a bundled skill")
    if "84" not in run(python, home, "chat", "What is 12*(3+4)?"):
        problems.append("the installed command does not answer")
    return problems


def index_variables() -> dict[str, str]:
    """Make uv use the package index that pip is configured with."""
    for key in ("global.index-url", "user.index-url"):
        command = [sys.executable, "-m", "pip", "config", "get", key]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
        if done.returncode == 0 and "UV_DEFAULT_INDEX" not in os.environ:
            return {"UV_DEFAULT_INDEX": done.stdout.strip()}
    return {}


def main() -> int:
    """Print every problem; 1 if there is one."""
    parser = argparse.ArgumentParser(description="Build and check a release.")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "release")
    output: Path = parser.parse_args().output
    problems, wheels = check_changelog(), list[Path]()
    with tempfile.TemporaryDirectory() as scratch:
        for name, project in PROJECTS.items():
            release = f"{name}-{version(project)}"
            for old in output.glob(f"{name}-[0-9]*"):
                old.unlink()
            build(project, output)
            (wheel,) = output.glob(f"{release}-*.whl")
            wheels.append(wheel)
            problems += check_wheel(name, wheel)
            unpacked = Path(scratch, name)
            unpacked.mkdir()
            problems += rebuild_from_sdist(output / f"{release}.tar.gz", wheel, unpacked)
        problems += check_data_files(wheels[0])
        problems += try_installed(wheels, Path(scratch))
    for problem in problems:
        print(problem)
    print(f"release check: {'failed' if problems else 'ok'}, {', '.join(w.name for w in wheels)}")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
