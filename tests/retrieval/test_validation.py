"""Validation of embedder output."""

from collections.abc import Sequence

import anyio
import numpy as np
import pytest
from numpy.typing import ArrayLike

from apexbridge.errors import EmbedderOutputError, EmbedderUnavailableError
from apexbridge.retrieval.base import Matrix, TextKind
from apexbridge.retrieval.embedders.validation import embed_validated

pytestmark = pytest.mark.anyio

NAN, INFINITY = float("nan"), float("inf")


class Strange:
    """Embedder that returns fixed rows, or raises."""

    def __init__(
        self, rows: ArrayLike = (), *, dimensions: int = 2, raises: BaseException | None = None
    ) -> None:
        self._rows = rows
        self._raises = raises
        self.dimensions = dimensions
        self.calls = 0

    @property
    def id(self) -> str:
        return "strange"

    async def embed(self, texts: Sequence[str], *, kind: TextKind) -> Matrix:
        self.calls += 1
        if self._raises:
            raise self._raises
        return self._rows  # pyright: ignore[reportReturnType]  # what is wrong is the point

    async def close(self) -> None:
        pass


class Nameless(Strange):
    @property
    def id(self) -> str:
        raise LookupError("no name")


@pytest.mark.promise("L06")
@pytest.mark.parametrize(
    ("rows", "words"),
    [
        pytest.param([[1, 0]], "shape (1, 2) for 2 texts", id="too few rows"),
        pytest.param([[1, 0]] * 3, "shape (3, 2) for 2 texts", id="too many rows"),
        pytest.param([1, 0], "shape (2,)", id="no rows"),
        pytest.param([[[1, 0]], [[1, 0]]], "shape (2, 1, 2)", id="rows of rows"),
        pytest.param([[1, 0, 0]] * 2, "3 numbers where 2 were expected", id="another size"),
        pytest.param(np.zeros((2, 0)), "0 numbers", id="no numbers"),
        pytest.param([[1, 0], [1]], "different sizes", id="ragged"),
        pytest.param([[1, 0], [0, NAN]], "NaN", id="NaN"),
        pytest.param([[1, 0], [0, -INFINITY]], "infinity", id="infinity"),
        pytest.param([[1e200, 1e200], [0, 1]], "infinity", id="endless length"),
        pytest.param([[1, 0], [0, 0]], "zero vector", id="zero"),
        pytest.param([[1, 0], [0, 1e-30]], "zero vector", id="as good as zero"),
        pytest.param([["1", "0"]] * 2, "instead of numbers", id="words"),
        pytest.param([[1j, 0]] * 2, "instead of numbers", id="complex"),
        pytest.param([[True, False]] * 2, "instead of numbers", id="yes and no"),
        pytest.param([[None, 1.0]] * 2, "instead of numbers", id="nothing"),
        pytest.param(None, "instead of numbers", id="nothing at all"),
    ],
)
async def test_invalid_vectors_are_refused(rows: ArrayLike, words: str) -> None:
    with pytest.raises(EmbedderOutputError) as caught:
        await embed_validated(Strange(rows), ["a", "b"], kind="document")
    assert words in caught.value.message
    assert caught.value.details["name"] == "strange"


@pytest.mark.promise("L06")
async def test_rows_of_no_fixed_size_must_still_agree_with_each_other() -> None:
    free = Strange([[3, 4], [1, 0, 0]], dimensions=0)
    with pytest.raises(EmbedderOutputError):
        await embed_validated(free, ["a", "b"], kind="query")
    assert (
        await embed_validated(Strange([[3, 4, 0]], dimensions=0), ["a"], kind="query")
    ).size == 3


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4"])
async def test_rows_that_are_merely_too_long_are_made_unit_length(dtype: str) -> None:
    given = np.asfortranarray(np.array([[3, 4], [0, 2]], dtype))
    rows = await embed_validated(Strange(given), ["a", "b"], kind="query")
    assert rows.dtype == np.float32
    assert rows.flags.c_contiguous
    assert np.allclose(rows, [[0.6, 0.8], [0, 1]])
    assert given[0, 0] == 3


async def test_the_largest_and_smallest_of_single_precision_still_have_a_direction() -> None:
    given = np.array([[3e38, 3e38], [1e-11, 0]], np.float32)
    rows = await embed_validated(Strange(given), ["a", "b"], kind="query")
    assert np.allclose(np.linalg.norm(rows, axis=1), 1)


async def test_unit_rows_pass_bit_for_bit() -> None:
    given = np.random.default_rng(1).normal(size=(50, 2)).astype(np.float32)
    once = await embed_validated(Strange(given), ["a"] * 50, kind="query")
    assert np.array_equal(await embed_validated(Strange(once), ["a"] * 50, kind="query"), once)


async def test_no_texts_need_no_embedder_call() -> None:
    strange = Strange(raises=RuntimeError("called"))
    assert (await embed_validated(strange, [], kind="query")).shape == (0, 2)
    assert strange.calls == 0


@pytest.mark.promise("L06")
@pytest.mark.parametrize(
    ("error", "words"), [(RuntimeError("out of luck"), "out of luck"), (KeyError(), "KeyError")]
)
async def test_any_exception_of_an_embedder_becomes_one_error(error: Exception, words: str) -> None:
    with pytest.raises(EmbedderUnavailableError) as caught:
        await embed_validated(Strange(raises=error), ["a"], kind="query")
    assert caught.value.details == {"detail": words, "name": "strange"}
    assert caught.value.__cause__ is error


async def test_retrieval_errors_are_not_wrapped() -> None:
    for error in (EmbedderUnavailableError("x", name="y"), EmbedderOutputError("x", name="y")):
        with pytest.raises(type(error)) as caught:
            await embed_validated(Strange(raises=error), ["a"], kind="query")
        assert caught.value is error


async def test_an_embedder_without_a_name_is_named_by_its_kind() -> None:
    with pytest.raises(EmbedderUnavailableError) as caught:
        await embed_validated(Nameless([[1, 0]]), ["a"], kind="query")
    assert caught.value.details == {"detail": "no name", "name": "Nameless"}


async def test_cancellation_is_no_error_of_the_embedder() -> None:
    class Sleepy(Strange):
        async def embed(self, texts: Sequence[str], *, kind: TextKind) -> Matrix:
            await anyio.sleep_forever()
            return await super().embed(texts, kind=kind)

    with anyio.move_on_after(0.01) as scope:
        await embed_validated(Sleepy(), ["a"], kind="query")
    assert scope.cancelled_caught
