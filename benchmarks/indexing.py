"""Indexing throughput of a skill library: cold, unchanged, and with one changed skill."""

import re
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import anyio

from apexbridge.retrieval.results import SyncReport
from apexbridge.runtime import Runtime
from apexbridge.settings import Config, load
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.parser import read_skill
from apexbridge.skills.tree import MARKER
from benchmarks import skill_parsing

GENERATED = 3_000
FROM_NOTHING, UNCHANGED, CHANGED = 2, 5, 10
"""Rounds of each."""
GOALS = "goals: 300 skills/s from nothing, 1 s with nothing changed, 100 ms with one changed"
_LONGEST_NAME = 50
_STRANGE = re.compile(r"[^a-z0-9]+")

Spans = dict[str, list[tuple[float, float]]]
"""Wall time and CPU time."""


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _note(spans: Spans, name: str, start: tuple[float, float], end: tuple[float, float]) -> None:
    spans.setdefault(name, []).append((end[0] - start[0], end[1] - start[1]))


def main(corpus: Path | None = None) -> None:
    """Print the table."""
    rows = skill_parsing.read_corpus(corpus) if corpus else skill_parsing.generate_skills(GENERATED)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder).resolve()
        count = install(place / "data" / "skills", rows)
        environment = {
            "HOME": str(place / "home"),
            "APEXBRIDGE_DATA_DIR": str(place / "data"),
            "APEXBRIDGE_SKILLS__MAX_FOLDERS": "100000",
        }
        (place / "project").mkdir()
        loaded = load(project=place / "project", environment=environment)
        print(f"\nIndexing {count} installed skills; {GOALS}")
        anyio.run(_measure, loaded)


def install(skills: Path, rows: Iterator[tuple[str, str, str]]) -> int:
    """Write skills as folders; duplicate names get a number."""
    count = 0
    for number, (name, description, body) in enumerate(rows):
        plain = _STRANGE.sub("-", name.lower()).strip("-")[:_LONGEST_NAME].strip("-")
        unique = f"{plain or 'skill'}-{number}"
        (skills / unique).mkdir(parents=True)
        document = skill_parsing.unquoted_skill_md(unique, description, body)
        (skills / unique / SKILL_MD).write_bytes(document)
        count += 1
    return count


async def _measure(loaded: Config) -> None:
    spans: Spans = {}
    report = SyncReport()
    for _ in range(FROM_NOTHING):
        _forget(loaded.data)
        report = await _start(loaded, spans, "from nothing")
    done = len(report.added)
    for _ in range(UNCHANGED):
        await _start(loaded, spans, "unchanged")
    await _again(loaded, spans)
    await _change(loaded, spans)
    print(f"{'':44}{'min s':>9}{'median s':>10}{'cpu s':>9}{'skills/s':>10}")
    for name, seconds in spans.items():
        clock, processor = zip(*seconds, strict=True)
        least, median = min(clock), statistics.median(clock)
        rate = f"{done / least:>10.0f}" if name.startswith("from nothing") else ""
        print(f"{name:44}{least:>9.3f}{median:>10.3f}{min(processor):>9.3f}{rate}")


def _forget(data: Path) -> None:
    """Delete the index and its markers."""
    for index in data.glob("index.*"):
        index.unlink()
    for marker in data.glob(f"skills/*/{MARKER}"):
        marker.unlink()


async def _start(loaded: Config, spans: Spans, name: str) -> SyncReport:
    """Open a new runtime and sync the index."""
    start = _now()
    async with Runtime.open(loaded) as runtime:
        scanned = _now()
        report = await runtime.index_service.sync()
        end = _now()
        await (await runtime.index_service.index()).refresh()
        loaded_too = _now()
    if report.problem is not None or report.failed:
        raise SystemExit(f"not everything was indexed: {report.problem} {report.failed}")
    _note(spans, name, start, end)
    _note(spans, f"{name}: opening and scanning folders", start, scanned)
    _note(spans, f"{name}: the index", scanned, end)
    _note(spans, f"{name}: left to the first search", end, loaded_too)
    return report


async def _again(loaded: Config, spans: Spans) -> None:
    """Sync again in the same runtime."""
    async with Runtime.open(loaded) as runtime:
        await runtime.search("warm")
        for _ in range(UNCHANGED):
            start = _now()
            await runtime.refresh()
            report = await runtime.index_service.sync()
            _note(spans, "unchanged, in one process", start, _now())
            if report.added or report.redone:
                raise SystemExit("something was indexed though nothing changed")


async def _change(loaded: Config, spans: Spans) -> None:
    """Edit one SKILL.md; time reading the skill and updating the index."""
    async with Runtime.open(loaded) as runtime:
        await runtime.search("warm")
        installed = [
            skill for skill in runtime.catalog.snapshot.skills if skill.provenance.writable
        ]
        for number in range(CHANGED):
            skill = installed[number * len(installed) // CHANGED]
            if skill.root is None:
                continue
            with (skill.root / SKILL_MD).open("a", encoding="utf-8") as file:
                file.write(f"\n## Changed {number}\n")
            start = _now()
            again = read_skill(skill.root, skill.provenance).skill
            if again is None:
                raise SystemExit(f"{skill.name} cannot be read any more")
            before = runtime.catalog.snapshot
            skills = tuple(again if one is skill else one for one in before.skills)
            runtime.catalog.snapshot = replace(before, skills=skills)
            read = _now()
            report = await runtime.index_service.sync(only=[skill.name])
            end = _now()
            if report.redone != (skill.name,):
                raise SystemExit(f"{report.redone} were indexed again, and not {skill.name} alone")
            _note(spans, "one changed", start, end)
            _note(spans, "one changed: reading it", start, read)
            _note(spans, "one changed: the index", read, end)
