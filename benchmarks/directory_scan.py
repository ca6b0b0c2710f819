"""Directory scan of skill folders, compared with finding the files and reading them."""

import gc
import shutil
import statistics
import subprocess
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import anyio

from apexbridge.runtime import Runtime
from apexbridge.settings import load
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.model import Origin
from apexbridge.sources.directory_scanner import ScanLimits
from apexbridge.sources.folders import FolderSource
from apexbridge.sources.scan_cache import ScanCache
from benchmarks import indexing, skill_parsing

SIZES = (1_000, 10_000)
ROUNDS = 3
LIVE_ROUNDS = 10
_LIMITS = ScanLimits(max_folders=1_000_000)
_SETTLE_SECONDS = 2.5
_LIVE_SKILLS = 500
GOALS = "goals: linear growth; a changed SKILL.md is found within a second"


def main(corpus: Path | None = None) -> None:
    """Print the tables."""
    print(f"\nScanning folders of skills; {GOALS}")
    print(
        f"{'skills':>8}{'':>4}{'min s':>10}{'median s':>10}{'x find | cat':>14}{'us a skill':>12}"
    )
    for size in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            _scan_of(size, Path(folder).resolve(), corpus)
    with tempfile.TemporaryDirectory() as folder:
        anyio.run(_live, Path(folder).resolve())


def _rows(size: int, corpus: Path | None) -> list[tuple[str, str, str]]:
    """Return so many skills, repeating the corpus if needed."""
    given = (
        list(skill_parsing.read_corpus(corpus))
        if corpus
        else list(skill_parsing.generate_skills(size))
    )
    return [given[number % len(given)] for number in range(size)]


def _scan_of(size: int, place: Path, corpus: Path | None) -> None:
    indexing.install(place / "skills", iter(_rows(size, corpus)))
    time.sleep(_SETTLE_SECONDS)  # until the timestamps are old enough to be trusted
    memory = ScanCache(place / "scans.db")

    def source(kept: ScanCache | None) -> FolderSource:
        return FolderSource(place / "skills", Origin.INSTALLED, _LIMITS, cache=kept)

    limit = _timed(lambda: _find_and_cat(place / "skills"))
    _line(size, "find | xargs cat", limit, limit)
    _line(size, "cold", _timed(lambda: _count(source(None), size)), limit)
    _count(source(memory), size)
    _line(size, "restart, unchanged", _timed(lambda: _count(source(memory), size)), limit)
    warm = source(memory)
    _count(warm, size)
    _line(size, "same process, unchanged", _timed(lambda: _count(warm, size)), limit)
    kept = _held(source(memory), size) / size / 1024
    print(f"{size:>8}    held in memory: {kept:.1f} KiB a skill")


def _count(source: FolderSource, size: int) -> None:
    scan = anyio.run(source.scan)
    if not size - 10 <= len(scan.skills) <= size:  # a corpus may have skills that cannot be parsed
        raise SystemExit(f"{len(scan.skills)} skills were read, and not {size}")


def _find_and_cat(root: Path) -> None:
    shell = shutil.which("sh") or "sh"
    command = f'find "$1" -name {SKILL_MD} -print0 | xargs -0 cat > /dev/null'
    subprocess.run([shell, "-c", command, "-", str(root)], check=True)


def _timed(work: Callable[[], None]) -> list[float]:
    seconds = list[float]()
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return seconds


def _line(size: int, what: str, seconds: list[float], limit: list[float]) -> None:
    least, median = min(seconds), statistics.median(seconds)
    ratio, each = least / min(limit), least / size * 1e6
    print(f"{size:>8}    {what:26}{least:>8.3f}{median:>10.3f}{ratio:>14.1f}{each:>12.0f}")


def _held(source: FolderSource, size: int) -> int:
    """Return the bytes that a source keeps after a scan."""
    tracemalloc.start()
    _count(source, size)
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held


async def _live(place: Path) -> None:
    """Edit a SKILL.md under a running runtime; time until a search finds the new text."""
    root = place / "home" / ".claude" / "skills"
    indexing.install(root, skill_parsing.generate_skills(_LIVE_SKILLS))
    (place / "project").mkdir()
    environment = {"HOME": str(place / "home")}
    loaded = load(project=place / "project", environment=environment)
    seconds = list[float]()
    async with Runtime.open(loaded, lives=True) as runtime:
        await runtime.search("warm")
        for number in range(LIVE_ROUNDS):
            skill = runtime.catalog.snapshot.skills[number]
            if skill.root is None or skill.provenance.origin is not Origin.USER:
                continue
            word = f"zyx{number}wq"
            text = f"---\nname: {skill.name}\ndescription: Polishes {word} lenses.\n---\nDo it.\n"
            (skill.root / SKILL_MD).write_text(text, encoding="utf-8")
            start = time.perf_counter()
            await _found(runtime, f"{word} lenses", skill.name)
            seconds.append(time.perf_counter() - start)
    print(
        f"\nA changed SKILL.md among {_LIVE_SKILLS} is found after: "
        f"min {min(seconds):.3f} s, median {statistics.median(seconds):.3f} s, "
        f"max {max(seconds):.3f} s"
    )


async def _found(runtime: Runtime, query: str, name: str) -> None:
    """Poll until a search finds the skill."""
    while (await runtime.search(query, limit=1)).hits[0].name != name:  # noqa: ASYNC110
        await anyio.sleep(0.005)
