"""Contract of every embedder, run over every implementation."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path

import anyio
import numpy as np
import pytest

from apexbridge.retrieval.base import Embedder, Matrix, TextKind
from apexbridge.retrieval.embedders.default import DefaultEmbedder
from apexbridge.retrieval.embedders.fastembed import FastembedEmbedder
from apexbridge.retrieval.embedders.hashing import HashEmbedder
from apexbridge.retrieval.embedders.http import HttpEmbedder
from apexbridge.retrieval.embedders.onnx import OnnxEmbedder
from apexbridge.retrieval.embedders.use import UseEmbedder
from apexbridge.retrieval.embedders.validation import embed_validated
from tests.retrieval.embeddings_server import serving
from tests.retrieval.tiny_onnx import write_tiny

pytestmark = pytest.mark.anyio

Make = Callable[[str, Path], Embedder]
IMPLEMENTATIONS: dict[str, Make] = {
    "hash": lambda _, __: HashEmbedder(),
    "onnx": lambda _, models: OnnxEmbedder(models / "plain"),
    "onnx quantised": lambda _, models: OnnxEmbedder(models / "quantised"),
    "http": lambda address, _: HttpEmbedder(address, "tiny", api_key="secret", batch=3),
    "fastembed": lambda _, models: FastembedEmbedder("tiny", folder=models / "plain"),
    "use": lambda _, __: UseEmbedder(),
    "own": lambda _, __: DefaultEmbedder(),
}
PARAMS = [
    "hash",
    "onnx",
    "onnx quantised",
    "http",
    pytest.param(
        "fastembed",
        marks=[
            pytest.mark.skipif(find_spec("fastembed") is None, reason="fastembed is not installed"),
            pytest.mark.filterwarnings("ignore::EncodingWarning"),  # its own, not ours
        ],
    ),
    "use",
    "own",
]
TEXTS = [
    "read pdf",
    "",
    "读取 PDF 文件",
    "a\ud800b",
    "NUL \0 \x1b[2J \u202e",
    " \n\t",
    "mail",
    "文",
]
LONG = "read pdf 文件 " * 10_000
KINDS: tuple[TextKind, ...] = ("query", "document")


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("models")
    write_tiny(place / "plain")
    write_tiny(place / "quantised", "quantised", name="model_int8.onnx")
    return place


@pytest.fixture(scope="session")
def shared() -> dict[str, Embedder]:
    """Those that take long to load; most tests share one."""
    return {"use": UseEmbedder(), "own": DefaultEmbedder()}


@pytest.fixture(params=PARAMS)
def which(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def make(which: str, models: Path) -> AsyncGenerator[Callable[[], Embedder]]:
    """Make embedders of a kind; all are closed in the end."""
    async with serving() as address, AsyncExitStack() as made:

        def making() -> Embedder:
            embedder = IMPLEMENTATIONS[which](address, models)
            made.push_async_callback(embedder.close)
            return embedder

        yield making


@pytest.fixture
def embedder(which: str, make: Callable[[], Embedder], shared: dict[str, Embedder]) -> Embedder:
    return shared.get(which) or make()


def _same(left: Matrix, right: Matrix) -> bool:
    return np.allclose(left, right, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
async def test_rows_have_one_size_and_unit_length(embedder: Embedder, kind: TextKind) -> None:
    rows = await embedder.embed(TEXTS, kind=kind)
    assert rows.dtype == np.float32
    assert rows.shape == (len(TEXTS), embedder.dimensions)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert np.array_equal(await embed_validated(embedder, TEXTS, kind=kind), rows)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_text_gives_the_same_row_whatever_stands_beside_it(
    embedder: Embedder, kind: TextKind
) -> None:
    texts = [*TEXTS, LONG, *reversed(TEXTS)] * 2
    together = await embedder.embed(texts, kind=kind)
    alone = np.concatenate([await embedder.embed([text], kind=kind) for text in texts])
    assert _same(together, alone)


async def test_rows_are_in_the_order_of_the_texts(embedder: Embedder) -> None:
    texts = [*TEXTS, "read", "pdf", "read pdf file mail"] * 3
    rows = await embedder.embed(texts, kind="document")
    backwards = await embedder.embed(texts[::-1], kind="document")
    assert _same(rows, backwards[::-1])


async def test_different_texts_give_different_rows(embedder: Embedder) -> None:
    read, mail, chinese = await embedder.embed(["read pdf", "mail", "读取"], kind="query")
    assert max(read @ mail, read @ chinese, mail @ chinese) < 0.99


async def test_no_texts_give_no_rows(embedder: Embedder) -> None:
    before = await embedder.embed([], kind="query")
    assert before.shape == (0, embedder.dimensions)
    await embedder.embed(["read"], kind="query")
    assert (await embedder.embed([], kind="query")).shape == (0, embedder.dimensions)


async def test_a_very_long_text_is_a_text(embedder: Embedder) -> None:
    assert len(LONG) >= 100_000
    rows = await embedder.embed([LONG, "x" * 100_000, "文" * 100_000], kind="document")
    assert rows.shape == (3, embedder.dimensions)
    assert np.isfinite(rows).all()


async def test_two_of_one_id_give_the_same_rows(
    embedder: Embedder, make: Callable[[], Embedder]
) -> None:
    one, other = embedder, make()
    assert one.id == other.id
    assert _same(await one.embed(TEXTS, kind="query"), await other.embed(TEXTS, kind="query"))
    assert one.dimensions == other.dimensions > 0


async def test_concurrent_calls_share_one_model_until_close(
    make: Callable[[], Embedder],
) -> None:
    embedder, found = make(), dict[int, Matrix]()

    async def ask(number: int) -> None:
        found[number] = await embedder.embed(TEXTS[number:], kind="document")

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(ask, number)
    assert all(_same(found[number], found[0][number:]) for number in range(8))
    await embedder.close()
    await embedder.close()


async def test_it_may_be_closed_twice_before_it_was_ever_used(make: Callable[[], Embedder]) -> None:
    unused = make()
    await unused.close()
    await unused.close()
