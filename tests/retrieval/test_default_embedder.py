"""Default embedder: verified files, threads and cancellation."""

import hashlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import overload

import anyio
import anyio.from_thread
import anyio.to_thread
import apexbridge_retriever
import numpy as np
import pytest

from apexbridge.errors import EmbedderOutputError, EmbedderUnavailableError, RetrievalError
from apexbridge.retrieval.base import Matrix, Vocabulary
from apexbridge.retrieval.embedders import default
from apexbridge.retrieval.embedders.default import DefaultEmbedder
from apexbridge.retrieval.embedders.validation import embed_validated
from tests.retrieval.tiny_onnx import SIZE, Shape, write_tiny

pytestmark = pytest.mark.anyio

PAIRS = [
    ("Fill in a form in a PDF file.", "填写 PDF 文件中的表单。"),
    ("Write a commit message.", "撰写提交信息。"),
    ("Translate a document into French.", "把文档翻译成法语。"),
    ("Find out why the web page is slow.", "找出网页加载缓慢的原因。"),
]
MANY = ["read", "pdf", "mail", "文件"] * 20
DOCUMENTS, REQUESTS = "documents_int8.onnx", "requests_int8.onnx"


class Tiny:
    """A tiny model in the place of ours, with the hashes that belong to it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(apexbridge_retriever, "FOLDER", folder)
        monkeypatch.setattr(default, "DIMENSIONS", SIZE)
        self.write("quantised")

    def write(self, shape: Shape) -> None:
        for name in (REQUESTS, DOCUMENTS):
            write_tiny(self.folder, shape, name=name)
        (self.folder / "cjk.json").write_text('["读取", "文件"]', encoding="utf-8")
        (self.folder / "embedder.json").write_text("{}", encoding="utf-8")
        (self.folder / "words.bin").write_bytes(b"")
        names = ("cjk.json", "embedder.json", DOCUMENTS, "tokenizer.json", "words.bin")
        hashes = {name: _sha256(self.folder / name) for name in names}
        self._monkeypatch.setattr(default, "DOCUMENT_MODEL_HASHES", hashes)
        asked = {REQUESTS: _sha256(self.folder / REQUESTS)}
        self._monkeypatch.setattr(default, "QUERY_MODEL_HASHES", asked)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tiny:
    return Tiny(tmp_path / "files", monkeypatch)


def test_every_file_of_the_package_that_is_data_is_listed_with_its_hash() -> None:
    files = [
        path
        for path in apexbridge_retriever.FOLDER.iterdir()
        if path.suffix in {".onnx", ".json", ".npy", ".bin"}
    ]
    assert {
        path.name: _sha256(path) for path in files
    } == default.DOCUMENT_MODEL_HASHES | default.QUERY_MODEL_HASHES


async def test_translations_are_nearest_neighbours() -> None:
    embedder = DefaultEmbedder()
    english = await embedder.embed([pair[0] for pair in PAIRS], kind="query")
    chinese = await embedder.embed([pair[1] for pair in PAIRS], kind="document")
    near = english @ chinese.T
    assert near.argmax(axis=0).tolist() == near.argmax(axis=1).tolist() == [*range(len(PAIRS))]
    await embedder.close()


async def test_query_and_document_encoders_share_one_space() -> None:
    embedder = DefaultEmbedder()
    texts = [text for pair in PAIRS for text in pair]
    asked, found = [await embedder.embed(texts, kind=kind) for kind in ("query", "document")]
    assert (asked @ found.T).argmax(axis=1).tolist() == [*range(len(texts))]
    assert not np.allclose(asked, found)


async def test_each_kind_of_text_loads_the_model_it_needs_and_no_other(tiny: Tiny) -> None:
    right = (tiny.folder / DOCUMENTS).read_bytes()
    (tiny.folder / DOCUMENTS).unlink()
    embedder = DefaultEmbedder()
    assert len(await embedder.embed(MANY, kind="query")) == len(MANY)
    with pytest.raises(EmbedderUnavailableError, match=DOCUMENTS):
        await embedder.embed(["read"], kind="document")
    (tiny.folder / DOCUMENTS).write_bytes(b"other")
    with pytest.raises(EmbedderUnavailableError, match=f"{DOCUMENTS} is not the file"):
        await embedder.embed(["read"], kind="document")
    (tiny.folder / DOCUMENTS).write_bytes(right)
    (tiny.folder / REQUESTS).write_bytes(b"other")
    assert len(await embedder.embed(MANY, kind="document")) == len(MANY)
    assert len(await DefaultEmbedder().embed(["read"], kind="document")) == 1
    with pytest.raises(EmbedderUnavailableError, match=f"{REQUESTS} is not the file"):
        await DefaultEmbedder().embed(["read"], kind="query")


async def test_a_second_model_reads_no_tokenizer_again(tiny: Tiny) -> None:
    embedder = DefaultEmbedder()
    await embedder.embed(["read"], kind="document")
    (tiny.folder / "tokenizer.json").write_bytes(b"")
    assert len(await embedder.embed(["read"], kind="query")) == 1


async def test_an_unloaded_document_model_is_loaded_again_and_shares_the_tokenizer(
    tiny: Tiny,
) -> None:
    embedder = DefaultEmbedder()
    before = await embedder.embed(["read"], kind="document")
    (tiny.folder / "tokenizer.json").write_bytes(b"")
    embedder.unload_document_model()
    embedder.unload_document_model()
    assert len(await embedder.embed(["read"], kind="query")) == 1
    assert np.array_equal(await embedder.embed(["read"], kind="document"), before)


def test_id_and_size_are_known_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apexbridge_retriever", None)
    name, _, digits = DefaultEmbedder().id.partition(":")
    assert (name, DefaultEmbedder().dimensions) == ("apexbridge-retriever", 384)
    assert len(digits) == 12
    assert set(digits) <= set("0123456789abcdef")


@pytest.mark.parametrize("name", default.DOCUMENT_MODEL_HASHES)
def test_the_id_changes_with_every_file(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = DefaultEmbedder().id
    monkeypatch.setitem(default.DOCUMENT_MODEL_HASHES, name, "0" * 64)
    assert DefaultEmbedder().id != before


async def _refused(embedder: DefaultEmbedder, what: str, how: type[RetrievalError]) -> None:
    """Test one text and a large batch, which take different paths."""
    for texts in (["read"], MANY):
        with pytest.raises(how, match=what):
            await embedder.embed(texts, kind="document")
        with pytest.raises(how, match=what):
            await embed_validated(embedder, texts, kind="query")


async def test_a_missing_package_names_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "apexbridge_retriever", None)
    await _refused(DefaultEmbedder(), "pip install apexbridge-retriever", EmbedderUnavailableError)


@pytest.mark.parametrize(
    "name", [name for name in default.DOCUMENT_MODEL_HASHES if name not in {DOCUMENTS, REQUESTS}]
)
async def test_files_other_than_those_measured_are_refused(tiny: Tiny, name: str) -> None:
    with (tiny.folder / name).open("ab") as file:
        file.write(b"\n")
    await _refused(DefaultEmbedder(), f"{name} is not the file", EmbedderUnavailableError)
    (tiny.folder / name).unlink()
    await _refused(DefaultEmbedder(), name, EmbedderUnavailableError)


async def test_a_repaired_model_is_loaded_and_reloaded_after_close(tiny: Tiny) -> None:
    path = tiny.folder / "tokenizer.json"
    right = path.read_bytes()
    path.write_bytes(b"")
    embedder = DefaultEmbedder()
    await _refused(embedder, "tokenizer.json", EmbedderUnavailableError)
    path.write_bytes(right)
    before = await embedder.embed(["read pdf"], kind="query")
    await embedder.close()
    assert np.array_equal(await embedder.embed(["read pdf"], kind="query"), before)


async def test_the_output_of_the_model_is_validated(tiny: Tiny) -> None:
    tiny.write("endless")
    await _refused(DefaultEmbedder(), "NaN", EmbedderOutputError)


async def test_errors_of_the_model_are_not_wrapped_in_a_group(tiny: Tiny) -> None:
    path = tiny.folder / "tokenizer.json"
    text = path.read_text(encoding="utf-8")
    path.write_text(
        text.replace('"read":4', '"read":999').replace('"read": 4', '"read": 999'), encoding="utf-8"
    )
    default.DOCUMENT_MODEL_HASHES["tokenizer.json"] = _sha256(path)  # beyond the model's table
    await _refused(DefaultEmbedder(), "the model failed", EmbedderUnavailableError)


async def _is_inline(embedder: DefaultEmbedder, texts: list[str]) -> bool:
    """Who waits for a thread can be cancelled, who does the work at once cannot."""
    with anyio.move_on_after(0) as scope:
        await embedder.embed(texts, kind="query")
    return not scope.cancelled_caught


async def test_only_one_short_text_is_embedded_without_a_thread(tiny: Tiny) -> None:
    assert tiny.folder.is_dir()
    embedder = DefaultEmbedder()
    assert not await _is_inline(embedder, ["read"])
    await embedder.embed(["read"], kind="query")
    assert await _is_inline(embedder, ["read"])
    assert not await _is_inline(embedder, ["read", "pdf"])
    assert not await _is_inline(embedder, ["read " * 100])
    assert await _is_inline(embedder, ["r" * 120])
    assert not await _is_inline(embedder, ["r" * 121])
    assert await _is_inline(embedder, ["文" * 40])
    assert not await _is_inline(embedder, ["文" * 41])


class _Watched(Sequence[str]):
    """Texts that give up waiting once some were taken."""

    def __init__(self, texts: list[str], scope: anyio.CancelScope) -> None:
        self._texts = texts
        self._scope = scope
        self.taken = 0

    def __len__(self) -> int:
        return len(self._texts)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...
    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        self.taken += 1
        if self.taken == 5:
            anyio.from_thread.run_sync(self._scope.cancel)
        return self._texts[at]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)


@pytest.mark.parametrize("threads", [1, 2, 3])
async def test_cancellation_takes_effect_between_batches(tiny: Tiny, threads: int) -> None:
    assert tiny.folder.is_dir()
    scope = anyio.CancelScope()
    texts = _Watched(MANY * 100, scope)
    with scope:
        await DefaultEmbedder(threads).embed(texts, kind="document")
    assert scope.cancelled_caught
    assert texts.taken < len(texts) / 8 / 2


@pytest.mark.parametrize("count", [2, 3, 9, 17, 80])
@pytest.mark.parametrize("threads", [0, 1, 2, 3])
async def test_however_texts_are_shared_out_each_gets_its_own_row(
    tiny: Tiny, threads: int, count: int
) -> None:
    assert tiny.folder.is_dir()
    embedder = DefaultEmbedder(threads)
    texts = [*["read", "pdf", "mail", "文件", "read pdf"] * 16][:count]
    rows = await embedder.embed(texts, kind="document")
    for text, row in zip(texts, rows, strict=True):
        assert np.array_equal((await embedder.embed([text], kind="document"))[0], row)


async def test_concurrent_queries_get_the_vectors_they_get_alone() -> None:
    embedder = DefaultEmbedder()
    texts = [text for pair in PAIRS for text in pair] + ["hello " * 30]
    alone = [(await embedder.embed([text], kind="query"))[0] for text in texts]
    together = dict[str, Matrix]()

    async def ask(text: str) -> None:
        together[text] = (await embedder.embed([text], kind="query"))[0]

    async with anyio.create_task_group() as group:
        for text in texts:
            group.start_soon(ask, text)
    for text, row in zip(texts, alone, strict=True):
        assert np.array_equal(together[text], row)


async def test_several_event_loops_share_one_embedder(tiny: Tiny) -> None:
    assert tiny.folder.is_dir()
    embedder = DefaultEmbedder()
    before = await embedder.embed(["read pdf"], kind="query")

    async def ask_many() -> list[Matrix]:
        return [await embedder.embed(["read pdf"], kind="query") for _ in range(50)]

    found = list[list[Matrix]]()
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(anyio.to_thread.run_sync, lambda: found.append(anyio.run(ask_many)))
    assert len(found) == 3
    assert all(np.array_equal(row, before) for rows in found for row in rows)


async def test_its_vocabulary_has_words_and_no_slips() -> None:
    embedder = DefaultEmbedder()
    assert isinstance(embedder, Vocabulary)
    await embedder.embed(["read"], kind="query")
    for word in ("market", "marked", "translate", "document"):
        assert embedder.has_word(word), word
    for slip in ("transalte", "documnet", "invocie", "terrafrom"):
        assert not embedder.has_word(slip), slip
