"""The courses: Chinese from the base, answers after that, the mean of some, and a thinner one."""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from training.beginning import first_rows, swaps_of
from training.encoder import Encoder, State, build, layers_in, read_base, thinned
from training.export import WORDS, restored
from training.judging import judge
from training.lesson import Lesson, Numbers, read_lesson
from training.stages import (
    Elder,
    Plan,
    School,
    hand_down,
    hand_down_documents,
    learn_answers,
    learn_chinese,
    vectors_of,
)
from training.texts import DOCUMENT_TOKENS


class Remembered:
    """A teacher's vectors of all texts that are learnt from, computed once."""

    def __init__(self, school: School, numbers: Numbers) -> None:
        self._places = np.full(len(school.lesson.texts), -1, np.int64)
        self._places[numbers] = np.arange(len(numbers))
        self._vectors = vectors_of(school, numbers, DOCUMENT_TOKENS)

    def __call__(self, numbers: Numbers) -> Tensor:
        """Vectors by the texts' numbers."""
        return self._vectors[torch.as_tensor(self._places[numbers]).to(self._vectors.device)]


def chinese(given: argparse.Namespace) -> None:
    """The base, with its new words, learns Chinese from itself."""
    device = _device(given.seed)
    lesson = _read(given)
    begun = _begun(given)
    teacher = _base_teacher(given, lesson, device)
    school = School(build(begun), lesson, device, swaps_of(given.tokenizer / "start.npz"))
    say(f"before: {judge(school)}")
    learn_chinese(school, teacher, Plan(steps=given.steps, batch=given.batch, rate=given.rate))
    say(f"chinese: {judge(school)}")
    write_weights(school.encoder, given.out)


def answers(given: argparse.Namespace) -> None:
    """What knows Chinese learns what answers what, and stays near the base meanwhile."""
    device = _device(given.seed)
    lesson = _read(given)
    teacher = _base_teacher(given, lesson, device)
    learner = build(read_weights(given.whole))
    swaps = swaps_of(given.tokenizer / "start.npz")
    school = School(learner, lesson, device, swaps, seed=given.seed)
    learn_answers(school, teacher, Plan(steps=given.steps, batch=given.batch, rate=given.rate))
    say(f"answers: {judge(school)}")
    write_weights(school.encoder, given.out)


def mean(given: argparse.Namespace) -> None:
    """The mean of weights that began at the same ones, which is steadier than each."""
    every = [read_weights(path) for path in given.weights]
    middle = {name: sum(one[name] for one in every) / len(every) for name in every[0]}
    write_weights(build({name: torch.as_tensor(part) for name, part in middle.items()}), given.out)


def thin(given: argparse.Namespace) -> None:
    """Some layers of the whole encoder for requests, some for documents; all share its words."""
    device = _device(given.seed)
    lesson = _read(given)
    whole = read_weights(given.whole)
    numbers = np.unique(np.concatenate((lesson.pairs[:, :2].ravel(), lesson.parallel.ravel())))
    numbers = np.union1d(numbers, np.concatenate(lesson.none))
    teaching = School(build(whole), lesson, device)
    say(f"whole, {layers_in(whole)} layers: {judge(teaching)}")
    elder = Elder(teaching.encoder, Remembered(teaching, numbers))
    begun = [thinned(whole, tuple(layers)) for layers in (given.layers, given.document_layers)]
    if given.documents_from is not None:
        begun[1] = read_weights(given.documents_from)
    requests, documents = (School(build(one), lesson, device, seed=given.seed) for one in begun)
    for school in (requests, documents):
        school.encoder.words.weight.requires_grad_(False)
    plan = Plan(steps=given.steps, batch=given.batch, rate=given.rate)
    if given.documents_only:
        hand_down_documents(documents, elder, plan)
    else:
        hand_down(requests, documents, elder, plan)
        write_weights(requests.encoder, given.out)
        say(f"requests thin, documents whole: {judge(requests, teaching)}")
        say(f"both thin: {judge(requests, documents)}")
    write_weights(documents.encoder, given.documents_out)
    say(f"requests whole, documents thin: {judge(teaching, documents)}")


def read_weights(path: Path) -> State:
    """Weights we wrote, those that ship, or those of a base in ONNX."""
    if path.suffix == ".onnx":
        if (path.parent / WORDS).is_file():
            return {name: torch.as_tensor(part) for name, part in restored(path).items()}
        return read_base(path)
    with np.load(path) as kept:
        return {name: torch.as_tensor(kept[name].astype(np.float32)) for name in kept.files}


def write_weights(encoder: Encoder, path: Path) -> None:
    """Half precision is as exact as what they were trained in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    state = encoder.state_dict()
    exact = {"words.weight"}  # shared, so that it must come out the same in each
    np.savez(
        path,
        **{
            name: part.cpu().numpy().astype(np.float32 if name in exact else np.float16)
            for name, part in state.items()
        },
    )


def say(text: str) -> None:
    """Tell how it goes, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _begun(given: argparse.Namespace) -> State:
    begun = read_weights(given.base)
    table = first_rows(begun["words.weight"].numpy(), given.tokenizer / "start.npz")
    return begun | {"words.weight": torch.as_tensor(table)}


def _base_teacher(given: argparse.Namespace, lesson: Lesson, device: torch.device) -> Remembered:
    english = np.unique(np.concatenate((lesson.parallel[:, 0], lesson.alone)))
    return Remembered(School(build(_begun(given)), lesson, device), english)


def _device(seed: int) -> torch.device:
    torch.manual_seed(seed)
    torch.set_float32_matmul_precision("high")
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _read(given: argparse.Namespace) -> Lesson:
    lesson = read_lesson(given.data, given.tokenizer, processes=given.processes)
    say(
        f"{len(lesson.texts):,} texts, {len(lesson.pairs):,} pairs, "
        f"{len(lesson.parallel):,} translations"
    )
    return lesson
