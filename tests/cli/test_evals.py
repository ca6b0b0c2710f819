"""`eval`."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from apexbridge.testing import make_skill
from tests.cli.conftest import Run
from tests.cli.in_process import call

CORPUS = [
    {"id": 1, "name": "pdf-forms", "description": "Fill in PDF forms.", "body": "Fields."},
    {"id": 2, "name": "git-commit", "description": "Write a commit message."},
    {"id": "three", "name": "meeting-minutes", "description": "整理会议纪要。"},
]
QUERIES = [
    {"query": "fill in a PDF form", "accept": [1, 99]},
    {"query": "整理一下会议", "accept": ["three"]},
    {"query": "fill in a PDF form", "accept": [2], "lang": "en"},
]


@pytest.fixture
def hashed(home: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    project.mkdir()
    monkeypatch.chdir(project)
    return call


def _lines(path: Path, rows: Sequence[object]) -> str:
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return str(path)


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, ...]:
    corpus = _lines(tmp_path / "corpus.jsonl", CORPUS)
    queries = _lines(tmp_path / "queries.jsonl", QUERIES)
    return ("--corpus", corpus, "--queries", queries)


def test_retrieval_is_measured_over_all_and_by_language(
    hashed: Run, files: tuple[str, ...]
) -> None:
    measured = hashed("eval", "retrieval", *files, "--json").data
    assert set(measured["latency_ms"]) == {"min", "median", "p95"}
    assert (measured["queries"], measured["skills"], measured["depth"]) == (3, 3, 10)
    assert (measured["hit@1"], measured["recall@5"], measured["recall@10"]) == (0.6667, 1, 1)
    assert measured["mrr"] > 0.75
    assert measured["unknown_accepts"] == 1
    assert {key: part["queries"] for key, part in measured["by_language"].items()} == {
        "en": 2,
        "zh": 1,
    }
    done = hashed("eval", "retrieval", *files)
    rows = [line.split("\t")[:3] for line in done.out.splitlines()]
    assert rows == [["all", "3", "0.667"], ["English", "2", "0.500"], ["Chinese", "1", "1.000"]]
    assert "Accepted ids missing from the corpus: 1" in done.err


def test_an_invalid_file_is_reported_with_its_line(
    hashed: Run, files: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"id": 1}\n', encoding="utf-8")
    done = hashed("eval", "retrieval", *files)
    assert (done.code, done.out) == (1, "")
    assert f"{tmp_path}/corpus.jsonl:1: name: Field required [eval_input_invalid]" in done.err
    (tmp_path / "corpus.jsonl").unlink()
    assert hashed("eval", "retrieval", *files, "--json").code == 3


def _with_queries(root: Path, name: str, **expected: bool) -> Path:
    queries = [{"query": q.replace("_", " "), "should_trigger": e} for q, e in expected.items()]
    return make_skill(
        root,
        name,
        description="Fold paper cranes and other origami animals.",
        files={"evals/eval_queries.json": json.dumps(queries)},
    )


def test_triggers_use_the_eval_queries_of_the_skill(hashed: Run, home: Path) -> None:
    _with_queries(home / ".claude/skills", "origami", fold_paper_cranes=True)
    done = hashed("eval", "triggers", "origami", "--json")
    assert done.code == 0
    (report,) = done.data["skills"]
    assert (report["name"], report["limit"], report["threshold"]) == ("origami", 5, 0.5)
    assert (report["accuracy"], report["precision"], report["recall"]) == (1, 1, 1)
    (one,) = report["queries"]
    assert (one["query"], one["rank"], one["passed"]) == ("fold paper cranes", 1, True)


def test_a_failed_trigger_query_exits_8(hashed: Run, home: Path) -> None:
    _with_queries(home / ".claude/skills", "origami", fold_paper_cranes=False, hello=True)
    done = hashed("eval", "triggers", "origami")
    assert done.code == 8
    assert "FAILED: triggered\t1\t" in done.out
    assert "FAILED: not triggered\t" in done.out
    assert "Queries: 2; accuracy 0.00, precision 0.00, recall 0.00" in done.out


def test_a_folder_is_evaluated_among_the_skills_without_installing_it(
    hashed: Run, project: Path
) -> None:
    _with_queries(project / "draft", "origami", fold_paper_cranes=True)
    done = hashed("eval", "triggers", "draft/origami", "--json")
    assert (done.code, done.data["skills"][0]["queries"][0]["rank"]) == (0, 1)
    assert hashed("index", "status", "--json").data["orphaned"] == []


@pytest.mark.parametrize(
    ("wanted", "code", "says"),
    [
        ("git-comit", 3, "Did you mean git-commit?"),
        ("git-commit", 1, "has no evaluation queries"),
        ("./nowhere", 6, "Cannot read"),
    ],
)
def test_a_skill_without_eval_queries_is_an_error(
    hashed: Run, wanted: str, code: int, says: str
) -> None:
    done = hashed("eval", "triggers", wanted)
    assert (done.code, done.out) == (code, "")
    assert says in done.err


def test_coexistence_reports_outranking_skills_and_near_duplicates(hashed: Run, home: Path) -> None:
    calm = hashed("eval", "coexistence")
    assert calm.code == 0
    text = " ".join(f"Fold {what} out of coloured paper." for what in ("cranes", "frogs", "boats"))
    for name in ("origami-a", "origami-b"):
        make_skill(home / ".claude/skills", name, description=text)
    found = hashed("eval", "coexistence", "--json").data
    assert found["skills"] == 8
    taken = {owner for owner in found["matrix"] if owner.startswith("origami")}
    assert taken
    assert [(pair["one"], pair["other"]) for pair in found["alike"]] == [("origami-a", "origami-b")]
    done = hashed("eval", "coexistence")
    assert "origami-a\torigami-b\t" in done.out


def test_a_description_is_previewed_without_saving_it(hashed: Run, home: Path) -> None:
    root = _with_queries(home / ".claude/skills", "origami", fold_a_crane=True, hello=False)
    before = (root / "SKILL.md").read_bytes()
    new = "Commit staged changes with a clear message. Write commit messages."
    found = hashed("eval", "preview", "origami", "--description", new, "--json").data
    assert found["name"] == "origami"
    kinds = {shift["query"]: shift["kind"] for shift in found["shifts"]}
    assert kinds["fold a crane"] == "saved"
    assert "hello" not in kinds
    assert set(kinds.values()) == {"saved", "old", "new"}
    assert "git-commit" in {other["name"] for other in found["others"]}
    assert (root / "SKILL.md").read_bytes() == before
    assert hashed("index", "verify").code == 0
    done = hashed("eval", "preview", "origami", "--description", new)
    assert "eval query\tfold a crane" in done.out


def test_the_same_description_changes_no_rank_and_an_empty_one_is_rejected(
    hashed: Run, home: Path
) -> None:
    make_skill(home / ".claude/skills", "origami", description="Fold paper cranes.")
    same = hashed("eval", "preview", "origami", "--description", "Fold paper cranes.")
    assert same.out.endswith("No other skill changes rank.\n")
    empty = hashed("eval", "preview", "origami", "--description", " ")
    assert (empty.code, "must not be empty" in empty.err) == (6, True)


def test_invalid_eval_queries_are_reported_in_a_preview(hashed: Run, home: Path) -> None:
    make_skill(
        home / ".claude/skills", "origami", files={"eval_queries.json": '[{"query": "fold"}]'}
    )
    done = hashed("eval", "preview", "origami", "--description", "Fold paper.")
    assert done.code == 1
    assert "origami/eval_queries.json: 0.should_trigger: Field required" in done.err
