"""Train the weights of rule AB075 on sentences of our own against those of harmless skills.

The threshold is chosen so that a small share of harmless skills, left out of training in turn,
holds a sentence above it.

    python -m scripts.train_likeness --good FOLDER … [--out FILE]
"""

import argparse
import base64
import json
import random
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from apexbridge.vetting import likeness
from apexbridge.vetting.material import SKILL_MD, File
from apexbridge.vetting.view import view_of

SENTENCES = Path(__file__).with_name("likeness_sentences.toml")
OUT = Path(likeness.__file__).with_name(likeness.DATA)
FOLDS = 5
BLAMED = 0.012
"""The share of harmless skills that may hold a sentence above the threshold."""
OWN_SHARE = 0.05
"""What our own sentences weigh in all, against those of the harmless skills."""
PULL = 0.05
"""How strongly weights are pulled to nothing; larger is stronger."""
ROUNDS = 200

Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Table:
    """Sentences as places of words, one behind the other, and where each begins."""

    places: NDArray[np.int64]
    rows: NDArray[np.int64]
    values: Numbers
    count: int

    def scores(self, by_place: Numbers) -> Numbers:
        """What each sentence weighs."""
        weighed = by_place[self.places] * self.values
        return np.bincount(self.rows, weighed, minlength=self.count).astype(np.float64)

    def back(self, by_row: Numbers) -> Numbers:
        """What sentences say about each place."""
        told = by_row[self.rows] * self.values
        return np.bincount(self.places, told, minlength=likeness.PLACES).astype(np.float64)


def table(sentences: Sequence[list[str]]) -> Table:
    """Spread sentences to places."""
    found = [[likeness.place_of(f) for f in likeness.features(words)] for words in sentences]
    lengths = np.array([len(row) for row in found], dtype=np.int64)
    rows = np.repeat(np.arange(len(found)), lengths)
    places = np.array([place for row in found for place in row], dtype=np.int64)
    return Table(places, rows, 1.0 / np.sqrt(lengths)[rows], len(found))


def own_sentences(seed: int = 7) -> Iterator[tuple[str, str]]:
    """Our sentences with their slots filled, each with the one it was made of."""
    read = tomllib.loads(SENTENCES.read_text("utf-8"))
    slots: Mapping[str, list[str]] = read["slots"]
    chance = random.Random(seed)  # noqa: S311 - the same sentences every time
    for written in (text for kind in read["sentences"].values() for text in kind):
        wanted = min(60, 12 * written.count("{")) or 1
        made = set[str]()
        for _ in range(2 * wanted):
            filled = re.sub(r"\{(\w+)\}", lambda slot: chance.choice(slots[slot[1]]), written)
            made.add(re.sub(r"\s+([.;,])", r"\1", re.sub(r"\s+", " ", filled)).strip().lower())
        for sentence in sorted(made)[:wanted]:
            yield written, sentence


def good_skills(folders: Sequence[Path]) -> list[list[list[str]]]:
    """The sentences of harmless skills, one list a skill."""
    skills = list[list[list[str]]]()
    for path in sorted(path for folder in folders for path in folder.rglob("*.md")):
        data = path.read_bytes()
        view = view_of(File(path=PurePosixPath(SKILL_MD), data=data), data)
        if view is not None:
            skills.append([words for _, words in likeness.sentences(view)])
    return skills


def trained(own: Table, own_weights: Numbers, good: Table) -> tuple[Numbers, float]:
    """Logistic regression by gradients with a memory (Adam); always the same."""
    by_place, bias = np.zeros(likeness.PLACES), -3.0
    share = own_weights / own_weights.sum() * OWN_SHARE
    rest = np.full(good.count, (1 - OWN_SHARE) / max(1, good.count))
    first, second = np.zeros(likeness.PLACES + 1), np.zeros(likeness.PLACES + 1)
    for turn in range(1, ROUNDS + 1):
        wrong_own = -share / (1 + np.exp(own.scores(by_place) + bias))
        wrong_good = rest / (1 + np.exp(-good.scores(by_place) - bias))
        slope = own.back(wrong_own) + good.back(wrong_good) + PULL / good.count * by_place
        whole = np.append(slope, wrong_own.sum() + wrong_good.sum())
        first = 0.9 * first + 0.1 * whole
        second = 0.999 * second + 0.001 * whole**2
        step = first / (1 - 0.9**turn) / (np.sqrt(second / (1 - 0.999**turn)) + 1e-12)
        rate = 0.3 * (1 - turn / (ROUNDS + 1))
        by_place, bias = by_place - rate * step[:-1], float(bias - rate * step[-1])
    return by_place, bias


def highest(skills: Sequence[Sequence[list[str]]], by_place: Numbers, bias: float) -> Numbers:
    """The highest score in each skill."""
    flat = [words for skill in skills for words in skill]
    scores = table(flat).scores(by_place) + bias
    owner = np.repeat(np.arange(len(skills)), [len(skill) for skill in skills])
    best = np.full(len(skills), -np.inf)
    np.maximum.at(best, owner, scores)
    return best


def main() -> None:
    """Train, choose a threshold on skills left out, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--good", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    made = list(own_sentences())
    kinds = [written for written, _ in made]
    per_kind = {kind: kinds.count(kind) for kind in set(kinds)}
    own = table([likeness.words_of(sentence) for _, sentence in made])
    own_weights = np.array([per_kind[kind] ** -0.5 for kind in kinds])
    skills = good_skills(arguments.good)
    random.Random(0).shuffle(skills)  # noqa: S311 - the same folds every time
    left_out = list[Numbers]()
    for fold in range(FOLDS):
        kept = [words for skill in _without(skills, fold) for words in skill]
        by_place, bias = trained(own, own_weights, table(kept))
        left_out.append(highest(skills[fold::FOLDS], by_place, bias))
    best = np.concatenate(left_out)
    by_place, bias = trained(own, own_weights, table([w for skill in skills for w in skill]))
    scale = float(np.abs(by_place).max()) / 127
    floor = float(np.quantile(best, 1 - BLAMED))
    kept = np.round(by_place / scale).astype(np.int8).tobytes()
    whole = {
        "scale": scale,
        "bias": bias,
        "floor": floor,
        "weights": base64.b64encode(kept).decode(),
    }
    arguments.out.write_text(json.dumps(whole, indent=1) + "\n", "utf-8")
    print(f"{len(made)} own sentences, {len(skills)} harmless skills; floor {floor:.3f}")


def _without(skills: Sequence[list[list[str]]], fold: int) -> list[list[list[str]]]:
    return [skill for number, skill in enumerate(skills) if number % FOLDS != fold]


if __name__ == "__main__":
    main()
