"""Products, formats and methods, and how people ask for them without their names."""

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from training.files import Row, read_rows
from training.held_out import spoken

_LONGEST_NAME = 3
"""Words of a name that are looked for."""
_BEGINNING = 160
"""A skill is about what the beginning of its description names."""
_SKILLS = 4
"""Skills that a request for a thing is paired with."""
_WORD = re.compile(r"[A-Za-z0-9][\w.+#-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Thing:
    """What it is called, what it is, and requests that say neither name."""

    names: tuple[str, ...]
    what: Mapping[str, str]
    requests: tuple[str, ...]

    def texts(self) -> Iterator[str]:
        """What it is, under a name of the same language where it has one."""
        for language, what in self.what.items():
            fitting = [name for name in self.names if name.isascii() == (language == "en")]
            yield f"{(fitting or self.names)[0]}. {what}"


def read_things(folder: Path) -> list[Thing]:
    """From the lines of `things-*.jsonl`; the same thing twice is one."""
    found = dict[str, Thing]()
    for path in sorted(folder.glob("things-*.jsonl")):
        for row in read_rows(path):
            thing = Thing(
                names=tuple(row["names"]),
                what={"en": row["what_en"], "zh": row["what_zh"]},
                requests=(*row["en"], *row["zh"]),
            )
            found.setdefault(spoken(thing.names[0]), thing)
    return list(found.values())


def skills_about(
    things: Sequence[Thing], skills: Iterable[Row], chance: random.Random
) -> list[list[Row]]:
    """For each thing a few of the skills that are about it, by chance."""
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
    """All runs of words that could be a name: any in the skill's own, capital ones in its text."""
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
