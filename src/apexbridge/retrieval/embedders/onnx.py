"""ONNX embedder: a model and its tokenizer from a folder.

Dynamic quantization uses one scale for a whole batch, so that a row depends on the texts beside it
(cosines down to 0.99, with or without padding). Such models get one text per call, which on one
thread is no slower; others get batches of similar length. A model may also take packed sequences:
`input_ids` are then those of all texts concatenated, and `starts` the offset of each.
"""

import json
import mmap
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from anyio import to_thread
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from apexbridge.errors import EmbedderUnavailableError
from apexbridge.retrieval.base import Matrix, TextKind
from apexbridge.retrieval.embedders.model_files import (
    embedder_errors,
    find_model,
    fingerprint,
    import_package,
)
from apexbridge.retrieval.embedders.validation import (
    normalized_rows,
    replace_surrogates,
    segment_chinese,
)

_BATCH_SIZE = 16
_MAX_CHARS_PER_TOKEN = 64
"""Longer texts are truncated before tokenization, at this many characters for each token."""
_PACKED_INPUTS = frozenset({"input_ids", "starts"})
_KNOWN_INPUTS = frozenset({"attention_mask", "token_type_ids"}) | _PACKED_INPUTS
_FLOAT_TYPES = frozenset({"tensor(float)", "tensor(float16)", "tensor(double)"})


class EncoderConfig(BaseModel):
    """Encoder options from `embedder.json`, all optional."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    query_prefix: str = ""
    document_prefix: str = ""
    max_query_tokens: int = Field(default=64, ge=4, le=8192)
    max_document_tokens: int = Field(default=96, ge=4, le=8192)
    pooling: Literal["auto", "mean", "cls", "none"] = "auto"


class _TensorInfo(Protocol):
    """Declared input or output of a model."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def shape(self) -> Sequence[int | str | None]: ...


class _Session(Protocol):
    def get_inputs(self) -> Sequence[_TensorInfo]: ...
    def get_outputs(self) -> Sequence[_TensorInfo]: ...
    def run(
        self, names: Sequence[str], feed: Mapping[str, NDArray[np.integer]]
    ) -> Sequence[NDArray[np.floating]]: ...


class _Encoding(Protocol):
    @property
    def ids(self) -> list[int]: ...
    def truncate(self, max_length: int) -> None: ...


