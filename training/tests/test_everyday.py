"""The everyday stage, in small: both encoders learn everyday requests, and are averaged."""

import argparse
import sys
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest
import torch

from training import __main__ as command
from training.colloquial import Products
from training.corpus import prepare
from training.encoder import build
from training.everyday import (
    SHARES,
    Batch,
    EverydaySkill,
    JointEncoders,
    JointLoss,
    Sampler,
    hit_at_1,
    read_skills,
)
from training.initialization import begin, first_rows
from training.jsonl import write_rows
from training.release import release
from training.request_pool import Pool, read_pool
from training.runs import mean, read_weights, write_weights
from training.tests import small
from training.typos import Typos

pytestmark = pytest.mark.unmeasured

_MODELS = ("requests_int8.onnx", "documents_int8.onnx")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Generator[None]:
    """Threads that spin while they wait for each other take many times as long beside others."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepared data, everyday skills, and released encoders of the base's weights."""
    place = tmp_path_factory.mktemp("everyday")
    sources = small.sources(place)
    prepare(sources, place / "data")
    products = Products.read(sources.requests / "products.jsonl")
    begin(small.base(place / "base"), place / "data", products, place / "begin")
    state = read_weights(place / "base/weights.npz")
    table = first_rows(state["words.weight"].numpy(), place / "begin/start.npz")
    write_weights(build(state | {"words.weight": torch.as_tensor(table)}), place / "start.npz")
    for model in _MODELS:
        release(place / "start.npz", place / "begin", place / "shipped", model, takes_many=True)
    # As `robust` writes them: with the word table that ships, in eight bits.
    write_weights(build(read_weights(place / "shipped" / _MODELS[0])), place / "robust.npz")
    write_rows(sources.requests / "everyday-1.jsonl", _everyday())
    # The name of the first skill, which is kept back, once more.
    write_rows(sources.requests / "everyday-2.jsonl", [_everyday()[0] | {"en": "Another one"}])
    return place


def _everyday() -> list[dict[str, object]]:
    return [
        {
            "name": f"{name}-{number}",
            "en": f"{english} {number}",
            "zh": f"{chinese}{number}",
            "requests_en": [f"please {english.lower()} {number}", f"{name} {number}"],
            "requests_zh": [f"请{chinese}{number}"],
        }
        for number in range(3)
        for name, (english, chinese) in small.TASKS.items()
    ]


@pytest.fixture(scope="module")
def pool(folder: Path) -> Pool:
    requests = folder / "requests"
    shipped = folder / "shipped"
    return read_pool(folder / "data", requests, shipped, threads=1, shares_by_kind=SHARES)


def _sample(folder: Path, pool: Pool) -> Batch:
    return Sampler(pool, read_skills(folder / "requests")[0], Typos()).batch()


def test_every_tenth_skill_is_kept_back_with_all_of_its_name(folder: Path) -> None:
    skills, kept_back = read_skills(folder / "requests")
    assert [one.documents[0].split(".")[0] for one in kept_back] == ["merge pdf 0", "invoice 1"]
    assert len(skills) == 19 - 2 - 1
    assert not {one.documents for one in skills} & {one.documents for one in kept_back}
    assert skills[0].documents[1].endswith(f"{small.TASKS['weather'][1]}0")


def test_kinds_of_pairs_without_a_share_are_not_drawn(pool: Pool, folder: Path) -> None:
    usual = read_pool(folder / "data", folder / "requests", folder / "shipped", threads=1)
    assert np.array_equal(usual.pairs, pool.pairs)
    assert pool.shares.sum() == pytest.approx(1)
    assert not np.allclose(usual.shares, pool.shares)


def test_a_batch_has_each_everyday_skill_once_and_goals_for_the_others(
    folder: Path, pool: Pool
) -> None:
    batch = _sample(folder, pool)
    assert batch.everyday == 16
    assert len(batch.requests) == len(batch.documents) == len(batch.groups) == 16 + 48 + 28
    assert all((batch.groups == group).sum() == 1 for group in batch.groups[:16])
    assert (batch.groups[:16] < 0).all()
    assert (batch.groups[16:] >= 0).all()
    assert len(batch.request_goals) == len(batch.document_goals) == 48 + 28
    assert len(batch.small_talk) == len(batch.small_talk_goals) == 14


