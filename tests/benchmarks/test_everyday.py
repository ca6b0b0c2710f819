"""Everyday requests: the held-out half, libraries of several sizes, and the reliability diagram."""

from pathlib import Path

import pytest

from apexbridge.evals.corpus import read_corpus
from apexbridge.evals.retrieval_eval import build_index
from apexbridge.retrieval.confidence import ConfidenceCalibration, Evidence
from apexbridge.testing import HashEmbedder
from benchmarks import everyday
from benchmarks.everyday import (
    Case,
    EverydayRequest,
    EverydaySet,
    cases,
    libraries,
    print_cases,
    print_reliability,
    read_everyday,
    reliability,
)
from tests.benchmarks.everyday_files import (
    CORPUS,
    NONE,
    REQUESTS,
    SKILLS,
    write_corpus,
    write_everyday,
)

pytestmark = pytest.mark.anyio

NEAR = ConfidenceCalibration(bias=0, near=1, task=0, lexical=0, name=0, length=0, size=0)
SURE, UNSURE = 40.0, -40.0


@pytest.fixture(name="tiny")
def _tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EverydaySet:
    monkeypatch.setattr(everyday, "FOLDER", write_everyday(tmp_path / "everyday"))
    return read_everyday()


def _case(skill: str, hit: str, near: float) -> Case:
    request = EverydayRequest(query="q", lang="en", kind="terse", skill=skill)
    return Case(request, hit, Evidence(near=near), bool(skill) and hit == skill)


def test_every_second_skill_and_idle_request_is_held_out(tiny: EverydaySet) -> None:
    assert [skill.id for skill in tiny.skills] == list(SKILLS)
    fitted, held_out = list(SKILLS)[::2], list(SKILLS)[1::2]
    for half, names, idle in (
        (tiny.fitted, fitted, NONE[::2]),
        (tiny.held_out, held_out, NONE[1::2]),
    ):
        expected = [query for skill, query in REQUESTS if skill in names]
        assert [one.query for one in half] == [*expected, *idle]
        assert {one.skill for one in half} == {*names, ""}


def test_the_set_in_the_repository_is_whole() -> None:
    found = read_everyday()
    names = {skill.id for skill in found.skills}
    assert len(names) == len(found.skills)
    for half in (found.fitted, found.held_out):
        assert {one.skill for one in half} <= {*names, ""}
        assert {bool(one.skill) for one in half} == {True, False}
        assert {one.lang for one in half} == {"en", "zh"}
    fitted, held_out = (
        {one.skill for one in half} - {""} for half in (found.fitted, found.held_out)
    )
    assert not fitted & held_out
    texts = [one.query for one in (*found.fitted, *found.held_out)]
    assert len(set(texts)) == len(texts)


async def test_libraries_are_the_skills_alone_and_among_others(
    tiny: EverydaySet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(everyday, "MIDDLE_SIZE", len(SKILLS) + 3)
    corpus = read_corpus(write_corpus(tmp_path / "corpus.jsonl"))
    found = await libraries(tiny, corpus, HashEmbedder())
    assert [len(index) for index in found.values()] == [len(SKILLS), len(SKILLS) + 3, len(CORPUS)]
    assert list(found)[-1] == f"among {len(CORPUS)}"
    for index in found.values():
        await index.refresh()
        assert set(SKILLS) <= set(index.memory.names)


async def test_a_case_is_right_if_the_hit_is_the_skill_or_alike(tiny: EverydaySet) -> None:
    index = await build_index(tiny.skills, HashEmbedder())
    found = await cases(index, [*tiny.fitted, *tiny.held_out])
    for case in found:
        assert case.is_right == (bool(case.request.skill) and case.hit == case.request.skill)
        assert case.evidence.count == len(SKILLS)
    needing = [case for case in found if case.request.skill]
    assert sum(case.is_right for case in needing) >= len(needing) - 1
    assert not any(case.is_right for case in found if not case.request.skill)
    asked = EverydayRequest(
        query="bake bread", lang="en", kind="terse", skill="x", alike=("bread",)
    )
    (alike,) = await cases(index, [asked])
    assert alike.is_right


def test_the_printed_figures_are_shares_of_the_cases(capsys: pytest.CaptureFixture[str]) -> None:
    found = [
        _case("a", "a", SURE),
        _case("a", "a", UNSURE),
        _case("a", "b", SURE),
        _case("a", "b", UNSURE),
        _case("", "a", SURE),
        _case("", "a", UNSURE),
        _case("", "b", UNSURE),
        _case("", "b", UNSURE),
    ]
    print_cases("alone", found, NEAR)
    line = capsys.readouterr().out
    assert "first 0.500, offered of those 0.500, false offers 0.250" in line
    assert "(4 and 4 requests)" in line


def test_the_calibration_error_is_the_gap_between_confidence_and_share_right() -> None:
    perfect = [_case("a", "a", SURE), _case("", "a", UNSURE)]
    error, bins = reliability(perfect, NEAR)
    assert error == pytest.approx(0, abs=1e-9)
    assert len(bins) == everyday.BINS
    assert (bins[0][0], bins[-1][0]) == (1, 1)
    assert sum(count for count, _, _ in bins) == 2
    wrong = [_case("a", "b", SURE), _case("a", "a", UNSURE)]
    assert reliability(wrong, NEAR)[0] == pytest.approx(1)
    half = [_case("a", "a", 0.0), _case("a", "b", 0.0)]
    error, bins = reliability(half, NEAR)
    assert error == pytest.approx(0)
    assert bins[5] == (2, pytest.approx(0.5), pytest.approx(0.5))


def test_the_reliability_diagram_has_a_line_a_bin(capsys: pytest.CaptureFixture[str]) -> None:
    print_reliability([_case("a", "a", SURE), _case("", "a", UNSURE)], NEAR)
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == "expected calibration error 0.000, 2 cases"
    assert len(lines) == everyday.BINS
    assert lines[-1].split() == ["0.9-1.0", "1", "mean", "1.00", "right", "1.00", "#" * 40]
