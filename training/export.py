"""ONNX export with int8 weights, for one text per call or for packed sequences.

The graph is built explicitly from onnxruntime's fused operators, except for residual and layer
norm, where two plain operators take a third of the fused one's time. Matrices have a scale for each
column, word embeddings for each row. Weights use seven bits: older CPUs add two products in 16
bits, where eight bits would overflow, so that vectors would depend on the CPU.

Word embeddings are external data in a separate file, so that encoders of several depths share it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import set_external_data

Array = NDArray[np.generic]
Weights = Mapping[str, NDArray[np.float32]]

_OURS = "com.microsoft"
WORDS = "words.bin"
"""The file of the table of words; every graph in the folder names it."""
_LARGEST = 63
_WORD_LARGEST = 127
_EPSILON = 1e-12
_OPSET, _IR = 17, 9
_FLOAT = TensorProto.FLOAT
_PARTS = ("query", "key", "value")


def export(weights: Weights, path: Path, *, takes_many: bool = False) -> int:
    """Write the file, and the words beside it; tells its size in bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    graph = _Graph()
    given = _embedded(graph, weights)
    for layer in range(_layers(weights)):
        given = _layer(graph, weights, f"layers.{layer}.", given)
    mean = graph.add("ReduceMean", [given], axes=[1], keepdims=0)
    length = graph.add("ReduceL2", [mean], axes=[1], keepdims=1)
    graph.add("Div", [mean, length], out="embedding")
    width = weights["words.weight"].shape[1]
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "retriever",
            [helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, "length"])],
            [helper.make_tensor_value_info("embedding", TensorProto.FLOAT, [1, width])],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", _OPSET), helper.make_opsetid(_OURS, 1)],
        producer_name="apexbridge",
        ir_version=_IR,
    )
    if takes_many:
        model = in_turn(model)
    table = next(part for part in model.graph.initializer if part.name == "words")
    (path.parent / WORDS).write_bytes(table.raw_data)
    set_external_data(table, location=WORDS)
    table.ClearField("raw_data")
    path.write_bytes(model.SerializeToString())
    return path.stat().st_size


def in_turn(model: onnx.ModelProto) -> onnx.ModelProto:
    """Wrap the graph in a loop over packed sequences: each text alone, but all in one call.

    `input_ids` are those of all texts concatenated; `starts` are the offsets of the texts, and the
    end of the last one. The caller needs the GIL once for all of them.
    """
    one, many = _Graph(), _Graph()
    zero, next_one = _whole(many, "turn.zero", 0), _whole(many, "turn.one", 1)
    at = one.add("Unsqueeze", ["turn", zero], out="turn_at")
    after = one.add("Add", [at, next_one], out="turn_after")
    ends = (
        one.add("Gather", ["starts", at], out="turn_start"),
        one.add("Gather", ["starts", after], out="turn_end"),
    )
    row = one.add("Slice", ["input_ids", *ends], out="turn_row")
    one.add("Unsqueeze", [row, zero], out="turn_ids")
    one.add("Identity", ["goes_on"], out="goes_on_then")
    for node in model.graph.node:
        given = ["turn_ids" if name == "input_ids" else name for name in node.input]
        node.input[:] = given
        one.nodes.append(node)
    one.add("Squeeze", ["embedding", zero], out="vector")
    width = model.graph.output[0].type.tensor_type.shape.dim[1].dim_value
    body = helper.make_graph(
        one.nodes,
        "one_text",
        [_declared("turn", TensorProto.INT64, []), _declared("goes_on", TensorProto.BOOL, [])],
        [_declared("goes_on_then", TensorProto.BOOL, []), _declared("vector", _FLOAT, [width])],
    )
    count = many.add("Sub", [many.add("Shape", ["starts"]), next_one])
    goes_on = many.constant("turn.goes_on", np.array(True))
    many.add("Loop", [many.add("Squeeze", [count, zero]), goes_on], out="embeddings", body=body)
    graph = helper.make_graph(
        many.nodes,
        "retriever",
        [_declared(name, TensorProto.INT64, [f"{name}_count"]) for name in ("input_ids", "starts")],
        [_declared("embeddings", _FLOAT, ["texts", width])],
        [*model.graph.initializer, *many.constants],
    )
    return helper.make_model(
        graph,
        opset_imports=model.opset_import,
        producer_name=model.producer_name,
        ir_version=model.ir_version,
    )


