"""Products, formats and methods, and implicit requests that do not name them."""

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from training.held_out import spoken
from training.jsonl import Row, read_rows

_LONGEST_NAME = 3
"""Longest name in words."""
_BEGINNING = 160
"""A skill is about what the first characters of its description name."""
_SKILLS = 4
"""Skills that a request for a thing is paired with."""
_WORD = re.compile(r"[A-Za-z0-9][\w.+#-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A thing: names, descriptions, and requests that name neither."""

    names: tuple[str, ...]
    what: Mapping[str, str]
    requests: tuple[str, ...]

    def texts(self) -> Iterator[str]:
        """Yield its descriptions, under a name in the same language if there is one."""
        for language, what in self.what.items():
            fitting = [name for name in self.names if name.isascii() == (language == "en")]
            yield f"{(fitting or self.names)[0]}. {what}"


def read_things(folder: Path) -> list[Topic]:
    """Read `things-*.jsonl`; duplicates are merged."""
    found = dict[str, Topic]()
    for path in sorted(folder.glob("things-*.jsonl")):
        for row in read_rows(path):
            thing = Topic(
                names=tuple(row["names"]),
                what={"en": row["what_en"], "zh": row["what_zh"]},
                requests=(*row["en"], *row["zh"]),
            )
            found.setdefault(spoken(thing.names[0]), thing)
    return list(found.values())


def skills_about(
    things: Sequence[Topic], skills: Iterable[Row], chance: random.Random
) -> list[list[Row]]:
    """Sample a few skills about each thing."""
    numbers = defaultdict[str, list[int]](list)
    for number, thing in enumerate(things):
        for name in thing.names:
            numbers[spoken(name) if name.isascii() else name].append(number)
    foreign = [name for name in numbers if not name.isascii()]
    found: list[list[Row]] = [[] for _ in things]
    for skill in skills:
        for number in {n for name in _named(skill, foreign) for n in numbers.get(name, ())}:
            found[number].append(skill)
    return [chance.sample(rows, min(len(rows), _SKILLS)) for rows in found]


def _named(skill: Row, foreign: Sequence[str]) -> Iterator[str]:
    """Yield candidate names: all word n-grams of the skill's name, capitalized ones of its text."""
    text = skill["description"][:_BEGINNING]
    title = spoken(skill["name"]).split()
    yield from _runs(title)
    for run in _runs(_WORD.findall(text)):
        if run != run.lower():
            yield spoken(run)
    if not text.isascii():
        yield from (name for name in foreign if name in text)


def _runs(words: Sequence[str]) -> Iterator[str]:
    for start in range(len(words)):
        for end in range(start + 1, min(start + _LONGEST_NAME, len(words)) + 1):
            yield " ".join(words[start:end]).rstrip(".-")
