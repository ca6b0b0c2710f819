"""Token ids of texts in one flat array: a million of them fit where lists would not."""

import json
from collections.abc import Container, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

QUERY_TOKENS, DOCUMENT_TOKENS = 64, 96
_PART = 20_000


class TokenTable:
    """Deduplicated texts by number."""

    def __init__(self) -> None:
        self._numbers = dict[str, int]()
        self.starts: NDArray[np.int64] = np.zeros(1, np.int64)
        self.flat: NDArray[np.int32] = np.zeros(0, np.int32)

    @classmethod
    def restored(cls, flat: NDArray[np.int32], lengths: NDArray[np.int64]) -> "TokenTable":
        """Restore a table that was cut; its texts are gone."""
        table = cls()
        table.flat = flat
        table.starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
        return table

    def add(self, text: str) -> int:
        """Add a text and return its number."""
        return self._numbers.setdefault(text, len(self._numbers))

    def __len__(self) -> int:
        return len(self._numbers)

    def cut(
        self,
        tokenizer: Path,
        words: Sequence[str],
        processes: int = 1,
        *,
        limit: int = DOCUMENT_TOKENS,
    ) -> None:
        """Tokenize all texts, up to a number of tokens."""
        texts = list(self._numbers)
        parts = [texts[start : start + _PART] for start in range(0, len(texts), _PART)]
        work = partial(_tokens, str(tokenizer), frozenset(words), limit)
        if processes > 1:
            with ProcessPoolExecutor(processes) as pool:
                done = list(pool.map(work, parts))
        else:
            done = list(map(work, parts))
        lengths = np.concatenate([lengths for lengths, _ in done])
        self.starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
        self.flat = np.concatenate([flat for _, flat in done])

    def rows(self, numbers: Sequence[int] | NDArray[np.int64], limit: int) -> tuple[Tensor, Tensor]:
        """Return padded ids and attention mask of some texts; truncation keeps the final token."""
        chosen = np.asarray(numbers)
        lengths = np.minimum(self.starts[chosen + 1] - self.starts[chosen], limit)
        longest = int(lengths.max())
        reach = np.arange(longest)
        is_word = reach < lengths[:, None]
        places = np.where(is_word, self.starts[chosen][:, None] + reach, 0)
        ids = np.where(is_word, self.flat[places], 0)
        ids[np.arange(len(chosen)), lengths - 1] = self.flat[self.starts[chosen + 1] - 1]
        return torch.as_tensor(ids.astype(np.int64)), torch.as_tensor(is_word)

    def groups(
        self, numbers: NDArray[np.int64], limit: int, parts: int
    ) -> Iterator[tuple[NDArray[np.int64], Tensor, Tensor]]:
        """Yield length buckets with little padding, each with its positions."""
        lengths = self.starts[numbers + 1] - self.starts[numbers]
        for part in np.array_split(np.argsort(lengths, kind="stable"), parts):
            if len(part):
                ids, is_word = self.rows(numbers[part], limit)
                yield part, ids, is_word


def _tokens(
    path: str, words: frozenset[str], limit: int, texts: Sequence[str]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    ids = token_ids(Tokenizer.from_file(path), words, texts, limit)
    flat = np.fromiter((one for row in ids for one in row), np.int32)
    return np.fromiter(map(len, ids), np.int64, len(ids)), flat


def token_ids(
    tokenizer: Tokenizer, words: Container[str], texts: Sequence[str], limit: int
) -> list[list[int]]:
    """Tokenize texts as the embedder does; truncation keeps the final token."""
    # Here, because a device that trains on a prepared mixture may lack what the package needs.
    from apexbridge.retrieval.embedders.validation import replace_surrogates, segment_chinese

    said = [segment_chinese(replace_surrogates(text), words) for text in texts]
    ids = [encoding.ids[:limit] for encoding in tokenizer.encode_batch(said)]
    last = tokenizer.get_vocab()["[SEP]"]
    for row in ids:
        row[-1] = last
    return ids


def read_tokenizer(folder: Path) -> tuple[Tokenizer, frozenset[str]]:
    """Load the tokenizer of a folder, and the Chinese words that its texts are segmented into."""
    words = json.loads((folder / "cjk.json").read_text(encoding="utf-8"))
    return Tokenizer.from_file(str(folder / "tokenizer.json")), frozenset(words)


def padded(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Pad token ids to equal length; return them and the attention mask."""
    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])
    lengths = torch.tensor([len(row) for row in rows])
    return ids, torch.arange(longest) < lengths[:, None]
