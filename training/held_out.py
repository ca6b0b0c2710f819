"""Train/test separation: exclude the evaluation library and its near-duplicates from training.

A text is excluded if its skill has the name of a held-out skill, or if its description is one of
theirs or a near-duplicate. Translations propagate this: an excluded text excludes its translation,
which excludes its own near-duplicates, until a fixed point is reached.
"""

import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

_NEAR = 0.6
"""Share of its shingles that a near-duplicate has in common with one held-out text."""
_WORDS, _CHARACTERS = 4, 6
_LEAST = 5
"""With fewer common shingles, two texts just use the same phrase."""
_VALIDATED = 10
_CHINESE = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_SEPARATORS = re.compile(r"[-_:./\s]+")


def spoken(name: str) -> str:
    """Split a name into words.

    >>> spoken("PDF-form_filler")
    'pdf form filler'
    """
    return _SEPARATORS.sub(" ", name.lower()).strip()


def is_validation(key: str) -> bool:
    """Say whether a skill or a group of our own requests is kept back from training."""
    return zlib.crc32(key.encode()) % _VALIDATED == 0


def letters(text: str) -> str:
    """Keep only the letters of a text."""
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", text).lower())


def shingles(text: str) -> set[int]:
    """Hash the word shingles of a text; character shingles for Chinese."""
    folded = unicodedata.normalize("NFKC", text).lower()
    if _CHINESE.search(folded):
        run = re.sub(r"[\W_]+", "", folded)
        return {hash(run[at : at + _CHARACTERS]) for at in range(len(run) - _CHARACTERS + 1)}
    words = re.findall(r"\w+", folded)
    return {hash(tuple(words[at : at + _WORDS])) for at in range(len(words) - _WORDS + 1)}


@dataclass(slots=True)
class HeldOut:
    """Held-out names and descriptions, with their near-duplicates."""

    names: set[str] = field(default_factory=set[str])
    _texts: set[str] = field(default_factory=set[str])
    _owners: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    _sizes: list[int] = field(default_factory=list[int])

    def add(self, name: str, *texts: str) -> None:
        """Add a name and descriptions."""
        self.names.add(spoken(name))
        for text in texts:
            plain = letters(text)
            if not plain or plain in self._texts:
                continue
            self._texts.add(plain)
            found = shingles(text)
            for shingle in found:
                self._owners.setdefault(shingle, []).append(len(self._sizes))
            self._sizes.append(len(found))

    def covers(self, name: str, *texts: str) -> bool:
        """Say whether a skill with this name or one of these texts is held out."""
        return (bool(name) and spoken(name) in self.names) or any(map(self.covers_text, texts))

    def covers_text(self, text: str) -> bool:
        """Say whether a text is a held-out description, a part of one, or a near-duplicate."""
        plain = letters(text)
        return bool(plain) and (plain in self._texts or self._is_near(shingles(text)))

    def _is_near(self, found: set[int]) -> bool:
        if len(found) < _LEAST:
            return False
        shared = Counter(owner for shingle in found for owner in self._owners.get(shingle, ()))
        return any(
            count >= _LEAST and count >= _NEAR * min(len(found), self._sizes[owner])
            for owner, count in shared.items()
        )


@dataclass(frozen=True, slots=True)
class Described:
    """Name and descriptions of a skill, in one language or both."""

    name: str
    texts: tuple[str, ...]


def close_over(held_out: HeldOut, known: Iterable[Described]) -> Iterator[int]:
    """Extend to translations and near-duplicates; yield the number found in each round."""
    rest = list(known)
    while rest:
        left, found = list[Described](), 0
        for skill in rest:
            if held_out.covers(skill.name, *skill.texts):
                held_out.add(skill.name, *skill.texts)
                found += 1
            else:
                left.append(skill)
        rest = left
        yield found
        if not found:
            return