def _declared(name: str, kind: int, shape: Sequence[int | str]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def restored(path: Path) -> dict[str, NDArray[np.float32]]:
    """The weights of a file that `export` wrote, as exact as eight bits can be."""
    model = onnx.load(str(path))
    # Copied: what lies in a file cannot be written to, and is trained on from here.
    kept = {part.name: numpy_helper.to_array(part).copy() for part in model.graph.initializer}
    out = dict[str, NDArray[np.float32]]()
    for name, value in kept.items():
        if f"{name}.scale" in kept:
            exact = (value * kept[f"{name}.scale"]).astype(np.float32)
            out |= {"words.weight": exact} if name == "words" else _matrices(name, exact)
        elif name.endswith(".attention.bias"):
            head = name.removesuffix("attention.bias")
            out |= {f"{head}{p}.bias": b for p, b in zip(_PARTS, np.split(value, 3), strict=True)}
        elif name.endswith(".gain"):
            out[f"{name.removesuffix('gain')}weight"] = value
        elif name.endswith(".bias"):
            out[name] = value
    return out | {"places.weight": kept["places"]}


def _matrices(name: str, exact: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
    if not name.endswith(".attention"):
        return {f"{name}.weight": np.ascontiguousarray(exact.T)}
    parts = zip(_PARTS, np.split(exact, 3, axis=1), strict=True)
    head = name.removesuffix("attention")
    return {f"{head}{part}.weight": np.ascontiguousarray(m.T) for part, m in parts}


class _Graph:
    """Steps and constants, each result under a name of its own."""

    def __init__(self) -> None:
        self.nodes = list[onnx.NodeProto]()
        self.constants = list[onnx.TensorProto]()

    def add(
        self,
        step: str,
        given: Sequence[str],
        *,
        out: str | Sequence[str] = "",
        domain: str = "",
        **options: Any,
    ) -> str:
        """A step; its first result's name."""
        outs = [out] if isinstance(out, str) else list(out)
        outs = [name or f"{step}_{len(self.nodes)}" for name in outs]
        self.nodes.append(helper.make_node(step, list(given), outs, domain=domain, **options))
        return outs[0]

    def constant(self, name: str, value: Array) -> str:
        """A constant's name."""
        self.constants.append(numpy_helper.from_array(value, name))
        return name


def quantised(
    matrix: NDArray[np.float32], axis: int, largest: int
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Whole numbers, and what one of them is worth along the other axis."""
    scale = np.maximum(np.abs(matrix).max(axis=axis, keepdims=True), 1e-8) / largest
    return np.rint(matrix / scale).astype(np.int8), scale.astype(np.float32)


def _layers(weights: Weights) -> int:
    return 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("layers."))


def _embedded(graph: _Graph, weights: Weights) -> str:
    table, scales = quantised(weights["words.weight"], 1, _WORD_LARGEST)
    rows = graph.add("Gather", [graph.constant("words", table), "input_ids"])
    worth = graph.add("Gather", [graph.constant("words.scale", scales), "input_ids"])
    words = graph.add("Mul", [graph.add("Cast", [rows], to=TensorProto.FLOAT), worth])
    shape = graph.add("Shape", ["input_ids"])
    length = graph.add("Slice", [shape, *(_whole(graph, f"one.{n}", n) for n in (1, 2))])
    start = _whole(graph, "zero", 0)
    seen = graph.add("Slice", [graph.constant("places", weights["places.weight"]), start, length])
    given = graph.add("Add", [words, seen])
    gain = graph.constant("norm.gain", weights["norm.weight"])
    bias = graph.constant("norm.bias", weights["norm.bias"])
    return graph.add("LayerNormalization", [given, gain, bias], axis=-1, epsilon=_EPSILON)


def _whole(graph: _Graph, name: str, value: int) -> str:
    return graph.constant(name, np.array([value], np.int64))


def _layer(graph: _Graph, weights: Weights, head: str, given: str) -> str:
    attended = _attention(graph, weights, head, given)
    joined = _dense(graph, weights, f"{head}joined", attended)
    first = _added(graph, weights, f"{head}first_norm", given, joined)
    wide = _dense(graph, weights, f"{head}wide", first)
    bent = graph.add("Gelu", [wide], domain=_OURS)
    narrow = _dense(graph, weights, f"{head}narrow", bent)
    return _added(graph, weights, f"{head}last_norm", first, narrow)


def _attention(graph: _Graph, weights: Weights, head: str, given: str) -> str:
    matrix = np.concatenate([weights[f"{head}{part}.weight"].T for part in _PARTS], axis=1)
    bias = np.concatenate([weights[f"{head}{part}.bias"] for part in _PARTS])
    whole, scale = quantised(matrix, 0, _LARGEST)
    name = f"{head}attention"
    value, worth, zero = _small(graph, given)
    return graph.add(
        "QAttention",
        [
            value,
            graph.constant(name, whole),
            graph.constant(f"{name}.bias", bias),
            worth,
            graph.constant(f"{name}.scale", scale.ravel()),
            "",
            zero,
            graph.constant(f"{name}.zero", np.zeros(scale.size, np.int8)),
        ],
        domain=_OURS,
        num_heads=matrix.shape[0] // 32,
    )


def _dense(graph: _Graph, weights: Weights, name: str, given: str) -> str:
    whole, scale = quantised(weights[f"{name}.weight"].T, 0, _LARGEST)
    value, worth, zero = _small(graph, given)
    return graph.add(
        "MatMulIntegerToFloat",
        [
            value,
            graph.constant(name, whole),
            worth,
            graph.constant(f"{name}.scale", scale.ravel()),
            zero,
            graph.constant(f"{name}.zero", np.zeros(scale.size, np.int8)),
            graph.constant(f"{name}.bias", weights[f"{name}.bias"]),
        ],
        domain=_OURS,
    )


def _small(graph: _Graph, given: str) -> tuple[str, str, str]:
    """A result as whole numbers, what one is worth, and which one is nothing."""
    place = len(graph.nodes)
    names = (f"small_{place}", f"worth_{place}", f"zero_{place}")
    graph.add("DynamicQuantizeLinear", [given], out=names)
    return names


def _added(graph: _Graph, weights: Weights, name: str, before: str, after: str) -> str:
    gain = graph.constant(f"{name}.gain", weights[f"{name}.weight"])
    bias = graph.constant(f"{name}.bias", weights[f"{name}.bias"])
    both = graph.add("Add", [before, after])
    return graph.add("LayerNormalization", [both, gain, bias], axis=-1, epsilon=_EPSILON)
