"""Evaluate the scanner on labelled skills: recall, and false positives on benign ones.

A labelled folder holds one folder a source, and in it one skill a folder (or a single file).
Sources are split in two halves, the largest first, each into the smaller half: rules may be tuned
on one half, and the figures of the other, held-out half are published.

    python -m scripts.evaluate_scanner --bad FOLDER … --good FOLDER … [--library FILE.jsonl.gz] \
        [--half tune|report] [--rules] [--missed]
"""

import argparse
import gzip
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from apexbridge.scanner.report import Report, worst_level
from apexbridge.scanner.rules import RISK_LEVELS, RiskLevel, load_rules
from apexbridge.scanner.scan import scan_skill
from apexbridge.scanner.scan_input import SKILL_MD, ScannedFile, ScanTarget

Half = Literal["tune", "report"]
FLOORS: tuple[RiskLevel, ...] = ("review", "warn", "block")
MAX_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A labelled skill and its scan result."""

    name: str
    source: str
    is_bad: bool
    worst: RiskLevel | None
    rules: tuple[tuple[str, RiskLevel], ...]

    def reaches(self, floor: RiskLevel) -> bool:
        """Return whether it has a finding at a level or above."""
        return self.worst is not None and RISK_LEVELS.index(self.worst) >= RISK_LEVELS.index(floor)


def skills_in(folder: Path) -> Iterator[Path]:
    """Return the skills of a source: outermost folders with SKILL.md, else the folder itself."""
    if folder.is_file() or (folder / SKILL_MD).is_file():
        yield folder
        return
    inner = [path.parent for path in sorted(folder.rglob(SKILL_MD))]
    outermost = [path for path in inner if not any(other in path.parents for other in inner)]
    if outermost:
        yield from outermost
    else:
        yield folder


def read_target(folder: Path) -> ScanTarget:
    """Read a skill; without SKILL.md, its first document takes that place."""
    if folder.is_file():
        return ScanTarget(folder=folder.stem, files=(_file(PurePosixPath(SKILL_MD), folder),))
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]
    names = {path: PurePosixPath(path.relative_to(folder).as_posix()) for path in paths}
    if PurePosixPath(SKILL_MD) not in names.values():
        first = next((path for path in paths if path.suffix == ".md"), None) or next(
            iter(paths), None
        )
        if first is not None:
            names[first] = PurePosixPath(SKILL_MD)
    return ScanTarget(folder=folder.name, files=tuple(_file(names[path], path) for path in paths))


def _file(name: PurePosixPath, path: Path) -> ScannedFile:
    with path.open("rb") as stream:
        data = stream.read(MAX_BYTES)
    return ScannedFile(path=name, data=data, executable=bool(path.stat().st_mode & 0o111))


def scan_case(folder: Path, source: str, *, is_bad: bool) -> Case:
    """Scan one skill."""
    return _case(scan_skill(read_target(folder)), str(folder), source, is_bad=is_bad)


def _case(report: Report, name: str, source: str, *, is_bad: bool) -> Case:
    worst = dict[str, RiskLevel]()
    for finding in report.findings:
        known = worst.get(finding.rule)
        worst[finding.rule] = worst_level(filter(None, (known, finding.level))) or finding.level
    rules = tuple(sorted(worst.items()))
    return Case(name=name, source=source, is_bad=is_bad, worst=report.worst(), rules=rules)


def split_halves(sizes: Counter[str]) -> dict[str, Half]:
    """Split sources in two halves of about the same size, deterministically."""
    sums: dict[Half, int] = {"tune": 0, "report": 0}
    division = dict[str, Half]()
    for source, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        half: Half = "tune" if sums["tune"] <= sums["report"] else "report"
        division[source] = half
        sums[half] += size
    return division


def gather(folders: Sequence[Path], *, is_bad: bool) -> list[Case]:
    """Scan every skill of some labelled folders, in parallel processes."""
    work = [
        (skill, f"{folder.parent.name}/{source.name}")
        for folder in folders
        for source in sorted(folder.iterdir())
        for entry in (sorted(source.iterdir()) if source.is_dir() else [source])
        for skill in skills_in(entry)
    ]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(scan_case, skill, source, is_bad=is_bad) for skill, source in work]
        return [job.result() for job in jobs]


def library(path: Path) -> list[Case]:
    """Scan the skills of a JSONL file, of which only the text is known."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(_scan_row, rows, chunksize=50))


