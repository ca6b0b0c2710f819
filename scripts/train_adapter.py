"""Train the linear adapter of the USE embedder on requests and skills.

The adapter is one matrix, trained contrastively: sentences mined from skills (triggers, "when to
use" bullets, first paragraphs) and translated descriptions move towards their descriptions. Skills
of the held-out corpus are excluded by name and description. Four runs at different temperatures are
averaged, and the average is mixed equally with the identity, to preserve general knowledge. Of 512
principal components 256 are kept: search is bound by memory bandwidth, and the others carry a
twentieth of the variance.

    python -m scripts.train_adapter --pairs FILE.jsonl.xz --translations FILE.jsonl.xz \
        --held-out FILE.jsonl.gz
"""

import argparse
import gzip
import json
import lzma
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import numpy as np
from numpy.typing import NDArray

from apexbridge.retrieval.embedders.use import ADAPTER, DIMENSIONS, ENCODER_DIMENSIONS, UseEmbedder

TEMPERATURES = (0.05, 0.06, 0.07, 0.1)
BATCH = 1_024
STEPS = 1_000
SHARE = 0.5
# Number of mined sentences by kind: triggers, bullets, first paragraphs.
KEPT = {"A": 0.6, "B": 0.4, "C": 0.15}
CHARACTERS = 600

Vectors = NDArray[np.float32]
Pair = tuple[str, str]


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """Read the rows of a compressed file."""
    opener: Any = {".xz": lzma.open, ".gz": gzip.open}.get(path.suffix, open)
    with opener(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def letters(text: str) -> str:
    """Keep only the letters of a description."""
    return re.sub(r"\W+", "", text.lower())[:80]


def spoken(name: str) -> str:
    """Split a name into words."""
    return name.replace("-", " ").lower()


def read_pairs(pairs: Path, translations: Path, held_out: Path) -> list[Pair]:
    """Pair sentences with their skills, without held-out skills."""
    chance = random.Random(1)  # noqa: S311  # no secret hangs on it
    names, texts = set[str](), set[str]()
    for row in rows(held_out):
        names.add(spoken(row["name"]))
        texts.add(letters(row["description"]))
    found = list[Pair]()
    for row in rows(pairs):
        name, _, description = row["d"].partition(": ")
        if name.lower() in names or letters(description) in texts:
            continue
        if row["l"] != "en" or chance.random() < KEPT[row["s"]]:
            found.append((row["q"], row["d"][:CHARACTERS]))
    for row in rows(translations):
        name = spoken(row["name_en"])
        if name in names or spoken(row["name_zh"]) in names:
            continue
        if letters(row["en"]) not in texts and letters(row["zh"]) not in texts:
            found.append((row["zh"][:200], f"{name}: {row['en']}"[:CHARACTERS]))
    return found


def train(vectors: NDArray[np.float16], pairs: NDArray[np.intp], temperature: float) -> Vectors:
    """Minimize the symmetric contrastive loss with Adam, regularized towards the identity."""
    chance = np.random.default_rng(0)
    nothing = np.eye(ENCODER_DIMENSIONS, dtype=np.float32)
    matrix, mean, spread = nothing.copy(), np.zeros_like(nothing), np.zeros_like(nothing)
    for step in range(1, STEPS + 1):
        chosen = pairs[chance.integers(0, len(pairs), BATCH)]
        gradient = slope(vectors, chosen, matrix, temperature)
        mean = 0.9 * mean + 0.1 * gradient
        spread = 0.99 * spread + 0.01 * gradient * gradient
        rate = 1e-3 * min(1, step / 100) * max(0.05, 0.5 * (1 + np.cos(np.pi * step / STEPS)))
        move = (mean / (1 - 0.9**step)) / (np.sqrt(spread / (1 - 0.99**step)) + 1e-8)
        matrix -= rate * move + rate * 0.1 * (matrix - nothing)
        if step % 250 == 0:
            print(f"temperature {temperature}: step {step}", flush=True)
    return matrix


def slope(
    vectors: NDArray[np.float16], pairs: NDArray[np.intp], matrix: Vectors, temperature: float
) -> Vectors:
    """Compute the gradient of a batch's loss."""
    left, right = (vectors[pairs[:, side]].astype(np.float32) for side in (0, 1))
    turned = [side @ matrix for side in (left, right)]
    lengths = [np.linalg.norm(side, axis=1, keepdims=True) for side in turned]
    unit = [side / length for side, length in zip(turned, lengths, strict=True)]
    scores = unit[0] @ unit[1].T / temperature
    same = (pairs[:, 0, None] == pairs[None, :, 0]) | (pairs[:, 1, None] == pairs[None, :, 1])
    np.fill_diagonal(same, val=False)
    scores[same] = -1e4  # another sentence of the same skill is no negative
    pull = (softmax(scores, 1) + softmax(scores, 0)) / 2
    pull[np.diag_indices(len(pull))] -= 1
    pull /= len(pull) * temperature
    slopes = [pull @ unit[1], pull.T @ unit[0]]
    gradient = np.zeros_like(matrix)
    for given, own, length, change in zip((left, right), unit, lengths, slopes, strict=True):
        gradient += given.T @ ((change - own * (own * change).sum(1, keepdims=True)) / length)
    return gradient


def softmax(scores: Vectors, axis: int) -> Vectors:
    """Softmax along an axis."""
    powers = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return powers / powers.sum(axis=axis, keepdims=True)


def narrow(vectors: NDArray[np.float16], matrix: Vectors) -> Vectors:
    """Reduce the dimensions: the matrix, followed by the principal components of its outputs."""
    turned = vectors[::3].astype(np.float32) @ matrix.astype(np.float32)
    turned /= np.linalg.norm(turned, axis=1, keepdims=True)
    shares, directions = np.linalg.eigh(turned.T @ turned)  # in ascending order
    print(f"kept: {shares[-DIMENSIONS:].sum() / shares.sum():.3f}", flush=True)
    return matrix @ directions[:, ::-1][:, :DIMENSIONS]


async def embed(texts: list[str]) -> NDArray[np.float16]:
    """Embed all texts with USE."""
    embedder = UseEmbedder(is_adapted=False)
    out = np.empty((len(texts), ENCODER_DIMENSIONS), np.float16)
    for first in range(0, len(texts), 8_192):
        part = texts[first : first + 8_192]
        out[first : first + len(part)] = await embedder.embed(part, kind="document")
        print(f"{first + len(part)} of {len(texts)} texts", flush=True)
    return out


def main() -> None:
    """Train and save the matrix."""
    parser = argparse.ArgumentParser(prog="python -m scripts.train_adapter", description=__doc__)
    for name in ("pairs", "translations", "held-out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=ADAPTER)
    given = parser.parse_args()
    pairs = read_pairs(given.pairs, given.translations, given.held_out)
    numbers = dict[str, int]()
    for text in (text for pair in pairs for text in pair):
        numbers.setdefault(text, len(numbers))
    print(f"{len(pairs)} pairs, {len(numbers)} texts", flush=True)
    vectors = anyio.run(embed, list(numbers))
    places = np.array([[numbers[left], numbers[right]] for left, right in pairs], np.intp)
    trained = np.mean([train(vectors, places, heat) for heat in TEMPERATURES], axis=0)
    mixed = SHARE * trained + (1 - SHARE) * np.eye(ENCODER_DIMENSIONS)
    np.save(given.out, narrow(vectors, mixed).astype(np.float16), allow_pickle=False)


if __name__ == "__main__":
    main()
