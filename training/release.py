"""Release: the shipped files and their SHA-256 digests."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np

from training.export import export
from training.token_table import DOCUMENT_TOKENS, QUERY_TOKENS

_RECIPE = {
    "max_query_tokens": QUERY_TOKENS,
    "max_document_tokens": DOCUMENT_TOKENS,
    "pooling": "none",
}


def release(
    weights: Path,
    tokenizer: Path,
    out: Path,
    model: str = "model_int8.onnx",
    *,
    takes_many: bool = False,
) -> dict[str, str]:
    """Write model, tokenizer, vocabulary and options to a folder; return the SHA-256 of each."""
    with np.load(weights) as kept:
        every = {name: kept[name].astype(np.float32) for name in kept.files}
    export(every, out / model, takes_many=takes_many)
    for name in ("tokenizer.json", "cjk.json"):
        shutil.copyfile(tokenizer / name, out / name)
    (out / "embedder.json").write_text(json.dumps(_RECIPE), encoding="utf-8")
    names = (model, "tokenizer.json", "cjk.json", "embedder.json")
    return {name: hashlib.sha256((out / name).read_bytes()).hexdigest() for name in names}
