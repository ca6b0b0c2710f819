"""Paginated skill list, and the inspection of a skill before an install."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from apexbridge.catalog.catalog import Catalog
from apexbridge.catalog.snapshot import Snapshot
from apexbridge.errors import ArchiveError
from apexbridge.lifecycle.inspection import Inspection, inspect_skill
from apexbridge.lifecycle.scan_results import ScanGate, ScanResultStore, ScanSummary
from apexbridge.lifecycle.skill_list import ListFilter, SkillPage, list_skills
from apexbridge.lifecycle.transactions import InstallPolicy
from apexbridge.scanner.report import Finding, Report
from apexbridge.skills.model import Origin, Provenance, Skill
from apexbridge.skills.parser import read_skill
from apexbridge.testing import make_skill, make_zip, skill_md

_MINE = Provenance(origin=Origin.INSTALLED, source_id="installed:x", needs_trust=False)
_USER = Provenance(origin=Origin.USER, source_id="user:x", needs_trust=False)


def _skill(place: Path, name: str, text: str = "Does.", provenance: Provenance = _MINE) -> Skill:
    skill = read_skill(make_skill(place, name, description=text), provenance).skill
    assert skill is not None
    return skill


def _names(page: SkillPage) -> list[str]:
    return [item.skill.name for item in page.items]


@pytest.fixture
def snapshot(tmp_path: Path) -> Snapshot:
    places = tmp_path / "a", tmp_path / "b"
    return Snapshot(
        skills=(_skill(places[0], "beta", "Grows 番茄."), _skill(places[0], "alpha")),
        disabled=(_skill(places[0], "gamma", provenance=_USER),),
        shadowed=(_skill(places[1], "alpha", provenance=_USER),),
    )


@pytest.mark.promise("L16")
def test_pages_go_on_where_the_one_before_ended_whatever_came_or_went(
    snapshot: Snapshot, tmp_path: Path
) -> None:
    verdicts = ScanResultStore(tmp_path / "verdicts")
    first = list_skills(snapshot, ListFilter(limit=2), ["beta"], verdicts)
    assert (_names(first), first.total) == (["alpha", "beta"], 3)
    assert [item.is_pinned for item in first.items] == [False, True]
    fewer = Snapshot(skills=snapshot.skills[:1], disabled=snapshot.disabled)
    second = list_skills(fewer, ListFilter(limit=2, after=first.next), [], verdicts)
    assert (_names(second), second.next) == (["gamma"], "")
    assert second.items[0].state == "disabled"
    beyond = list_skills(fewer, ListFilter(after="zzz"), [], verdicts)
    assert (beyond.items, beyond.next, beyond.total) == ((), "", 2)


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (ListFilter(text="番茄"), ["beta"]),
        (ListFilter(text="ALPHA"), ["alpha"]),
        (ListFilter(text="nothing"), []),
        (ListFilter(origin="user"), ["gamma"]),
        (ListFilter(state="enabled"), ["alpha", "beta"]),
        (ListFilter(state="shadowed"), ["alpha"]),
        (ListFilter(limit=0), ["alpha"]),
    ],
)
def test_skills_are_chosen_by_text_origin_and_state(
    snapshot: Snapshot, tmp_path: Path, wanted: ListFilter, names: list[str]
) -> None:
    assert (
        _names(list_skills(snapshot, wanted, [], ScanResultStore(tmp_path / "verdicts"))) == names
    )


def test_what_was_found_is_remembered_by_the_state_it_was_found_in(
    snapshot: Snapshot, tmp_path: Path
) -> None:
    verdicts = ScanResultStore(tmp_path / "verdicts")
    mark = snapshot.skills[0].fingerprint
    assert mark is not None
    finding = Finding(rule="AB001", level="warn", path="SKILL.md")
    verdicts.put(mark.sha256, Report(findings=(finding, finding), partial=True, files=1, bytes=1))
    page = list_skills(snapshot, ListFilter(), [], verdicts)
    found = {item.skill.name: item.scan for item in page.items}
    assert found["beta"] == ScanSummary(counts={"warn": 2}, partial=True)
    assert found["alpha"] is None
    (tmp_path / "verdicts" / f"{mark.sha256}.json").write_text("{", encoding="utf-8")
    assert verdicts.get(mark.sha256) is None


def test_a_memory_that_cannot_be_written_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "verdicts").touch()
    ScanResultStore(tmp_path / "verdicts").put(
        "0", Report(findings=(), partial=False, files=0, bytes=0)
    )
    assert "not stored" in caplog.text


async def _inspect(archive: Path) -> Inspection:
    policy = InstallPolicy()
    results = ScanResultStore(archive.parent / "verdicts")
    catalog = SimpleNamespace(snapshot=Snapshot(skills=()))
    scans = ScanGate(results, cast("Catalog", catalog), policy.blocks_at)
    return await inspect_skill(archive, scans, policy)


@pytest.mark.anyio
async def test_everything_a_skill_could_do_is_told_before_it_is_installed(tmp_path: Path) -> None:
    head = skill_md("garden", "Grows.", allowed_tools="Read, Bash(git *)")
    hooks = b"hooks:\n  PreToolUse:\n    - command: [x]\n---\n"
    body = b"Now: !`date`\n\n```!\nls -l\npwd\n```\n"
    text = head.replace(b"---\n", hooks, 2).replace(hooks, b"---\n", 1) + body
    scripts = {
        "garden/scripts/a.py": b"print(1)\n",
        "garden/scripts/b": b"#!/usr/bin/env -S deno run\n",
        "garden/scripts/c.txt": b"text\n",
    }
    archive = make_zip(tmp_path / "garden.zip", {"garden/SKILL.md": text, **scripts})
    found = await _inspect(archive)
    assert found.tools == ("Read", "Bash(git *)")
    assert found.hooks == ("PreToolUse",)
    assert found.commands == ("date", "ls -l\npwd")
    assert [(s.path, s.runner) for s in found.scripts] == [
        ("scripts/a.py", "python"),
        ("scripts/b", "deno"),
    ]
    assert (len(found.files), found.size) == (4, sum(file.size for file in found.files))
    assert found.skill.fingerprint is not None
    assert found.sha256 == found.skill.fingerprint.sha256
    assert {"AB051", "AB052"} <= {finding.rule for finding in found.report.findings}
    assert list(tmp_path.iterdir()) == [archive]


@pytest.mark.anyio
async def test_what_is_no_skill_is_refused_by_the_inspection_too(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(b"no zip")
    with pytest.raises(ArchiveError):
        await _inspect(tmp_path / "x.zip")
