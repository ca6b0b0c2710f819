"""Sentences that read like orders which serve somebody else.

Every word, and every two words in a row, has a weight; the weights were trained on sentences of our
own (`scripts/likeness_sentences.toml`) against the sentences of harmless skills. Nothing of a
skill is stored, only a number for each of 65,536 places to which words are spread. Chinese is left
to the patterns.
"""

import base64
import itertools
import json
import re
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from apexbridge.vetting.patterns import Hit, Setting
from apexbridge.vetting.rulebook import lowered
from apexbridge.vetting.view import View

RULE = "AB075"
DATA = "likeness.json"
PLACES = 1 << 16
"""To how many places words are spread."""

FEWEST = 6
"""Words below which a sentence says too little to be weighed."""
MOST = 60
"""Words of a sentence that are weighed."""
MAX_SENTENCES = 20_000
"""How many sentences of one file are weighed."""
MARGIN = 0.5
"""How much more it takes in a reference; there is more of them, so more by chance."""
NAMED = 5
"""How many words are named as those that weighed most."""

_EMPTY = frozenset(
    {"a", "about", "also", "an", "and", "are", "as", "at", "be", "been", "being", "but", "by",
     "can", "could", "did", "do", "does", "e.g", "etc", "for", "from", "had", "has", "have",
     "he", "her", "here", "his", "how", "i", "i.e", "if", "in", "into", "is", "it", "its",
     "just", "may", "might", "more", "most", "of", "on", "one", "or", "other", "our", "out",
     "over", "per", "s", "she", "should", "so", "some", "such", "t", "than", "that", "the",
     "their", "them", "then", "there", "these", "they", "this", "those", "to", "two", "up",
     "us", "via", "was", "we", "were", "what", "when", "where", "which", "while", "who",
     "will", "with", "would", "you", "your"}
)  # fmt: skip
"""Words that say nothing by themselves; the style of a text shall not count."""
_WORD = re.compile(r"[a-z][a-z'_.-]{0,40}[a-z]")
_NO_SENTENCES = frozenset({"", "|", "#", "<"})
"""How rows of tables, headings and marks begin."""
_END = re.compile(r"(?<=[.!?;])\s+")


@dataclass(frozen=True, slots=True)
class Weights:
    """What was learned."""

    by_place: Sequence[int]
    scale: float
    bias: float
    floor: float


@cache
def weights() -> Weights:
    """The weights that come with the package."""
    text = resources.files("apexbridge.vetting").joinpath(DATA).read_text("utf-8")
    read = json.loads(text)
    return Weights(
        by_place=array("b", base64.b64decode(read["weights"])),
        scale=read["scale"],
        bias=read["bias"],
        floor=read["floor"],
    )


def words_of(sentence: str) -> list[str]:
    """The words of a sentence that say something."""
    return [word for word in _WORD.findall(sentence) if word not in _EMPTY][:MOST]


def features(words: list[str]) -> list[str]:
    """Words, and two in a row, each once."""
    pairs = (f"{one} {other}" for one, other in itertools.pairwise(words))
    return list(dict.fromkeys((*words, *pairs)))


def place_of(feature: str) -> int:
    """Where the weight of a feature lies; the same on every machine."""
    return zlib.crc32(feature.encode("utf-8", "replace")) % PLACES


def sentences(view: View) -> Iterator[tuple[int, list[str]]]:
    """The sentences of a document's prose behind its front, with their lines."""
    in_code = {n for unit in view.units for n in range(unit.first, unit.last + 1)}
    lines = view.lower.split("\n")[view.front_end :]
    for number, line in enumerate(lines, view.front_end + 1):
        if len(line) < 25 or line.lstrip()[:1] in _NO_SENTENCES or number in in_code:
            continue
        for sentence in _END.split(line[:2_000]):
            words = words_of(sentence)
            if len(words) >= FEWEST:
                yield number, words


def likeness(view: View, setting: Setting) -> Iterator[Hit]:
    """The sentences of a document that read like orders for somebody else."""
    if view.place_of(1) not in {"instruction", "reference"}:
        return
    learned = weights()
    for count, (line, words) in enumerate(sentences(view)):
        if count >= MAX_SENTENCES:
            return
        found = features(words)
        parts = [learned.by_place[place_of(feature)] for feature in found]
        score = sum(parts) * learned.scale / len(found) ** 0.5 + learned.bias
        more = MARGIN if view.place_of(line) == "reference" else 0.0
        if score >= learned.floor + more:
            heaviest = sorted(zip(parts, found, strict=True), reverse=True)[:NAMED]
            yield Hit(
                rule=RULE,
                level=lowered("warn", int(setting.is_about_security)),
                line=line,
                matched=", ".join(feature for _, feature in heaviest),
            )
