"""PyTorch encoder: BERT with mean pooling, loaded from the base model's ONNX file."""

import re
from dataclasses import dataclass
from pathlib import Path

import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn
from torch.nn import functional

_NAMED = re.compile(r"encoder\.layer\.(\d+)\.(.+)")
_MATRICES = ("query", "key", "value", "joined", "wide", "narrow")
"""Weight matrices of a layer, in the order of the file's matrix products."""
_LAYER_PARTS = {
    "attention.self.query.bias": "query.bias",
    "attention.self.key.bias": "key.bias",
    "attention.self.value.bias": "value.bias",
    "attention.output.dense.bias": "joined.bias",
    "attention.output.LayerNorm.weight": "first_norm.weight",
    "attention.output.LayerNorm.bias": "first_norm.bias",
    "intermediate.dense.bias": "wide.bias",
    "output.dense.bias": "narrow.bias",
    "output.LayerNorm.weight": "last_norm.weight",
    "output.LayerNorm.bias": "last_norm.bias",
}
_TABLES = {
    "embeddings.word_embeddings.weight": "words.weight",
    "embeddings.position_embeddings.weight": "places.weight",
    "embeddings.LayerNorm.weight": "norm.weight",
    "embeddings.LayerNorm.bias": "norm.bias",
}
_KINDS = "embeddings.token_type_embeddings.weight"

State = dict[str, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Dimensions of an encoder."""

    vocabulary: int
    layers: int
    width: int = 384
    heads: int = 12
    inner: int = 1_536
    places: int = 128


class Layer(nn.Module):
    """Transformer layer: attention and feed-forward, each with residual and layer norm."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.query, self.key, self.value, self.joined = (
            nn.Linear(shape.width, shape.width) for _ in range(4)
        )
        self.wide = nn.Linear(shape.width, shape.inner)
        self.narrow = nn.Linear(shape.inner, shape.width)
        self.first_norm = nn.LayerNorm(shape.width, eps=1e-12)
        self.last_norm = nn.LayerNorm(shape.width, eps=1e-12)

    def forward(self, given: Tensor, mask: Tensor) -> Tensor:
        """Apply the layer; the shape does not change."""
        count, length, width = given.shape

        def split(rows: Tensor) -> Tensor:
            return rows.view(count, length, self.heads, width // self.heads).transpose(1, 2)

        seen = functional.scaled_dot_product_attention(
            split(self.query(given)), split(self.key(given)), split(self.value(given)), mask
        )
        seen = seen.transpose(1, 2).reshape(count, length, width)
        first = self.first_norm(given + self.joined(seen))
        return self.last_norm(first + self.narrow(functional.gelu(self.wide(first))))


class Encoder(nn.Module):
    """Transformer encoder: token ids to unit vectors."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.words = nn.Embedding(shape.vocabulary, shape.width)
        self.places = nn.Embedding(shape.places, shape.width)
        self.norm = nn.LayerNorm(shape.width, eps=1e-12)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))

    def forward(self, ids: Tensor, is_word: Tensor) -> Tensor:
        """Encode padded rows; `is_word` is the attention mask."""
        given = self.norm(self.words(ids) + self.places.weight[: ids.shape[1]])
        mask = is_word[:, None, None, :]
        for layer in self.layers:
            given = layer(given, mask)
        share = is_word[:, :, None].to(given.dtype)
        mean = (given * share).sum(1) / share.sum(1)
        return functional.normalize(mean.float(), dim=-1)


def read_base(path: Path, places: int = 128) -> State:
    """Load the weights of an ONNX file under our names; token type embeddings go into the words."""
    model = onnx.load(str(path))
    stored = {
        part.name: torch.tensor(numpy_helper.to_array(part)) for part in model.graph.initializer
    }
    state: State = {ours: stored[theirs] for theirs, ours in _TABLES.items()}
    state["words.weight"] = state["words.weight"] + stored[_KINDS][0]
    state["places.weight"] = state["places.weight"][:places]
    for name, tensor in stored.items():
        named = _NAMED.fullmatch(name)
        if named:
            state[f"layers.{named[1]}.{_LAYER_PARTS[named[2]]}"] = tensor
    matrices = [
        stored[node.input[1]]
        for node in model.graph.node
        if node.op_type == "MatMul" and node.input[1] in stored
    ]
    for place, matrix in enumerate(matrices):
        layer, which = divmod(place, len(_MATRICES))
        state[f"layers.{layer}.{_MATRICES[which]}.weight"] = matrix.T.contiguous()
    return state


def layers_in(state: State) -> int:
    """Count the layers of a checkpoint."""
    return 1 + max(int(name.split(".")[1]) for name in state if name.startswith("layers."))


def build(state: State) -> Encoder:
    """Build an encoder with these weights."""
    words, places = state["words.weight"], state["places.weight"]
    inner, width = state["layers.0.wide.weight"].shape
    shape = Shape(
        vocabulary=len(words),
        layers=layers_in(state),
        width=width,
        heads=width // 32,
        inner=inner,
        places=len(places),
    )
    encoder = Encoder(shape)
    encoder.load_state_dict(state)
    return encoder


def thinned(state: State, kept: tuple[int, ...]) -> State:
    """Keep only some layers of a checkpoint."""
    out: State = {
        name: part.clone() for name, part in state.items() if not name.startswith("layers.")
    }
    for place, layer in enumerate(kept):
        head = f"layers.{layer}."
        for name, part in state.items():
            if name.startswith(head):
                out[f"layers.{place}.{name.removeprefix(head)}"] = part.clone()
    return out