def test_distance_from_the_shipped_vectors_and_small_talk_near_a_skill_cost(
    folder: Path, pool: Pool
) -> None:
    batch, loss = _sample(folder, pool), JointLoss(pool)
    first = torch.nn.functional.normalize(torch.randn(16, 64), dim=1)
    asked = torch.cat((first, batch.request_goals))
    found = torch.cat((first, batch.document_goals))

    def lost(asked: torch.Tensor, found: torch.Tensor, idle: torch.Tensor) -> float:
        torch.manual_seed(3)
        return float(loss(asked, found, idle, batch))

    near = lost(asked, found, batch.small_talk_goals)
    assert lost(asked, found, first[:14]) > near
    assert lost(torch.cat((first, -batch.request_goals)), found, batch.small_talk_goals) > near
    assert lost(asked, torch.cat((first, -batch.document_goals)), batch.small_talk_goals) > near
    assert lost(asked.roll(1, 0), found, batch.small_talk_goals) > near


def test_both_encoders_learn_and_are_averaged_with_the_shipped_ones(
    folder: Path,
    pool: Pool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    outs = [folder / "queries.npz", folder / "documents.npz"]
    shipped = folder / "shipped"
    given = {
        "--shipped": shipped,
        "--queries": folder / "robust.npz",
        "--data": folder / "data",
        "--requests": folder / "requests",
        "--out-queries": outs[0],
        "--out-documents": outs[1],
        "--steps": 12,
        "--threads": 1,
    }
    words = [str(word) for option in given.items() for word in option]
    monkeypatch.setattr(sys, "argv", ["training", "everyday", *words])
    command.main()
    said = capsys.readouterr().out
    assert "16 everyday skills, 2 kept back" in said
    assert said.count("hit@1") == 2
    for model, out in zip(_MODELS, outs, strict=True):
        before, after = read_weights(shipped / model), read_weights(out)
        name = "layers.0.wide.weight"
        assert torch.equal(before["words.weight"], after["words.weight"])
        assert not torch.allclose(before[name], after[name], atol=1e-4)
        middle = folder / f"mean-{out.name}"
        mean(argparse.Namespace(weights=[out, out, out, shipped / model], out=middle))
        averaged = read_weights(middle)
        # Both encoders share the table: it must be the same to the bit.
        assert torch.equal(averaged["words.weight"], before["words.weight"])
        assert torch.allclose(averaged[name], 0.75 * after[name] + 0.25 * before[name], atol=1e-3)
    # Untrained encoders find most documents alike, so that hit@1 says little: the loss does.
    before = _lost(_encoders(folder / "robust.npz", shipped / _MODELS[1], shipped), folder, pool)
    assert _lost(_encoders(outs[0], outs[1], shipped), folder, pool) < before


def test_hit_at_1_is_1_where_requests_are_the_documents_themselves(folder: Path) -> None:
    skills = [
        EverydaySkill(one.documents, (one.documents[:1], one.documents[:1]))
        for one in read_skills(folder / "requests")[0][:5]  # the next ones differ by a digit alone
    ]
    path = folder / "robust.npz"
    english, _ = hit_at_1(_encoders(path, path, folder / "shipped"), skills)
    assert english == 1


def _encoders(queries: Path, documents: Path, shipped: Path) -> JointEncoders:
    return JointEncoders(build(read_weights(queries)), build(read_weights(documents)), shipped, 1)


def _lost(encoders: JointEncoders, folder: Path, pool: Pool) -> float:
    """The loss of one batch, always the same."""
    batch = _sample(folder, pool)
    torch.manual_seed(3)
    with torch.no_grad():
        asked, found, idle = (
            encoders.ask(batch.requests),
            encoders.find(batch.documents),
            encoders.ask(batch.small_talk),
        )
        return float(JointLoss(pool)(asked, found, idle, batch))
