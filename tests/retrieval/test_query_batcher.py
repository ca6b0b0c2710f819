"""Query batcher: who waits at the same time is encoded together, and gets its own vector."""

import threading
from collections.abc import Sequence

import anyio
import anyio.from_thread
import anyio.lowlevel
import numpy as np
import pytest

from apexbridge.errors import EmbedderOutputError
from apexbridge.retrieval.base import Matrix
from apexbridge.retrieval.embedders.query_batcher import MAX_BATCH, QueryBatcher

pytestmark = pytest.mark.anyio


class _Encoder:
    """Encoder whose vector of a text is its length; `bad` cannot be encoded."""

    def __init__(self) -> None:
        self.batches = list[list[str]]()
        self.threads = list[int]()
        self.waits: anyio.Event | None = None
        """Encoding waits for it, if it is on a worker thread."""

    def encode(self, texts: Sequence[str]) -> Matrix:
        self.batches.append([*texts])
        self.threads.append(threading.get_ident())
        if self.waits is not None and self.threads[-1] != threading.main_thread().ident:
            anyio.from_thread.run(self.waits.wait)
        if "bad" in texts:
            raise EmbedderOutputError("bad", name="test")
        return np.array([[len(text)] for text in texts], np.float32)


class _Callers:
    """Concurrent callers of one batcher, with what each got."""

    def __init__(self, encoder: _Encoder) -> None:
        self.batcher, self.encoder = QueryBatcher(), encoder
        self.found = dict[str, float | str]()

    async def ask(self, text: str) -> None:
        try:
            row = await self.batcher.encode(text, self.encoder.encode, is_short=len(text) <= 10)
            assert row.shape == (1, 1)
            self.found[text] = float(row[0, 0])
        except EmbedderOutputError as error:
            self.found[text] = error.code

    async def ask_all(self, texts: Sequence[str]) -> None:
        async with anyio.create_task_group() as group:
            for text in texts:
                group.start_soon(self.ask, text)


async def test_a_lone_short_query_is_encoded_on_the_event_loop() -> None:
    callers = _Callers(_Encoder())
    await callers.ask("one")
    await callers.ask("two and a half")
    assert callers.found == {"one": 3, "two and a half": 14}
    inline, threaded = callers.encoder.threads
    assert inline == threading.get_ident() != threaded


async def test_queries_that_wait_at_the_same_time_are_encoded_together_in_a_thread() -> None:
    callers = _Callers(_Encoder())
    texts = ["x" * size for size in range(1, MAX_BATCH + 3)]
    await callers.ask_all(texts)
    assert callers.found == {text: len(text) for text in texts}
    assert callers.encoder.batches == [texts[:MAX_BATCH], texts[MAX_BATCH:]]
    assert threading.get_ident() not in callers.encoder.threads


async def test_queries_that_come_during_a_batch_form_the_next_one() -> None:
    callers = _Callers(_Encoder())
    callers.encoder.waits = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(callers.ask_all, ["a", "bb"])
        while not callers.encoder.batches:
            await anyio.lowlevel.checkpoint()
        group.start_soon(callers.ask_all, ["ccc", "dddd"])
        await anyio.wait_all_tasks_blocked()
        assert callers.encoder.batches == [["a", "bb"]]
        callers.encoder.waits.set()
    assert callers.encoder.batches == [["a", "bb"], ["ccc", "dddd"]]
    assert callers.found == {"a": 1, "bb": 2, "ccc": 3, "dddd": 4}


async def test_a_text_that_cannot_be_encoded_fails_alone() -> None:
    callers = _Callers(_Encoder())
    await callers.ask_all(["a", "bad", "bb"])
    assert callers.found == {"a": 1, "bad": "embedder_output", "bb": 2}
    await callers.ask("bad")
    await callers.ask("c")
    assert callers.found["c"] == 1


@pytest.mark.parametrize("cancelled", [0, 1, 2])
async def test_who_gives_up_takes_no_other_with_it(cancelled: int) -> None:
    callers, texts = _Callers(_Encoder()), ["a", "bb", "ccc"]
    scopes = [anyio.CancelScope() for _ in texts]

    async def ask(number: int) -> None:
        with scopes[number]:
            await callers.ask(texts[number])

    async with anyio.create_task_group() as group:
        for number in range(len(texts)):
            group.start_soon(ask, number)
        await anyio.lowlevel.checkpoint()  # all wait, the first is about to encode
        scopes[cancelled].cancel()
    kept = [text for number, text in enumerate(texts) if number != cancelled]
    assert {text: callers.found[text] for text in kept} == {text: len(text) for text in kept}
    await callers.ask("dddd")
    assert callers.found["dddd"] == 4


async def test_a_waiting_query_that_gives_up_is_not_encoded() -> None:
    callers = _Callers(_Encoder())
    callers.encoder.waits = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(callers.ask_all, ["a", "bb"])
        while not callers.encoder.batches:
            await anyio.lowlevel.checkpoint()
        with anyio.move_on_after(0):
            await callers.ask("ccc")
        callers.encoder.waits.set()
    assert callers.encoder.batches == [["a", "bb"]]
    await callers.ask("dddd")
    assert callers.found == {"a": 1, "bb": 2, "dddd": 4}
