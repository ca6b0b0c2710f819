"""Training runs, one function a stage, and the files of weights between them."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from training.bi_encoder import Encoders, validate
from training.cross_encoder import Teacher as CrossTeacher
from training.dataset import Dataset, Numbers, read_lesson
from training.encoder import Encoder, State, build, layers_in, read_base, thinned
from training.evaluation import judge
from training.export import WORDS, restored
from training.fine_tuning import BatchSampler, LossWeights, learn_mixture
from training.initialization import first_rows, swaps_of
from training.mixture_file import Mixture, PairSampler
from training.objectives import (
    Schedule,
    Teacher,
    Trainer,
    hand_down,
    hand_down_documents,
    learn_answers,
    learn_chinese,
    vectors_of,
)
from training.token_table import DOCUMENT_TOKENS

REQUESTS_MODEL, DOCUMENTS_MODEL = "requests_int8.onnx", "documents_int8.onnx"


class CachedTeacher:
    """Cache of a teacher's vectors for all training texts."""

    def __init__(self, school: Trainer, numbers: Numbers) -> None:
        self._places = np.full(len(school.lesson.texts), -1, np.int64)
        self._places[numbers] = np.arange(len(numbers))
        self._vectors = vectors_of(school, numbers, DOCUMENT_TOKENS)

    def __call__(self, numbers: Numbers) -> Tensor:
        """Look up vectors by text number."""
        return self._vectors[torch.as_tensor(self._places[numbers]).to(self._vectors.device)]


def chinese(given: argparse.Namespace) -> None:
    """Train Chinese by self-distillation from the English base model."""
    device = _device(given.seed)
    lesson = _read(given)
    begun = _begun(given)
    teacher = _base_teacher(given, lesson, device)
    school = Trainer(build(begun), lesson, device, swaps_of(given.tokenizer / "start.npz"))
    say(f"before: {judge(school)}")
    learn_chinese(school, teacher, Schedule(steps=given.steps, batch=given.batch, rate=given.rate))
    say(f"chinese: {judge(school)}")
    write_weights(school.encoder, given.out)


def answers(given: argparse.Namespace) -> None:
    """Train retrieval contrastively, regularized towards the base model."""
    device = _device(given.seed)
    lesson = _read(given)
    teacher = _base_teacher(given, lesson, device)
    learner = build(read_weights(given.whole))
    swaps = swaps_of(given.tokenizer / "start.npz")
    school = Trainer(learner, lesson, device, swaps, seed=given.seed)
    learn_answers(school, teacher, Schedule(steps=given.steps, batch=given.batch, rate=given.rate))
    say(f"answers: {judge(school)}")
    write_weights(school.encoder, given.out)


def mean(given: argparse.Namespace) -> None:
    """Average the weights of runs with the same initialization (model soup)."""
    every = [read_weights(path) for path in given.weights]
    middle = {name: sum(one[name] for one in every) / len(every) for name in every[0]}
    write_weights(build({name: torch.as_tensor(part) for name, part in middle.items()}), given.out)


def thin(given: argparse.Namespace) -> None:
    """Distil into fewer layers, for queries and for documents; word embeddings are shared."""
    device = _device(given.seed)
    lesson = _read(given)
    whole = read_weights(given.whole)
    numbers = np.unique(np.concatenate((lesson.pairs[:, :2].ravel(), lesson.parallel.ravel())))
    numbers = np.union1d(numbers, np.concatenate(lesson.none))
    teaching = Trainer(build(whole), lesson, device)
    say(f"whole, {layers_in(whole)} layers: {judge(teaching)}")
    elder = Teacher(teaching.encoder, CachedTeacher(teaching, numbers))
    begun = [thinned(whole, tuple(layers)) for layers in (given.layers, given.document_layers)]
    if given.documents_from is not None:
        begun[1] = read_weights(given.documents_from)
    requests, documents = (Trainer(build(one), lesson, device, seed=given.seed) for one in begun)
    for school in (requests, documents):
        school.encoder.words.weight.requires_grad_(False)
    plan = Schedule(steps=given.steps, batch=given.batch, rate=given.rate)
    if given.documents_only:
        hand_down_documents(documents, elder, plan)
    else:
        hand_down(requests, documents, elder, plan)
        write_weights(requests.encoder, given.out)
        say(f"requests thin, documents whole: {judge(requests, teaching)}")
        say(f"both thin: {judge(requests, documents)}")
    write_weights(documents.encoder, given.documents_out)
    say(f"requests whole, documents thin: {judge(teaching, documents)}")


