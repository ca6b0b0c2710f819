"""ONNX embedder: files, tokenization and errors."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from apexbridge.errors import EmbedderOutputError, EmbedderUnavailableError
from apexbridge.retrieval.embedders.onnx import OnnxEmbedder
from apexbridge.retrieval.embedders.validation import segment_chinese
from tests.retrieval.tiny_onnx import WORDS, table, write_tiny

pytestmark = pytest.mark.anyio

CLS, SEP, READ, PDF, WEN, FILE = 1, 2, 4, 5, 10, 9


def _mean(*words: int) -> object:
    """Equal to the row that these words have."""
    mean = table()[[CLS, *words, SEP]].mean(axis=0)
    return pytest.approx((mean / np.linalg.norm(mean)).tolist(), abs=1e-5)


def _recipe(folder: Path, **fields: object) -> Path:
    (folder / "embedder.json").write_text(json.dumps(fields), encoding="utf-8")
    return folder


async def _row(folder: Path, text: str) -> list[float]:
    return (await OnnxEmbedder(folder).embed([text], kind="query"))[0].tolist()


async def test_tokens_are_pooled_by_their_mean_and_padding_does_not_count(tmp_path: Path) -> None:
    rows = await OnnxEmbedder(write_tiny(tmp_path)).embed(["read", "read pdf"], kind="query")
    assert rows[0].tolist() == _mean(READ)
    assert rows[1].tolist() == _mean(READ, PDF)


async def test_a_model_may_put_out_the_sentence_itself(tmp_path: Path) -> None:
    assert await _row(write_tiny(tmp_path / "flat", "flat"), "read pdf") == _mean(READ, PDF)
    both = write_tiny(tmp_path / "both", "both")
    first = table()[CLS] / np.linalg.norm(table()[CLS])
    assert await _row(both, "read pdf") == _mean(READ, PDF)
    assert await _row(_recipe(both, pooling="none"), "read pdf") == _mean(READ, PDF)
    assert await _row(_recipe(both, pooling="cls"), "read pdf") == pytest.approx(first.tolist())


async def test_token_types_are_given_to_a_model_that_asks(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path, asks=("token_type_ids",))
    assert await _row(folder, "read") == _mean(READ)


async def test_a_row_of_a_quantised_model_does_not_depend_on_its_neighbours(tmp_path: Path) -> None:
    embedder = OnnxEmbedder(write_tiny(tmp_path, "quantised"))
    alone = await embedder.embed(["read"], kind="query")
    together = await embedder.embed(["read", "mail 文件 mail"], kind="query")
    assert np.array_equal(alone[0], together[0])


async def test_a_recipe_says_prefixes_and_lengths(tmp_path: Path) -> None:
    folder = _recipe(
        write_tiny(tmp_path),
        query_prefix="pdf ",
        document_prefix="file ",
        max_query_tokens=4,
        of_tomorrow=True,
    )
    embedder = OnnxEmbedder(folder)
    assert (await embedder.embed(["read"], kind="query"))[0].tolist() == _mean(PDF, READ)
    assert (await embedder.embed(["read"], kind="document"))[0].tolist() == _mean(6, READ)
    assert (await embedder.embed(["read read"], kind="query"))[0].tolist() == _mean(PDF, READ)


@pytest.mark.parametrize("listed", [["读取", "文件"], {"读取": 8, "文件": 9}])
async def test_known_chinese_words_are_segmented_before_the_tokenizer(
    tmp_path: Path, listed: object
) -> None:
    folder = write_tiny(tmp_path)
    unknown = WORDS.index("[UNK]")
    assert await _row(folder, "读取文件readPdf") == _mean(unknown)
    (folder / "cjk.json").write_text(json.dumps(listed), encoding="utf-8")
    assert await _row(folder, "读取文件readPdf文") == _mean(8, FILE, READ, PDF, WEN)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("readPDFs from GitHub", "read PDFs from Git Hub"),
        ("一二三四五六", " 一二三四 五 六 "),
        ("三四五", " 三 四五 "),
        ("a一b", "a 一 b"),
        ("", ""),
    ],
)
def test_chinese_is_segmented_by_longest_match(text: str, expected: str) -> None:
    assert segment_chinese(text, {"一二", "一二三四", "四五", "一二三四五"}) == expected


async def test_the_model_is_found_by_its_usual_names_first(tmp_path: Path) -> None:
    write_tiny(tmp_path, "flat", name="other.onnx")
    assert await _row(tmp_path, "read") == _mean(READ)
    write_tiny(tmp_path, "nothing", name="third.onnx")
    with pytest.raises(EmbedderUnavailableError, match=r"several \.onnx files"):
        await _row(tmp_path, "read")
    write_tiny(tmp_path, name="model.onnx")
    assert await _row(tmp_path, "read") == _mean(READ)
    write_tiny(tmp_path, "nothing", name="model_int8.onnx")
    with pytest.raises(EmbedderOutputError):
        await _row(tmp_path, "read")


async def test_the_id_changes_with_every_file_that_changes_vectors(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path / "mine")
    ids = [OnnxEmbedder(folder).id, OnnxEmbedder(folder).id]
    assert ids[0] == ids[1]
    assert ids[0].startswith("onnx:mine:")
    for name in ("embedder.json", "cjk.json", "model.onnx_data", "tokenizer.json"):
        (folder / name).write_text("{}", encoding="utf-8")
        ids.append(OnnxEmbedder(folder).id)
    (folder / "README.md").write_text("words", encoding="utf-8")
    assert len(set(ids)) == 5
    assert OnnxEmbedder(folder).id == ids[-1]


async def test_the_size_is_known_once_the_model_is_loaded(tmp_path: Path) -> None:
    embedder = OnnxEmbedder(write_tiny(tmp_path), threads=2)
    assert embedder.dimensions == 0
    await embedder.embed(["read"], kind="query")
    assert embedder.dimensions == 16
    await embedder.close()
    assert (await embedder.embed(["read"], kind="query")).shape == (1, 16)


@pytest.mark.promise("L06")
@pytest.mark.parametrize(("shape", "words"), [("endless", "NaN"), ("nothing", "zero vector")])
async def test_a_model_that_gives_no_vectors_is_refused(
    tmp_path: Path, shape: str, words: str
) -> None:
    write_tiny(tmp_path, "endless" if shape == "endless" else "nothing")
    with pytest.raises(EmbedderOutputError, match=words):
        await _row(tmp_path, "read")


Spoil = Callable[[Path], object]


def _without(name: str) -> Spoil:
    return lambda folder: (folder / name).unlink()


def _with(name: str, content: bytes) -> Spoil:
    return lambda folder: (folder / name).write_bytes(content)


def _asking_for_pixels(folder: Path) -> object:
    return write_tiny(folder, asks=("pixels",))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        pytest.param(shutil.rmtree, "there is no folder", id="no folder"),
        pytest.param(_without("model.onnx"), "no model.onnx", id="no model"),
        pytest.param(_without("tokenizer.json"), "no tokenizer.json", id="no tokenizer"),
        pytest.param(_with("model.onnx", b""), "model.onnx cannot be loaded", id="empty model"),
        pytest.param(_with("model.onnx", b"\0junk"), "cannot be loaded", id="broken model"),
        pytest.param(_with("tokenizer.json", b"{}"), "tokenizer.json cannot", id="bad tokenizer"),
        pytest.param(_with("embedder.json", b"["), "embedder.json makes no", id="bad recipe"),
        pytest.param(
            _with("embedder.json", b'{"pooling": "none"}'), "no output for", id="bad pooling"
        ),
        pytest.param(_with("cjk.json", b"7"), "cjk.json makes no sense", id="bad words"),
        pytest.param(_asking_for_pixels, "it asks for pixels", id="strange input"),
    ],
)
async def test_missing_or_corrupt_files_are_named(tmp_path: Path, spoil: Spoil, words: str) -> None:
    folder = write_tiny(tmp_path / "mine")
    spoil(folder)
    with pytest.raises(EmbedderUnavailableError) as caught:
        await _row(folder, "read")
    assert words in caught.value.message
    assert caught.value.details["name"] == "onnx:mine"


async def test_a_missing_folder_has_no_id(tmp_path: Path) -> None:
    with pytest.raises(EmbedderUnavailableError, match="there is no folder"):
        _ = OnnxEmbedder(tmp_path / "nowhere").id


@pytest.mark.parametrize("package", ["onnxruntime", "tokenizers"])
async def test_a_missing_package_names_the_package_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(EmbedderUnavailableError) as caught:
        await _row(write_tiny(tmp_path), "read")
    assert f"{package} cannot be imported: pip install {package}" in caught.value.message


async def test_runtime_errors_of_a_model_are_reported(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path)
    tokenizer = json.loads((folder / "tokenizer.json").read_bytes())
    tokenizer["model"]["vocab"]["outside"] = 999  # beyond the model's table
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    with pytest.raises(EmbedderUnavailableError, match="the model failed"):
        await _row(folder, "outside")
