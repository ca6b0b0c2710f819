"""Parsing speed of SKILL.md files, as ratios to reading the bytes and to the plain YAML loader."""

import gzip
import json
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from apexbridge.skills import tree
from apexbridge.skills.model import Origin, Provenance
from apexbridge.skills.parser import ParseResult, parse_skill, read_skill
from benchmarks.interleaved import measure

ROUNDS = 5
GENERATED = 3_000
BENCH = Provenance(origin=Origin.USER, source_id="user:bench")
ENGLISH = "read write table report chart image deploy test review commit branch server search index"
CHINESE = "读取 生成 表格 报告 图表 部署 测试 审查 提交 视频"
AWKWARD = "query: cache/queue *bold* 'quoted' (v1.0) #1 --- a@b"
WORDS = f"{ENGLISH} {CHINESE} {AWKWARD}".split()


def generate_skills(count: int) -> Iterator[tuple[str, str, str]]:
    """Generate skills of typical shape and length, the same in every run."""
    chance = random.Random(7)  # noqa: S311  # no secret hangs on it
    for number in range(count):
        description = " ".join(chance.choices(WORDS, k=chance.randint(10, 60)))
        body = "\n".join(" ".join(chance.choices(WORDS, k=12)) for _ in range(30))
        yield f"skill-{number}", description, body


def read_corpus(corpus: Path) -> Iterator[tuple[str, str, str]]:
    """Read names, descriptions and bodies from JSON lines."""
    opener: Any = gzip.open if corpus.suffix == ".gz" else open
    with opener(corpus, "rt", encoding="utf-8") as lines:
        for line in lines:
            row: dict[str, str] = json.loads(line)
            yield row["name"], row["description"], row.get("body", "")


def unquoted_skill_md(name: str, description: str, body: str) -> bytes:
    """Build a SKILL.md with an unquoted description, a common mistake."""
    indented = description.replace("\n", "\n  ")
    return f"---\nname: {name}\ndescription: {indented}\n---\n{body}".encode("utf-8", "replace")


def main(corpus: Path | None = None) -> None:
    """Print the tables."""
    rows = list(read_corpus(corpus) if corpus else generate_skills(GENERATED))
    with tempfile.TemporaryDirectory() as place:
        folders = list[Path]()
        for number, row in enumerate(rows):
            folder = Path(place, str(number))
            folder.mkdir()
            (folder / "SKILL.md").write_bytes(unquoted_skill_md(*row))
            folders.append(folder)
        _report(folders)


def _report(folders: list[Path]) -> None:
    texts = [(folder / "SKILL.md").read_bytes() for folder in folders]
    readings = [parse_skill(text, folder="x", provenance=BENCH) for text in texts]
    candidates = {
        "bytes from disk": lambda: [(folder / "SKILL.md").read_bytes() for folder in folders],
        "yaml.CSafeLoader": lambda: [_load(text) for text in texts],
        "ours, parsing": lambda: [parse_skill(t, folder="x", provenance=BENCH) for t in texts],
        "ours, fingerprints": lambda: [tree.fingerprint(folder) for folder in folders],
        "ours, whole folders": lambda: [read_skill(folder, BENCH) for folder in folders],
    }
    times = measure(candidates, ROUNDS)
    base, peer = times["bytes from disk"][0], times["yaml.CSafeLoader"][0]
    print(f"\nReading {len(folders)} skills, {ROUNDS} interleaved rounds, least times")
    print(f"{'':22}{'files/s':>10}{'x bytes':>10}{'x CSafeLoader':>16}")
    for name, (least, _) in times.items():
        figures = f"{len(folders) / least:>10.0f}{least / base:>10.2f}{least / peer:>16.2f}"
        print(f"{name:22}{figures}")
    refused = sum(_load(text) is None for text in texts)
    print(f"the plain loader refuses {refused} of them; ours: {_verdicts(readings)}")


def _load(text: bytes) -> object:
    front = text.split(b"\n---\n", 1)[0].removeprefix(b"---\n")
    try:
        return yaml.load(front, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    except yaml.YAMLError:
        return None


def _verdicts(readings: list[ParseResult]) -> dict[str, int]:
    counts = Counter("read" if reading.skill else "refused" for reading in readings)
    counts.update(problem.code for reading in readings for problem in reading.problems)
    return dict(counts.most_common())
