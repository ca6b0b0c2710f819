"""Micro-batching of queries: those that wait at the same time are encoded in one call.

A lone query is encoded on the event loop, because waking a thread takes a tenth of the time of a
short encoding. Several go to a worker thread together: the event loop serves other requests on
another core meanwhile, and neither of the two evicts what the other has in its core's cache.
"""

from collections.abc import Callable, Sequence

import anyio
import anyio.lowlevel
import anyio.to_thread

from apexbridge.errors import RetrievalError
from apexbridge.retrieval.base import Matrix
from apexbridge.retrieval.thread_control import shortened_gil_switch_interval

MAX_BATCH = 8
"""Texts per call: the last of a batch waits for all others of it."""
_GIL_SECONDS = 0.00005
"""GIL switch interval during a batch: the thread needs the GIL for moments, before and after."""

EncodeTexts = Callable[[Sequence[str]], Matrix]


class _Query:
    """Query that waits for its vector, or for its turn to encode the next batch."""

    __slots__ = ("error", "ready", "text", "vector")

    def __init__(self, text: str) -> None:
        self.text = text
        self.ready: anyio.Event | None = None
        self.vector: Matrix | None = None
        self.error: RetrievalError | None = None

    @property
    def is_done(self) -> bool:
        return self.vector is not None or self.error is not None


class QueryBatcher:
    """Queue of one event loop: the first waiting caller encodes a batch for all that wait."""

    def __init__(self) -> None:
        self._waiting = list[_Query]()
        self._leader: _Query | None = None
        """Query whose caller encodes the present batch, or the next one."""

    async def encode(self, text: str, encode: EncodeTexts, *, is_short: bool) -> Matrix:
        """Return the vector of a text as a matrix of one row.

        A text that is not short goes to a worker thread also if it is alone.

        Raises:
            RetrievalError: If the encoder fails for this text.
        """
        query = _Query(text)
        self._waiting.append(query)
        try:
            if self._leader is None:
                self._leader = query
            else:
                query.ready = anyio.Event()
                await query.ready.wait()
            if self._leader is query:
                await self._encode_batch(query, encode, can_inline=is_short)
        finally:
            if query in self._waiting:  # cancelled
                self._waiting.remove(query)
            if self._leader is query:
                self._pass_lead()
        if query.vector is None:
            raise query.error or AssertionError("a query that is not waiting has its vector")
        return query.vector

    async def _encode_batch(self, query: _Query, encode: EncodeTexts, *, can_inline: bool) -> None:
        # Shielded: encoding at once, as a lone query is, cannot be cancelled either.
        if len(self._waiting) == 1:
            await anyio.lowlevel.cancel_shielded_checkpoint()  # tasks that are ready join
        batch = self._waiting[:MAX_BATCH]
        if can_inline and len(batch) == 1:
            _encode(batch, encode)
        else:
            # A busy event loop would keep the thread waiting for the GIL longer than it encodes.
            with shortened_gil_switch_interval(_GIL_SECONDS):
                await anyio.to_thread.run_sync(_encode, batch, encode)
        self._waiting = [one for one in self._waiting if not one.is_done]
        self._pass_lead()
        if self._leader is not None:
            # The next batch is on its thread before this one's callers occupy the event loop: one
            # round wakes its leader, the other is a checkpoint of `run_sync`.
            for _ in range(2):
                await anyio.lowlevel.cancel_shielded_checkpoint()
        for one in batch:
            if one is not query and one.ready is not None:
                one.ready.set()

    def _pass_lead(self) -> None:
        self._leader = self._waiting[0] if self._waiting else None
        if self._leader is not None and self._leader.ready is not None:
            self._leader.ready.set()


def _encode(batch: Sequence[_Query], encode: EncodeTexts) -> None:
    try:
        rows = encode([query.text for query in batch])
        for number, query in enumerate(batch):
            query.vector = rows[number : number + 1]
    except RetrievalError as error:
        if len(batch) == 1:
            batch[0].error = error
            return
        for query in batch:  # one text that cannot be encoded must not fail the others
            _encode([query], encode)