class _Tokenizer(Protocol):
    def encode(self, sequence: str, *, add_special_tokens: bool) -> _Encoding: ...
    def post_process(self, encoding: _Encoding) -> _Encoding: ...
    def token_to_id(self, token: str) -> int | None: ...
    def num_special_tokens_to_add(self, is_pair: bool) -> int: ...
    def no_padding(self) -> None: ...
    def no_truncation(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPipeline:
    """Tokenizer, options and vocabulary, independent of the model."""

    tokenizer: _Tokenizer
    recipe: EncoderConfig
    words: Collection[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxEncoder(TextPipeline):
    """Loaded ONNX session with its tokenizer; thread-safe."""

    session: _Session
    inputs: Mapping[str, type[np.integer]]
    output: _TensorInfo
    takes_one: bool

    @property
    def pipeline(self) -> TextPipeline:
        """What another encoder of the same folder shares, without this model's session."""
        return TextPipeline(tokenizer=self.tokenizer, recipe=self.recipe, words=self.words)

    def tokens(self, text: str, kind: TextKind) -> list[int]:
        """Tokenize and truncate a text, with special tokens."""
        recipe, is_query = self.recipe, kind == "query"
        limit = recipe.max_query_tokens if is_query else recipe.max_document_tokens
        prefix = recipe.query_prefix if is_query else recipe.document_prefix
        said = replace_surrogates(prefix + text)[: limit * _MAX_CHARS_PER_TOKEN]
        if self.words is not None:
            said = segment_chinese(said, self.words)
        encoding = self.tokenizer.encode(said, add_special_tokens=False)
        encoding.truncate(max(1, limit - self.tokenizer.num_special_tokens_to_add(False)))
        # A tokenizer without special tokens gives no token for an empty text.
        return self.tokenizer.post_process(encoding).ids or [0]

    def rows(self, texts: Sequence[list[int]]) -> NDArray[np.floating]:
        """Run the model: one vector for each text."""
        if frozenset(self.inputs) == _PACKED_INPUTS:
            return self._in_turn(texts)
        if self.takes_one and len(texts) > 1:
            return np.concatenate([self.rows([text]) for text in texts])
        if set(self.inputs) == {"input_ids"}:  # single texts, without padding
            feed = {"input_ids": np.array(texts, self.inputs["input_ids"])}
            return self._pooled(feed, np.ones((1, len(texts[0])), np.int64))
        longest = max(map(len, texts))
        ids = np.array([text + [0] * (longest - len(text)) for text in texts])
        mask = np.array([[1] * len(text) + [0] * (longest - len(text)) for text in texts])
        every = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        feed = {name: every[name].astype(kind) for name, kind in self.inputs.items()}
        return self._pooled(feed, mask)

    def _in_turn(self, texts: Sequence[list[int]]) -> NDArray[np.floating]:
        starts = np.cumsum([0, *map(len, texts)])
        ids = np.fromiter(chain.from_iterable(texts), np.int64, int(starts[-1]))
        every = {"input_ids": ids, "starts": starts}
        feed = {name: every[name].astype(kind, copy=False) for name, kind in self.inputs.items()}
        return self.session.run([self.output.name], feed)[0].astype(np.float32, copy=False)

    def _pooled(
        self, feed: Mapping[str, NDArray[np.integer]], mask: NDArray[np.int64]
    ) -> NDArray[np.floating]:
        found = self.session.run([self.output.name], feed)[0].astype(np.float32, copy=False)
        if found.ndim != 3:  # pooled by the model
            return found
        if self.recipe.pooling == "cls":
            return found[:, 0]
        return (found * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1)[:, None]


class OnnxEmbedder:
    """Embedder from a folder: `tokenizer.json` and `model_int8.onnx`, `model.onnx` or one `*.onnx`.

    Optional files: `cjk.json`, the Chinese vocabulary, and `embedder.json`.
    """

    def __init__(self, folder: Path, *, threads: int = 1) -> None:
        self._folder = folder
        self._threads = threads
        self._name = f"onnx:{folder.resolve().name}"
        self._id = ""
        self._dimensions = 0
        self._encoder: OnnxEncoder | None = None
        self._loading = threading.Lock()

    @property
    def id(self) -> str:
        """Folder name and a hash of the files; EmbedderUnavailableError if they are unreadable."""
        if not self._id:
            model = find_model(self._folder, name=self._name)
            with embedder_errors(f"{self._folder} cannot be read", self._name):
                beside = ("tokenizer.json", "cjk.json", "embedder.json")
                # Large weights are in external data files, named after the model's.
                files = {*self._folder.glob(f"{model.name}*"), *map(self._folder.joinpath, beside)}
                self._id = f"{self._name}:{fingerprint(files)}"
        return self._id

    @property
    def dimensions(self) -> int:
        """Size of every vector; 0 before the model is loaded."""
        return self._dimensions

    async def embed(self, texts: Sequence[str], *, kind: TextKind) -> Matrix:
        """Embed texts on a worker thread; the first call loads the model."""
        if not texts:
            return np.zeros((0, self._dimensions), np.float32)
        encoder, tokens = await to_thread.run_sync(self._prepare, texts, kind)
        order = sorted(range(len(texts)), key=lambda at: len(tokens[at]))
        found: dict[int, Matrix] = {}
        # A thread call for each batch, so that a cancellation takes effect between them.
        for start in range(0, len(order), _BATCH_SIZE):
            part = order[start : start + _BATCH_SIZE]
            rows = await to_thread.run_sync(self._rows, encoder, [tokens[at] for at in part])
            found.update(zip(part, rows, strict=True))
        return np.stack([found[at] for at in range(len(texts))])

    async def close(self) -> None:
        """Release the model."""
        self._encoder = None

    def _prepare(self, texts: Sequence[str], kind: TextKind) -> tuple[OnnxEncoder, list[list[int]]]:
        with self._loading:
            if self._encoder is None:
                self._encoder = load_encoder(self._folder, self._threads, self._name)
                size = self._encoder.output.shape[-1]
                self._dimensions = self._dimensions or (size if isinstance(size, int) else 0)
            encoder, _ = self._encoder, self.id
        with embedder_errors("the tokenizer failed", self._name):
            return encoder, [encoder.tokens(text, kind) for text in texts]

    def _rows(self, encoder: OnnxEncoder, texts: Sequence[list[int]]) -> Matrix:
        with embedder_errors("the model failed", self._name):
            rows = encoder.rows(texts)
        checked = normalized_rows(rows, count=len(texts), dimensions=self._dimensions, name=self.id)
        self._dimensions = checked.shape[1]
        return checked


def load_encoder(
    folder: Path, threads: int, name: str, *, model: str = "", beside: TextPipeline | None = None
) -> OnnxEncoder:
    """Load a model and its tokenizer from a folder.

    The tokenizer of another encoder of the same folder (`beside`) is shared. A missing or broken
    file or package raises EmbedderUnavailableError.
    """
    path = folder / model if model else find_model(folder, name=name)
    runtime = import_package("onnxruntime", install="onnxruntime", name=name)
    reading = beside or _load_text_pipeline(folder, name)
    with embedder_errors(f"{path} cannot be loaded", name):
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 4  # errors are raised; onnxruntime must not log to stderr
        session: _Session = runtime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        inputs = _inputs(session)
        return OnnxEncoder(
            session=session,
            tokenizer=reading.tokenizer,
            recipe=reading.recipe,
            words=reading.words,
            inputs=inputs,
            output=_output(session, reading.recipe),
            takes_one=_is_single_text(path, inputs),
        )


def _load_text_pipeline(folder: Path, name: str) -> TextPipeline:
    if not (folder / "tokenizer.json").is_file():
        raise EmbedderUnavailableError(f"there is no tokenizer.json in {folder}", name=name)
    tokenizers = import_package("tokenizers", install="tokenizers", name=name)
    with embedder_errors(f"{folder / 'tokenizer.json'} cannot be read", name):
        tokenizer: _Tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        tokenizer.no_padding()
        tokenizer.no_truncation()
    with embedder_errors(f"{folder / 'embedder.json'} makes no sense", name):
        config = folder / "embedder.json"
        written = config.read_bytes() if config.is_file() else b"{}"
        recipe = EncoderConfig.model_validate_json(written)
    with embedder_errors(f"{folder / 'cjk.json'} makes no sense", name):
        words = _read_vocabulary(folder / "cjk.json")
    return TextPipeline(tokenizer=tokenizer, recipe=recipe, words=words)


def _read_vocabulary(path: Path) -> Collection[str] | None:
    if not path.is_file():
        return None
    listed: object = json.loads(path.read_bytes())
    if not isinstance(listed, list | dict):
        raise TypeError("it is neither a list nor a map of words")
    return frozenset(map(str, listed))  # pyright: ignore[reportUnknownArgumentType]


def _inputs(session: _Session) -> Mapping[str, type[np.integer]]:
    slots = session.get_inputs()
    strange = [slot.name for slot in slots if slot.name not in _KNOWN_INPUTS]
    if strange:
        raise ValueError(f"it asks for {', '.join(strange)}")
    return {slot.name: np.int32 if "int32" in slot.type else np.int64 for slot in slots}


def _output(session: _Session, recipe: EncoderConfig) -> _TensorInfo:
    floats = [slot for slot in session.get_outputs() if slot.type in _FLOAT_TYPES]
    # A pooler's output was not trained as a sentence embedding.
    flat = [slot for slot in floats if len(slot.shape) == 2 and slot.name != "pooler_output"]
    deep = [slot for slot in floats if len(slot.shape) == 3]
    fitting = {"auto": flat + deep, "none": flat, "mean": deep, "cls": deep}[recipe.pooling]
    if not fitting:
        raise ValueError(f"it has no output for the pooling '{recipe.pooling}'")
    return fitting[0]


def _is_single_text(model: Path, inputs: Collection[str]) -> bool:
    if frozenset(inputs) == _PACKED_INPUTS:
        return False
    if "attention_mask" not in inputs:
        return True
    with model.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        return view.find(b"DynamicQuantize") >= 0
