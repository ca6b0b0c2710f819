"""The whole course on the processor, in small: from data files to an embedder that loads."""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from apexbridge.retrieval.embedders.onnx import OnnxEmbedder
from training import __main__ as command
from training.colloquial import Products
from training.corpus import prepare
from training.dataset import NO_SKILL, read_lesson
from training.encoder import Encoder, Shape, build, layers_in, read_base, thinned
from training.initialization import begin, first_rows, swaps_of
from training.jsonl import read_rows
from training.objectives import contrast
from training.release import release
from training.runs import answers, chinese, mean, read_weights, thin
from training.tests import small

pytestmark = [pytest.mark.anyio, pytest.mark.unmeasured]


_READS = ("requests", "documents")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepared data, a base and a vocabulary."""
    place = tmp_path_factory.mktemp("course")
    sources = small.sources(place)
    prepare(sources, place / "data")
    small.mixture_sources(place, sources)
    products = Products.read(sources.requests / "products.jsonl")
    begin(small.base(place / "base"), place / "data", products, place / "begin")
    return place


@pytest.fixture(scope="module")
def trained(folder: Path) -> Path:
    """Weights after a few steps of both stages: the mean of two."""
    given = _given(folder, base=folder / "base/weights.npz", steps=12, rate=4e-4)
    given.out = folder / "chinese.npz"
    chinese(given)
    given.whole, given.rate = given.out, 1e-4
    weights = [folder / f"answers-{seed}.npz" for seed in (1, 2)]
    for seed, given.out in enumerate(weights, start=1):
        given.seed = seed
        answers(given)
    mean(argparse.Namespace(weights=weights, out=folder / "whole.npz"))
    return folder / "whole.npz"


def test_other_seeds_train_other_weights_and_the_mean_lies_between(
    folder: Path, trained: Path
) -> None:
    name = "layers.0.wide.weight"
    one, other, middle = (
        read_weights(folder / file)[name] for file in ("answers-1.npz", "answers-2.npz", trained)
    )
    assert not torch.equal(one, other)
    assert torch.allclose(middle, (one + other) / 2, atol=1e-3)


def test_a_thing_is_asked_for_without_its_name(folder: Path) -> None:
    documents = [row["text"] for row in read_rows(folder / "data/documents.jsonl.xz")]
    answers_to = {
        documents[row["d"]]
        for row in read_rows(folder / "data/pairs.jsonl.xz")
        if row["q"] == "the format nobody can edit, put mine together"
    }
    assert answers_to == {
        "PDF. document format that looks the same everywhere",
        "PDF. 到处看起来都一样的文档格式",
        "merge pdf. Merge several PDF files into one document",
    }


def _given(folder: Path, **more: object) -> argparse.Namespace:
    common = {"data": folder / "data", "tokenizer": folder / "begin"}
    return argparse.Namespace(**common, batch=16, processes=1, seed=1, **more)


def test_nothing_of_a_held_out_skill_is_trained_on(folder: Path) -> None:
    trained_on = [path for path in (folder / "data").glob("*.xz") if "library" not in path.name]
    assert len(trained_on) == 6
    texts = "".join(
        json.dumps(row, ensure_ascii=False) for path in trained_on for row in read_rows(path)
    )
    assert "Merge several" in texts
    assert "herbs" not in texts.lower()
    assert "草药" not in texts
    assert "secret recipe" not in texts


def test_requests_kept_for_validation_and_their_skills_are_not_trained_on(folder: Path) -> None:
    trained_on = "".join(
        json.dumps(row, ensure_ascii=False)
        for name in ("pairs", "documents", "parallel", "alone")
        for row in read_rows(folder / f"data/{name}.jsonl.xz")
    )
    assert "invoice" not in trained_on
    assert [row["query"] for row in read_rows(folder / "data/validation.jsonl.xz")] == [
        "bill her",
        "要开票",
    ]


def test_the_vocabulary_keeps_the_bases_ids_and_adds_chinese(folder: Path) -> None:
    before = json.loads((folder / "base/tokenizer.json").read_text(encoding="utf-8"))["model"][
        "vocab"
    ]
    after = json.loads((folder / "begin/tokenizer.json").read_text(encoding="utf-8"))["model"][
        "vocab"
    ]
    assert before.items() <= after.items()
    assert sorted(after.values()) == list(range(len(after)))
    assert "飞书" in small.words_of(folder / "begin")
    assert after.keys() >= {"飞书", "部"}


def test_a_new_word_starts_within_the_bases_words(folder: Path) -> None:
    table = read_weights(folder / "base/weights.npz")["words.weight"].numpy()
    rows = first_rows(table, folder / "begin/start.npz")
    assert np.array_equal(rows[: len(table)], table)
    assert len(rows) > len(table) + 3_000
    assert np.isfinite(rows).all()
    assert np.abs(rows[len(table) :]).max() <= np.abs(table).max() + 1e-5
    swaps = swaps_of(folder / "begin/start.npz")
    assert len(swaps) == len(rows)
    assert swaps.max() < len(rows)


def test_small_talk_is_kept_apart_for_validation(folder: Path) -> None:
    lesson = read_lesson(folder / "data", folder / "begin")
    assert len(lesson.idle) == 4
    assert sum(map(len, lesson.none)) == 8
    assert not set(lesson.idle) & {number for kind in lesson.none for number in kind}


def test_training_moves_translations_together(folder: Path, trained: Path) -> None:
    lesson = read_lesson(folder / "data", folder / "begin")

    def nearness(path: Path) -> float:
        state = read_weights(path)
        if path.parent.name == "base":
            table = first_rows(state["words.weight"].numpy(), folder / "begin/start.npz")
            state["words.weight"] = torch.as_tensor(table)
        encoder = build(state).eval()
        with torch.no_grad():
            left, right = (
                encoder(*lesson.texts.rows(lesson.parallel[:, side], 96)) for side in (0, 1)
            )
        return float((left * right).sum(1).mean())

    assert nearness(trained) > nearness(folder / "base/weights.npz")


async def test_a_thinner_one_is_taught_exported_and_embeds(folder: Path, trained: Path) -> None:
    outs = {"out": folder / "thin.npz", "documents_out": folder / "documents.npz"}
    given = _given(folder, whole=trained, layers=[1], document_layers=[0, 1], steps=4, **outs)
    given.rate = 4e-4
    given.documents_only, given.documents_from = False, None
    thin(given)
    given.documents_only, given.documents_from = True, given.documents_out
    thin(given)
    assert layers_in(read_weights(given.documents_out)) == 2
    assert layers_in(read_weights(given.out)) == 1
    hashes = release(given.out, folder / "begin", folder / "release")
    assert all(len(digest) == 64 for digest in hashes.values())
    shipped, exact = (
        read_weights(path) for path in (folder / "release/model_int8.onnx", given.out)
    )
    assert shipped.keys() == exact.keys()
    for name, part in exact.items():  # what ships can teach again, as exactly as eight bits can
        step = float(part.abs().max()) / 63
        assert float((shipped[name] - part).abs().max()) <= step, name
    embedder = OnnxEmbedder(folder / "release")
    said = ["merge the files", "把多个 PDF 文件合并成一个文档", "", "飞书"]
    rows = await embedder.embed(said, kind="query")
    assert rows.shape == (4, 64)
    release(given.out, folder / "begin", folder / "many", takes_many=True)
    assert read_weights(folder / "many/model_int8.onnx").keys() == exact.keys()
    in_turn = await OnnxEmbedder(folder / "many").embed(said, kind="query")
    assert np.array_equal(in_turn, rows)
    lesson = read_lesson(folder / "data", folder / "begin")
    number = lesson.texts.add(small.TASKS["merge-pdf"][1])
    with torch.no_grad():
        exact = build(read_weights(given.out)).eval()(*lesson.texts.rows([number], 96))[0].numpy()
    assert float(rows[1] @ exact) > 0.99


@pytest.fixture(scope="module")
def shipped(folder: Path, trained: Path) -> Path:
    """Released encoders of both kinds, of the same weights."""
    place = folder / "shipped"
    for reads in _READS:
        release(trained, folder / "begin", place, f"{reads}_int8.onnx", takes_many=True)
    return place


@pytest.fixture(scope="module")
def tuned(folder: Path, shipped: Path) -> Path:
    """The folder with what the commands from `mix` to `export` make of the shipped encoders."""
    mixture = folder / "mixture.npz"
    tests = ("held_out.jsonl.xz", "test-queries.jsonl", "test-skills.jsonl")
    _run(
        *("mix", "--data", folder / "data", "--skills", folder / "skills.jsonl.xz"),
        *("--tokenizer", shipped, "--requests", folder / "requests", "--out", mixture),
        *("--held-out", *(folder / name for name in tests)),
    )
    _run(
        *("fine-tune", "--mixture", mixture, "--shipped", shipped, "--batch", 32, "--steps", 20),
        *("--rate", 4e-3, "--document-rate", 4e-3, "--contrast", 1, "--document-pull", 2),
        *("--teacher-batch", 16, "--teacher-steps", 4),
        *("--out-queries", folder / "tuned-requests.npz"),
        *("--out-documents", folder / "tuned-documents.npz"),
    )
    for reads in _READS:
        _run(
            *("export", "--weights", folder / f"tuned-{reads}.npz", "--tokenizer", shipped),
            *("--out", folder / f"tuned-{reads}", "--takes-many"),
        )
    return folder


def _run(*words: object) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["training", *map(str, words)])
        command.main()


@pytest.mark.parametrize("reads", _READS)
async def test_encoders_are_fine_tuned_exported_and_embed(tuned: Path, reads: str) -> None:
    before = read_weights(tuned / f"shipped/{reads}_int8.onnx")
    after = read_weights(tuned / f"tuned-{reads}.npz")
    assert torch.equal(before["words.weight"], after["words.weight"])
    name = "layers.0.wide.bias"  # eight bits are for matrices alone
    assert float((before[name] - after[name]).abs().max()) > 1e-3
    # Both encoders share the table: it must be the same to the byte.
    words = [tuned / folder / "words.bin" for folder in ("shipped", f"tuned-{reads}")]
    assert words[0].read_bytes() == words[1].read_bytes()
    said = ["merge the files", small.TASKS["merge-pdf"][1]]
    rows = await OnnxEmbedder(tuned / f"tuned-{reads}").embed(said, kind="query")
    lesson = read_lesson(tuned / "data", tuned / "begin")
    number = lesson.texts.add(said[1])
    with torch.no_grad():
        exact = build(after).eval()(*lesson.texts.rows([number], 96))[0].numpy()
    assert float(rows[1] @ exact) > 0.99


def test_what_belongs_together_is_no_mistake() -> None:
    found = torch.nn.functional.normalize(torch.tensor([[1.0, 0.0], [0.9, 0.5]]), dim=1)
    apart = contrast(found, found, np.array([[0, 10, 1], [1, 11, 2]]))
    one_skill = contrast(found, found, np.array([[0, 10, 1], [1, 11, 1]]))
    small_talk = contrast(found, found, np.array([[0, 10, NO_SKILL], [1, 11, NO_SKILL]]))
    assert float(one_skill) == pytest.approx(0, abs=1e-6)
    assert float(small_talk) == pytest.approx(0, abs=1e-6)
    assert float(apart) > 0.001


def test_a_base_is_read_from_its_file(tmp_path: Path) -> None:
    torch.manual_seed(2)
    shape = Shape(vocabulary=11, layers=2, width=64, heads=2, inner=96, places=128)
    encoder = Encoder(shape)
    path = tmp_path / "model.onnx"
    onnx.save(_as_file(encoder), str(path))
    assert all(
        torch.equal(part, encoder.state_dict()[name]) for name, part in read_base(path).items()
    )
    assert read_base(path).keys() == encoder.state_dict().keys()


def test_thinning_keeps_the_chosen_layers_in_order() -> None:
    state = Encoder(Shape(vocabulary=5, layers=3, width=64, heads=2, inner=96)).state_dict()
    kept = thinned(state, (0, 2))
    assert layers_in(kept) == 2
    assert torch.equal(kept["layers.1.wide.weight"], state["layers.2.wide.weight"])


def _as_file(encoder: Encoder) -> onnx.ModelProto:
    """The weights under the names, and in the order, in which exported files hold them."""
    state = {name: part.numpy() for name, part in encoder.state_dict().items()}
    kept = {
        "embeddings.word_embeddings.weight": state["words.weight"],
        "embeddings.position_embeddings.weight": state["places.weight"],
        "embeddings.token_type_embeddings.weight": np.zeros((2, 64), np.float32),
        "embeddings.LayerNorm.weight": state["norm.weight"],
        "embeddings.LayerNorm.bias": state["norm.bias"],
    }
    nodes = list[onnx.NodeProto]()
    theirs = {
        "query": "attention.self.query",
        "key": "attention.self.key",
        "value": "attention.self.value",
        "joined": "attention.output.dense",
        "wide": "intermediate.dense",
        "narrow": "output.dense",
    }
    norms = {"first_norm": "attention.output.LayerNorm", "last_norm": "output.LayerNorm"}
    for layer in range(2):
        head = f"encoder.layer.{layer}"
        for ours, name in theirs.items():
            kept[f"{head}.{name}.bias"] = state[f"layers.{layer}.{ours}.bias"]
            kept[f"matrix_{len(nodes)}"] = np.ascontiguousarray(
                state[f"layers.{layer}.{ours}.weight"].T
            )
            nodes.append(
                helper.make_node("MatMul", ["x", f"matrix_{len(nodes)}"], [f"y{len(nodes)}"])
            )
        for ours, name in norms.items():
            for part in ("weight", "bias"):
                kept[f"{head}.{name}.{part}"] = state[f"layers.{layer}.{ours}.{part}"]
    constants = [numpy_helper.from_array(value, name) for name, value in kept.items()]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, None)
    return helper.make_model(helper.make_graph(nodes, "base", [given], [], constants))