def _scan_row(row: dict[str, str]) -> Case:
    description = json.dumps(row["description"], ensure_ascii=False)
    text = f"---\nname: {row['name']}\ndescription: {description}\n---\n{row['body']}"
    file = ScannedFile(path=PurePosixPath(SKILL_MD), data=text.encode("utf-8", "replace"))
    report = scan_skill(ScanTarget(folder=row["name"], files=(file,)))
    return _case(report, f"{row['name']}#{row['id']}", "library", is_bad=False)


def share(cases: Sequence[Case], floor: RiskLevel) -> str:
    """Format how many cases reach a level."""
    found = sum(case.reaches(floor) for case in cases)
    return f"{found:5d} of {len(cases):5d} ({found / max(1, len(cases)):6.1%})"


def print_figures(title: str, cases: Sequence[Case]) -> None:
    """Print recall and false positives at each level."""
    bad, good = [case for case in cases if case.is_bad], [case for case in cases if not case.is_bad]
    for floor in FLOORS:
        print(
            f"{title:24s} ≥ {floor:6s}  found {share(bad, floor)}",
            f"  false positives {share(good, floor)}",
        )


def print_rules(cases: Sequence[Case]) -> None:
    """Print for each rule how many malicious and benign skills it matches."""
    for floor in ("warn", "review"):
        hit = {True: Counter[str](), False: Counter[str]()}
        alone = {True: Counter[str](), False: Counter[str]()}
        for case in cases:
            severe = [
                rule
                for rule, level in case.rules
                if RISK_LEVELS.index(level) >= RISK_LEVELS.index(floor)
            ]
            hit[case.is_bad].update(severe)
            alone[case.is_bad].update(severe if len(severe) == 1 else [])
        print(f"rule    ≥ {floor}: bad (alone)   good (alone)")
        for rule in load_rules():
            bad, good = hit[True][rule], hit[False][rule]
            if bad or good:
                print(
                    f"{rule}  {bad:5d} ({alone[True][rule]:4d})",
                    f"  {good:5d} ({alone[False][rule]:4d})",
                )


def main() -> None:
    """Parse the arguments and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bad", type=Path, nargs="*", default=[])
    parser.add_argument("--good", type=Path, nargs="*", default=[])
    parser.add_argument("--library", type=Path)
    parser.add_argument("--half", choices=("tune", "report"))
    parser.add_argument("--rules", action="store_true")
    parser.add_argument("--missed", action="store_true")
    arguments = parser.parse_args()
    cases = [*gather(arguments.bad, is_bad=True), *gather(arguments.good, is_bad=False)]
    division = {
        **split_halves(Counter(case.source for case in cases if case.is_bad)),
        **split_halves(Counter(case.source for case in cases if not case.is_bad)),
    }
    selected: tuple[Half, ...] = (arguments.half,) if arguments.half else ("tune", "report")
    for half in selected:
        print_figures(f"half: {half}", [case for case in cases if division[case.source] == half])
    kept = [case for case in cases if division[case.source] in selected]
    for source in sorted({case.source for case in kept if case.is_bad}):
        print(f"  {source}: {share([case for case in kept if case.source == source], 'warn')}")
    if arguments.library:
        kept += library(arguments.library)
        print_figures("library", [case for case in kept if case.source == "library"])
    if arguments.rules:
        print_rules(kept)
    if arguments.missed:
        for case in kept:
            if case.is_bad != case.reaches("warn"):
                print("missed" if case.is_bad else "false positive", case.name, *case.rules)


if __name__ == "__main__":
    main()
