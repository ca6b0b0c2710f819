"""Confidence calibration: features, the fit, and the whole benchmark on a tiny set."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from apexbridge.retrieval.base import Matrix, TextKind
from apexbridge.retrieval.confidence import ConfidenceCalibration, Evidence
from apexbridge.testing import HashEmbedder
from benchmarks import calibration, everyday
from benchmarks.calibration import MemoizingEmbedder, features, fit
from benchmarks.everyday import Case, EverydayRequest
from tests.benchmarks.everyday_files import CORPUS, write_corpus, write_everyday, write_queries

NAMES = [field.name for field in dataclasses.fields(ConfidenceCalibration)]
REQUEST = EverydayRequest(query="q", lang="en", kind="terse", skill="a")


def test_features_are_the_factors_of_the_weights() -> None:
    evidence = Evidence(near=1.5, meaning=2.5, task=-2, lexical=0.4, name=0.6, length=20, count=100)
    found = dict(zip(NAMES, features(evidence), strict=True))
    assert found == pytest.approx(
        {
            "bias": 1,
            "near": 1.5,
            "meaning": 2.5,
            "task": -2,
            "lexical": 0.4,
            "name": 0.6,
            "length": math.log(21),
            "size": math.log(100),
        }
    )
    weights = ConfidenceCalibration()
    logit = sum(getattr(weights, name) * value for name, value in found.items())
    assert weights.logit(evidence) == pytest.approx(logit)


def _cases(count: int) -> list[Case]:
    """Draw evidence; the hit is right with a probability that only nearness and number change."""
    chance, found = np.random.default_rng(4), list[Case]()
    for _ in range(count):
        near, size = float(chance.normal()), int(chance.integers(1, 500))
        odds = 1 / (1 + math.exp(-(1 + 2 * near - 0.5 * math.log(size))))
        evidence = Evidence(
            near=near,
            task=float(chance.normal()),
            lexical=float(chance.random()),
            name=float(chance.random()),
            length=int(chance.integers(1, 200)),
            count=size,
        )
        found.append(Case(REQUEST, "a", evidence, bool(chance.random() < odds)))
    return found


def test_the_fit_finds_the_evidence_that_matters() -> None:
    found = fit(_cases(8_000))
    assert found.near == pytest.approx(2, abs=0.2)
    assert found.size == pytest.approx(-0.5, abs=0.15)
    for name in ("task", "lexical", "name", "length"):
        assert abs(getattr(found, name)) < 0.3, name
    assert all(round(getattr(found, name), 3) == getattr(found, name) for name in NAMES)


def test_the_fit_is_calibrated() -> None:
    drawn = _cases(8_000)
    error, _ = everyday.reliability(drawn, fit(drawn))
    assert error < 0.02


class Counting(HashEmbedder):
    """Hash embedder that counts the texts of each kind."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[TextKind, list[str]] = {"query": [], "document": []}

    async def embed(self, texts: Sequence[str], *, kind: TextKind) -> Matrix:
        self.seen[kind] += texts
        return await super().embed(texts, kind=kind)


@pytest.mark.anyio
async def test_a_document_is_embedded_once() -> None:
    inner = Counting()
    embedder = MemoizingEmbedder(inner)
    assert (embedder.id, embedder.dimensions) == (inner.id, inner.dimensions)
    first = await embedder.embed(["a", "b", "a"], kind="document")
    again = await embedder.embed(["b", "c", "a"], kind="document")
    assert inner.seen["document"] == ["a", "b", "c"]
    assert np.array_equal(first[[1, 0]], again[[0, 2]])
    assert np.array_equal(again, await HashEmbedder().embed(["b", "c", "a"], kind="document"))
    for _ in range(2):
        await embedder.embed(["q"], kind="query")
    assert inner.seen["query"] == ["q", "q"]
    assert (await embedder.embed(["a"], kind="document")).shape == (1, embedder.dimensions)


def test_without_a_corpus_nothing_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    calibration.main(None, None, HashEmbedder())
    assert "not measured" in capsys.readouterr().out


def test_the_benchmark_prints_weights_and_figures_of_both_halves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(everyday, "FOLDER", write_everyday(tmp_path / "everyday"))
    monkeypatch.setattr(calibration, "LIBRARY_REQUESTS", write_queries(tmp_path / "library.jsonl"))
    monkeypatch.setattr(calibration, "SIZES", (1, 3))
    corpus, queries = write_corpus(tmp_path / "corpus.jsonl"), write_queries(tmp_path / "q.jsonl")
    calibration.main(corpus, queries, HashEmbedder())
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("Confidence, fitted to ")
    assert lines[2].startswith("ConfidenceCalibration(bias=")
    for label in ("built in", "fitted now"):
        assert f"{label}: everyday requests that were held out" in lines
        assert f"{label}: everyday requests that were fitted to" in lines
    shares = [line for line in lines if ", offered of those " in line]
    assert len(shares) == 2 * 2 * 3  # calibrations, halves, libraries
    assert sum(f"among {len(CORPUS)}" in line for line in shares) == 4
    assert sum("expected calibration error" in line for line in lines) == 2
