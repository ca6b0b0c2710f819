"""Initialization before training: vocabulary, embeddings of new words, and translation swaps."""

import json
from collections.abc import Sequence
from pathlib import Path

import anyio
import numpy as np
from tokenizers import Tokenizer

from apexbridge.retrieval.embedders.use import UseEmbedder
from training.colloquial import Products
from training.dataset import Numbers
from training.jsonl import read_rows
from training.vocabulary import chinese_characters, chinese_words, extend, is_word
from training.word_initialization import (
    Matrix,
    Start,
    english_words,
    standing_together,
    start_values,
)

_SURE = 0.5
"""A word is swapped for one with at least this share in its initialization."""


def begin(base: Path, data: Path, products: Products, out: Path) -> int:
    """Write `tokenizer.json`, `cjk.json` and `start.npz`; return the number of new words."""
    parallel = [(row["en"], row["zh"]) for row in read_rows(data / "parallel.jsonl.xz")]
    asked = [row["q"] for row in read_rows(data / "pairs.jsonl.xz")]
    chinese = [*(right for _, right in parallel), *(text for text in asked if not text.isascii())]
    named = [name for product in products.known for name in product.chinese if is_word(name)]
    added = [*chinese_characters(chinese), *chinese_words(chinese), *named]
    new = extend(base, added, out)
    english = english_words([left for left, _ in parallel])
    near = anyio.run(_nearness, new, english)
    start = start_values(near, standing_together(parallel, english, new), english)
    tokenizer = Tokenizer.from_file(str(out / "tokenizer.json"))
    pieces = [tokenizer.encode(word, add_special_tokens=False).ids for word in english]
    np.savez_compressed(
        out / "start.npz",
        places=start.places,
        shares=start.shares.astype(np.float16),
        pieces=_padded(pieces),
        swaps=_swaps(start, new, pieces, tokenizer),
    )
    (out / "start.json").write_text(
        json.dumps(_told(start, new), ensure_ascii=False, indent=0), encoding="utf-8"
    )
    return len(new)


def first_rows(table: Matrix, start: Path) -> Matrix:
    """Append rows for the new words to the base model's embedding table."""
    with np.load(start) as kept:
        places, shares, pieces = kept["places"], kept["shares"].astype(np.float32), kept["pieces"]
    is_piece = pieces >= 0
    words = (table[np.where(is_piece, pieces, 0)] * is_piece[:, :, None]).sum(1)
    words /= is_piece.sum(1)[:, None]
    return np.concatenate((table, (words[places] * shares[:, :, None]).sum(1).astype(np.float32)))


def swaps_of(start: Path) -> Numbers:
    """Return, for each word id, the id of its translation."""
    with np.load(start) as kept:
        return kept["swaps"].astype(np.int64)


async def _nearness(chinese: Sequence[str], english: Sequence[str]) -> Matrix:
    embedder = UseEmbedder(is_adapted=False)
    left = await embedder.embed(chinese, kind="document")
    right = await embedder.embed(english, kind="document")
    return left @ right.T


def _padded(pieces: Sequence[Sequence[int]]) -> Numbers:
    out = np.full((len(pieces), max(map(len, pieces))), -1, np.int64)
    for row, ids in zip(out, pieces, strict=True):
        row[: len(ids)] = ids
    return out


def _swaps(
    start: Start, new: Sequence[str], pieces: Sequence[Sequence[int]], tokenizer: Tokenizer
) -> Numbers:
    known = tokenizer.get_vocab()
    swaps = np.arange(len(known), dtype=np.int64)
    best = start.shares.argmax(1)
    surest = dict[int, float]()
    for row, word in enumerate(new):
        share = float(start.shares[row, best[row]])
        ids = pieces[int(start.places[row, best[row]])]
        if len(word) == 1 or share < _SURE or len(ids) != 1:
            continue
        here = known[word]
        swaps[here] = ids[0]
        if share > surest.get(ids[0], 0):
            surest[ids[0]], swaps[ids[0]] = share, here
    return swaps


def _told(start: Start, new: Sequence[str]) -> dict[str, list[str]]:
    order = np.argsort(-start.shares, axis=1)
    return {
        word: [start.english[start.places[row, at]] for at in order[row, :3]]
        for row, word in enumerate(new)
    }
