"""`find` and `index`."""

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from apexbridge.retrieval.index import SkillIndex
from apexbridge.retrieval.results import Hit, ScoreParts, SearchResults
from apexbridge.runtime.source_factory import SourceFactory
from apexbridge.skills.model import Problem
from apexbridge.sources.base import SkillSource
from apexbridge.testing import make_skill
from tests.cli.conftest import Run
from tests.cli.in_process import call

HASH = ("--set", "index.embedder=hash")
REQUEST = "commit staged changes with a clear message"


@pytest.fixture
def hashed(home: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    project.mkdir()
    monkeypatch.chdir(project)
    return call


def test_find_ranks_the_best_match_first(run_subprocess: Run) -> None:
    done = run_subprocess(*HASH, "find", REQUEST, "--limit", "2")
    assert (done.code, done.err) == (0, "")
    rows = [line.split("\t") for line in done.out.splitlines()]
    assert [row[0] for row in rows] == ["1", "2"]
    assert rows[0][1] == "git-commit"
    assert re.fullmatch(r"█+░* 0\.\d\d", rows[0][2])
    assert rows[0][3].startswith("Commits staged changes")


def test_find_as_json_has_the_components_of_every_score(hashed: Run) -> None:
    found = hashed("find", REQUEST, "--en", "git commit", "--zh", "提交代码", "--json").data
    assert (found["query"], found["threshold"]) == (REQUEST, 0.5)
    assert (found["searched"], found["problem"]) == (6, None)
    assert len(found["hits"]) == 5
    best = found["hits"][0]
    assert (best["rank"], best["name"], best["score"]) == (1, "git-commit", found["confidence"])
    assert best["description"].startswith("Commits staged changes")
    assert set(best["parts"]) == {
        "dense", "view", "view_text", "lexical", "words", "meaning", "usage", "name", "clause",
        "language", "total",
    }  # fmt: skip
    assert sum(best["parts"]["words"].values()) == pytest.approx(best["parts"]["lexical"], abs=1e-3)


def test_find_explains_each_score(hashed: Run, home: Path) -> None:
    text = 'Fold cranes out of paper, or "cut stars with scissors".'
    make_skill(home / ".claude/skills", "origami", description=text)
    done = hashed("find", "cut stars with scissors", "--explain", "--limit", "1")
    heading, *said = done.out.splitlines()
    assert heading.startswith("1. origami  ")
    assert [line.strip().split(":")[0] for line in said] == [
        "semantic", "best chunk", "keywords", "usage", "language",
    ]  # fmt: skip
    assert said[1].endswith("“cut stars with scissors”")
    assert "scissor 2" in said[2]
    chinese = hashed("find", "zzz", "--explain", "--limit", "1", LANG="zh_CN.UTF-8")
    assert "关键词：没有匹配" in chinese.out


def test_find_explains_names_and_parts_of_the_query(hashed: Run, home: Path) -> None:
    make_skill(home / ".claude/skills", "origami", description="Fold cranes out of paper.")
    request = "please pack my bags tonight and then run `origami` for paper cranes"
    done = hashed("find", request, "--explain", "--limit", "1")
    assert done.out.startswith("1. origami  ")
    assert "   mentioned in the query by name: 100%\n" in done.out
    assert "   nearest part of the query: run `origami` for paper cranes\n" in done.out
    chinese = hashed("find", request, "--explain", "--limit", "1", LANG="zh_CN.UTF-8")
    assert "查询中点名提到：100%" in chinese.out
    assert "查询中最接近的分句：run `origami`" in chinese.out


def test_weak_matches_are_shown_with_a_word_and_no_number(hashed: Run) -> None:
    done = hashed("find", "hello, how are you today?", "--limit", "2")
    assert (done.code, done.err) == (0, "Only weak matches. The nearest skills:\n")
    rows = [line.split("\t") for line in done.out.splitlines()]
    assert [row[2] for row in rows] == ["weak match"] * 2
    assert "0.0" not in done.out + done.err
    chinese = hashed("find", "你好，今天怎么样？", "--explain", LANG="zh_CN.UTF-8")
    assert chinese.err == "只有较弱的匹配。最接近的技能：\n"
    assert chinese.out.splitlines()[0].endswith("  匹配较弱")
    found = hashed("find", "hello, how are you today?", "--json").data
    assert {hit["match"] for hit in found["hits"]} == {"weak"}
    sure = hashed("--set", "index.threshold=0", "find", "hello, how are you today?", "--json")
    assert {(hit["match"], hit["kind"]) for hit in sure.data["hits"]} == {("good", "skill")}
    sure = hashed("--set", "index.threshold=0", "find", "hello, how are you today?")
    assert (sure.code, sure.err, "weak match" in sure.out) == (0, "", False)


def test_the_default_embedder_finds_a_skill_that_is_described_in_chinese(
    run_subprocess: Run, home: Path
) -> None:
    text = "计算圆周率π，可以算到任意多位"
    make_skill(home / ".claude/skills", "pi-digits", description=text)
    done = run_subprocess("find", "计算圆周率", "--limit", "1")
    assert (done.code, done.err) == (0, "")
    (row,) = (line.split("\t") for line in done.out.splitlines())
    assert row[1] == "pi-digits"
    assert row[3] == text
    assert "weak match" not in done.out
    assert re.fullmatch(r"█+░* (?:0\.[5-9]\d|1\.00)", row[2])
    (best, *_) = run_subprocess("find", "计算圆周率", "--json").data["hits"]
    assert (best["name"], best["match"]) == ("pi-digits", "good")


def test_near_duplicates_are_one_line(hashed: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    alike = ("csv-report", "gone-since", "changelog")
    hit = Hit(name="git-commit", score=0.9, parts=ScoreParts(), alike=alike)
    found = SearchResults(hits=(hit,), confidence=0.9, searched=6)

    async def search(*_: object, **__: object) -> SearchResults:
        return found

    monkeypatch.setattr(SkillIndex, "search", search)
    (row,) = hashed("find", REQUEST).out.splitlines()
    assert row.split("\t")[3].startswith("(and 2 alike) Commits staged")
    assert "（另有 2 个类似）" in hashed("find", REQUEST, LANG="zh_CN.UTF-8").out
    assert hashed("find", REQUEST, "--explain").out.endswith("   alike: csv-report, changelog\n")
    (best,) = hashed("find", REQUEST, "--json").data["hits"]
    assert (best["name"], best["alike"]) == ("git-commit", ["csv-report", "changelog"])


def test_an_empty_query_finds_nothing(hashed: Run) -> None:
    done = hashed("find", " ", "--json")
    assert (done.code, done.data["hits"], done.data["searched"]) == (0, [], 6)
    assert hashed("find", " ").err == "Empty query. Describe the task.\n"


def test_without_its_embedder_find_falls_back_to_keywords(hashed: Run) -> None:
    nowhere = ("--set", "index.embedder=onnx:nowhere")
    done = hashed(*nowhere, "find", REQUEST, "--limit", "1")
    assert done.code == 0
    assert done.out.startswith("1\tgit-commit\t")
    assert "Keyword search only: The embedder onnx:nowhere is unavailable" in done.err
    problem = hashed(*nowhere, "find", REQUEST, "--json").data["problem"]
    assert problem["code"] == "embedder_unavailable"
    rebuilt = hashed(*nowhere, "index", "rebuild", "--json")
    assert rebuilt.code == 1
    assert len(rebuilt.data["pending"]) == 6


def test_escape_sequences_in_a_skill_are_sanitized_in_results(hashed: Run, home: Path) -> None:
    hostile = "zebra \x1b[2J\x9b31m \u202egnp.exe [bold red]x[/] \r gone"
    make_skill(home / ".claude/skills", "mine", description=hostile)
    for arguments in (("find", "zebra gone"), ("find", "zebra gone \x1b[2J", "--explain")):
        done = hashed(*arguments)
        assert not set(done.out + done.err) & set("\x1b\x9b\u202e\r")
        assert "mine" in done.out.splitlines()[0]


def test_find_without_any_skill_exits_3(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_sources(_factory: SourceFactory) -> tuple[list[SkillSource], list[Problem]]:
        return [], []

    monkeypatch.setattr(SourceFactory, "create_all", no_sources)
    monkeypatch.chdir(home)
    done = call("find", "x")
    assert (done.code, done.out) == (3, "No skills found.\n")


def test_progress_is_shown_on_stderr_of_a_terminal(home: Path, tmp_path: Path) -> None:
    master, slave = pty.openpty()
    with (tmp_path / "output").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "apexbridge", *HASH, "find", REQUEST],
            cwd=tmp_path,
            env={"HOME": str(home), "LANG": "C.UTF-8", "TERM": "xterm"},
            stdout=output,
            stderr=slave,
        )
    os.close(slave)
    shown = b""
    with contextlib.suppress(OSError):  # Linux says EIO when the other end is gone
        while piece := os.read(master, 65536):
            shown += piece
    os.close(master)
    assert process.wait(timeout=60) == 0
    assert b"Indexing skills" in shown
    assert (tmp_path / "output").read_bytes().startswith(b"1\tgit-commit\t")


def test_index_status_compares_index_and_skills(hashed: Run, home: Path) -> None:
    before = hashed("index", "status", "--json").data
    assert (before["rows"], before["skills"], len(before["missing"])) == (0, 6, 6)
    assert hashed("index", "verify").code == 8
    hashed("find", REQUEST, "--quiet")
    after = hashed("index", "verify", "--json")
    assert after.code == 0
    assert after.data == {
        "embedder": "hash-64",
        "dimensions": 64,
        "store": "sqlite",
        "path": after.data["path"],
        "bytes": after.data["bytes"],
        "rows": 6,
        "skills": 6,
        "missing": [],
        "stale": [],
        "orphaned": [],
        "unmarked": [],
        "problems": [],
        "plan": {"kept": 6, "added": 0, "redone": 0, "removed": 0},
    }
    make_skill(home / ".claude/skills", "mine")
    make_skill(home / ".claude/skills", "git-commit", description="Another one")
    done = hashed("index", "status")
    assert done.code == 0
    assert "entries: 6, skills: 7" in done.out
    assert "not indexed yet: 1 (mine)" in done.out
    assert "stale: 1 (git-commit)" in done.out
    assert "the next search updates it" in done.out


def test_the_index_is_rebuilt(hashed: Run, home: Path) -> None:
    first = hashed("index", "rebuild", "--json")
    assert (first.code, len(first.data["added"]), first.data["problem"]) == (0, 6, None)
    assert hashed("index", "rebuild").out == "Index entries rebuilt: 6, removed: 0\n"
    (index,) = home.rglob("index.db")
    index.write_bytes(b"no database")
    assert hashed("index", "rebuild").code == 0
    assert hashed("index", "verify").out.endswith("The index is up to date.\n")


def test_an_error_is_reported_as_json_too(run_subprocess: Run) -> None:
    done = run_subprocess("find", "x", "--limit", "0", "--json")
    assert done.code == 2
    assert json.loads(done.out)["error"]["code"] == "usage"
