"""Time to install a 1 MB zip, compared with `unzip`."""

import random
import shutil
import statistics
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import anyio

from apexbridge.lifecycle.scan_folder import scan_folder
from apexbridge.lifecycle.zip.archive import extract_archive, inspect_archive
from apexbridge.runtime import Runtime
from apexbridge.settings import load

ROUNDS = 9
FILES = 60
_DOCS = Path(__file__).parents[1] / "docs"


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder).resolve()
        archive = _archive(place / "garden.zip")
        size = archive.stat().st_size
        print(f"\nInstalling a zip of {size / 1e6:.2f} MB with {FILES} files")
        print(f"{'':<34}{'min ms':>10}{'median ms':>12}{'x unzip':>10}")
        limit = _print("unzip -q (a process)", _times(place, lambda at: _unzip(archive, at)))
        _print("inspect", _times(place, lambda _: inspect_archive(archive)), limit)
        _print("inspect and extract", _times(place, lambda at: extract_archive(archive, at)), limit)
        (place / "garden").mkdir()
        extract_archive(archive, place / "garden")
        _print("vet", _times(place, lambda _: scan_folder(place / "garden")), limit)
        _print("install, all of it", anyio.run(_installs, archive, place), limit)


def _archive(path: Path) -> Path:
    """Build an archive: half text, half incompressible bytes, like skills with images."""
    pages = (page.read_text(encoding="utf-8") for page in sorted(_DOCS.glob("*.md")))
    lines = [line for page in pages for line in page.splitlines()]
    chance = random.Random(7)  # noqa: S311  # the same bytes each time
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        head = "---\nname: garden\ndescription: Grows tomatoes and herbs.\n---\n"
        archive.writestr("garden/SKILL.md", head + "# Garden\n\nWater the plants.\n")
        for number in range(FILES // 2):
            text = "\n".join(chance.choices(lines, k=400))
            archive.writestr(f"garden/references/{number}.md", text)
            archive.writestr(f"garden/assets/{number}.bin", chance.randbytes(24_000))
    return path


def _unzip(archive: Path, at: Path) -> None:
    subprocess.run(["unzip", "-q", archive, "-d", at], check=True)  # noqa: S607


def _times(place: Path, work: Callable[[Path], object]) -> list[float]:
    seconds = list[float]()
    for number in range(ROUNDS):
        at = place / f"at-{number}"
        at.mkdir()
        start = time.perf_counter()
        work(at)
        seconds.append(time.perf_counter() - start)
        shutil.rmtree(at)
    return seconds


async def _installs(archive: Path, place: Path) -> list[float]:
    environment = {"HOME": str(place), "APEXBRIDGE_DATA_DIR": str(place / "data")}
    seconds = list[float]()
    async with Runtime.open(load(project=place, environment=environment)) as runtime:
        await runtime.index_service.sync()  # the sync at start is no part of an install
        for _ in range(ROUNDS):
            start = time.perf_counter()
            await runtime.manager.install(archive)
            seconds.append(time.perf_counter() - start)
            await runtime.manager.uninstall("garden")
    return seconds


def _print(name: str, seconds: list[float], limit: float = 0) -> float:
    least, median = min(seconds) * 1e3, statistics.median(seconds) * 1e3
    ratio = f"{median / limit:.1f}" if limit else ""
    print(f"{name:<34}{least:>10.1f}{median:>12.1f}{ratio:>10}")
    return median
