"""Tiny ONNX encoder with random vectors and a tokenizer, for tests."""

import json
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

WORDS = ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "read", "pdf", "file", "mail", "读取", "文件", "文")
SIZE = 16
Shape = Literal["deep", "flat", "quantised", "both", "endless", "nothing"]


def table() -> NDArray[np.float32]:
    """The vector of each word; the last ones are far larger, as outliers in real models are."""
    rows = np.random.default_rng(7).normal(size=(len(WORDS), SIZE)).astype(np.float32)
    rows[7:] *= 50
    return rows


def write_tiny(
    folder: Path, shape: Shape = "deep", *, name: str = "model.onnx", asks: tuple[str, ...] = ()
) -> Path:
    """Write a model whose output has the shape, and all that belongs to it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(_model(shape, asks).SerializeToString())
    tokenizer = Tokenizer(
        models.WordPiece({word: at for at, word in enumerate(WORDS)}, unk_token="[UNK]")  # noqa: S106
    )
    tokenizer.normalizer = normalizers.BertNormalizer(handle_chinese_chars=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair=None, special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    limits = json.dumps({"model_max_length": 64, "pad_token": "[PAD]"})
    (folder / "tokenizer_config.json").write_text(limits, encoding="utf-8")
    return folder


def _model(shape: Shape, asks: tuple[str, ...]) -> onnx.ModelProto:
    constants = {"table": table(), "axis": np.array([1]), "zero": np.float32(0)}
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["looked_up"])]
    outputs = {"last_hidden_state": ["batch", "length", SIZE], "embedding": ["batch", SIZE]}
    if shape == "quantised":
        weights = np.random.default_rng(8).integers(-99, 99, (SIZE, SIZE), dtype=np.int8)
        constants |= {"weights": weights, "weights_zero": np.int8(0)}
        nodes += [
            helper.make_node("DynamicQuantizeLinear", ["looked_up"], ["q", "scale", "q_zero"]),
            helper.make_node(
                "MatMulInteger", ["q", "weights", "q_zero", "weights_zero"], ["product"]
            ),
            helper.make_node("Cast", ["product"], ["cast"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["cast", "scale"], ["last_hidden_state"]),
        ]
    else:
        nodes.append(helper.make_node("Identity", ["looked_up"], ["last_hidden_state"]))
    summed = helper.make_node("ReduceSum", ["last_hidden_state", "axis"], ["embedding"], keepdims=0)
    match shape:
        case "flat" | "both":
            nodes.append(summed)
        case "endless" | "nothing":
            summed.output[0] = "sum"
            last = "Div" if shape == "endless" else "Mul"
            nodes += [summed, helper.make_node(last, ["sum", "zero"], ["embedding"])]
        case _:
            pass
    kept = {
        "deep": ["last_hidden_state"],
        "quantised": ["last_hidden_state"],
        "both": ["last_hidden_state", "embedding"],
    }.get(shape, ["embedding"])
    graph = helper.make_graph(
        nodes,
        "tiny",
        [
            helper.make_tensor_value_info(each, TensorProto.INT64, ["batch", "length"])
            for each in ("input_ids", "attention_mask", *asks)
        ],
        [helper.make_tensor_value_info(each, TensorProto.FLOAT, outputs[each]) for each in kept],
        [numpy_helper.from_array(np.asarray(value), each) for each, value in constants.items()],
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