def fine_tune(given: argparse.Namespace) -> None:
    """Fine-tune the shipped encoders on the mixture; documents need new vectors afterwards."""
    device = _device(given.seed)
    mixture = Mixture.read(given.mixture)
    say(f"{len(mixture.texts.starts) - 1:,} texts, {len(mixture.pairs):,} pairs")
    names = (REQUESTS_MODEL, DOCUMENTS_MODEL)
    encoders = Encoders(*(build(read_weights(given.shipped / name)) for name in names)).to(device)
    say(f"before: {_shown(validate(encoders, mixture))}")
    teacher = CrossTeacher(encoders, mixture, read_weights(given.shipped / REQUESTS_MODEL))
    pairs = PairSampler(mixture.pairs, mixture.variants, given.seed)
    teacher.learn(pairs, Schedule(steps=given.teacher_steps, batch=given.teacher_batch, rate=1e-4))
    lists = teacher.lists()
    del teacher
    say(f"{len(lists.pairs):,} lists")
    plan = Schedule(steps=given.steps, batch=given.batch, rate=given.rate)
    sampler = BatchSampler(mixture, lists, given.seed)
    weights = LossWeights(
        contrast=given.contrast, pull=given.pull, document_pull=given.document_pull
    )
    average = learn_mixture(encoders, mixture, sampler, plan, given.document_rate, weights)
    say(f"after: {_shown(validate(average, mixture))}")
    write_weights(average.queries, given.out_queries)
    write_weights(average.documents, given.out_documents)


def _shown(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in figures.items())


def read_weights(path: Path) -> State:
    """Load our checkpoints, the bundled weights, or a base model in ONNX."""
    if path.suffix == ".onnx":
        if (path.parent / WORDS).is_file():
            return {name: torch.as_tensor(part) for name, part in restored(path).items()}
        return read_base(path)
    with np.load(path) as kept:
        return {name: torch.as_tensor(kept[name].astype(np.float32)) for name in kept.files}


def write_weights(encoder: Encoder, path: Path) -> None:
    """Save in half precision, the precision of training."""
    path.parent.mkdir(parents=True, exist_ok=True)
    state = encoder.state_dict()
    exact = {"words.weight"}  # shared by the encoders, so that it must be bit-identical
    np.savez(
        path,
        **{
            name: part.cpu().numpy().astype(np.float32 if name in exact else np.float16)
            for name, part in state.items()
        },
    )


def say(text: str) -> None:
    """Print progress, unbuffered."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _begun(given: argparse.Namespace) -> State:
    begun = read_weights(given.base)
    table = first_rows(begun["words.weight"].numpy(), given.tokenizer / "start.npz")
    return begun | {"words.weight": torch.as_tensor(table)}


def _base_teacher(
    given: argparse.Namespace, lesson: Dataset, device: torch.device
) -> CachedTeacher:
    english = np.unique(np.concatenate((lesson.parallel[:, 0], lesson.alone)))
    return CachedTeacher(Trainer(build(_begun(given)), lesson, device), english)


def _device(seed: int) -> torch.device:
    torch.manual_seed(seed)
    torch.set_float32_matmul_precision("high")
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _read(given: argparse.Namespace) -> Dataset:
    lesson = read_lesson(given.data, given.tokenizer, processes=given.processes)
    say(
        f"{len(lesson.texts):,} texts, {len(lesson.pairs):,} pairs, "
        f"{len(lesson.parallel):,} translations"
    )
    return lesson
