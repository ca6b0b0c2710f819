"""Mixture of the fine-tuning stage: requests, documents and messages as token ids in one file.

It has what `prepare` wrote, and requests of our own that are too few for the earlier stages: for
everyday skills, for published ones in four styles, and for several tools at once. Requests come
with noisy variants. Every tenth skill and group of tools is kept back for validation. The device
that trains needs this file and the shipped weights alone.
"""

import json
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apexbridge.retrieval.skill_document import SkillText, main_text
from training.corpus import document, language_of
from training.held_out import HeldOut, is_validation, letters
from training.jsonl import Row, read_rows
from training.long_requests import Background
from training.mixture_file import KINDS
from training.pasted_logs import ask_about, read_errors, with_log
from training.token_table import TokenTable
from training.typos import Typos

TOKENS = 128
"""Rows of the position table: long requests need all of them."""
NO_TEXT = -1
VARIANTS = 2
"""Noisy variants of a request."""
_NOISY = frozenset(("everyday", "written", "styles", "tools", "thing", "framed"))
_TYPOS, _LONG = 0.6, 0.25
"""Shares of typing errors and of background sentences among the variants; the rest are logs."""
_LONG_CHARS = 90
"""A longer request gets no background: it would be cut off."""
_KEPT_BACK = 10
_SERVED = frozenset({"fun", "advice"})
"""Kinds of small talk that some skill may serve: a joke, what to wear."""
LANGUAGES = ("en", "zh")

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureSources:
    """Input files: the output of `prepare`, `--skills`, our requests, and texts of test sets."""

    data: Path
    skills: Path
    requests: Path
    held_out: Sequence[Path]
    """JSON lines with `name` and `description` of test skills, or the `query` of test requests."""


@dataclass(slots=True)
class _Mixture:
    """Collected texts by number: requests and documents share the numbering."""

    asked: set[str]
    """Requests and messages of test sets, which are left out."""
    texts: TokenTable = field(default_factory=TokenTable)
    pairs: dict[str, dict[tuple[int, int], int]] = field(
        default_factory=lambda: defaultdict[str, dict[tuple[int, int], int]](dict)
    )
    messages: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    """Messages that need no skill, with the documents they are near to."""
    groups: dict[str, int] = field(default_factory=dict[str, int])
    said: dict[int, str] = field(default_factory=dict[int, str])
    """Requests that get noisy variants."""

    def pair(self, kind: str, request: str, text: str, group: str) -> None:
        """Add a request and a document that answers it."""
        if letters(request) in self.asked:
            return
        number = self.texts.add(request)
        self.pairs[kind][number, self.texts.add(text)] = self.group(group)
        if kind in _NOISY:
            self.said[number] = request

    def group(self, key: str) -> int:
        """Number a group: its documents are no negatives of its requests."""
        return self.groups.setdefault(key, len(self.groups))

    def message(self, text: str, documents: Iterable[str] = ()) -> None:
        """Add a message that needs no skill, and two documents that it must not be near."""
        if letters(text) in self.asked:
            return
        near = [self.texts.add(one) for one in documents] or [NO_TEXT, NO_TEXT]
        self.messages[self.texts.add(text)] = (near[0], near[-1])


@dataclass(slots=True)
class _Validation:
    """A validation set: requests with the rows of the documents that answer them."""

    documents: list[int] = field(default_factory=list[int])
    queries: list[int] = field(default_factory=list[int])
    targets: list[Sequence[int]] = field(default_factory=list[Sequence[int]])
    messages: list[int] = field(default_factory=list[int])

    def arrays(self, name: str) -> Iterator[tuple[str, Numbers]]:
        """Yield the arrays of the set by name; targets are padded with -1."""
        widest = max(map(len, self.targets), default=1)
        padded = [[*row, *[NO_TEXT] * (widest - len(row))] for row in self.targets]
        yield f"{name}/documents", np.array(self.documents, np.int64)
        yield f"{name}/queries", np.array(self.queries, np.int64)
        yield f"{name}/targets", np.array(padded, np.int64).reshape(-1, widest)
        yield f"{name}/messages", np.array(self.messages, np.int64)


def mix(sources: MixtureSources, tokenizer: Path, out: Path) -> dict[str, int]:
    """Write the mixture; return the number of texts, pairs of each kind, and messages."""
    held_out, asked = _test_texts(sources.held_out)
    chance = random.Random(1)  # noqa: S311  # no secret hangs on it
    mixture = _Mixture(asked)
    library = [row["text"] for row in read_rows(sources.data / "library.jsonl.xz")]
    sets = {
        "library": _library(mixture, sources.data, library),
        "styles": _styles(mixture, sources, library, held_out),
        "tools": _tools(mixture, sources.requests),
        **_everyday(mixture, sources.requests, held_out, asked),
    }
    kept_back = {number for one in sets.values() for number in one.documents}
    _prepared(mixture, sources.data, kept_back, chance)
    _errors(mixture, sources.requests, chance)
    _small_talk(mixture, sources.requests)
    sets["typos"] = _with_typos(mixture, sets["library"], sources, chance)
    variants = _variants(mixture, sources.requests, chance)
    words: list[str] = json.loads((tokenizer / "cjk.json").read_text(encoding="utf-8"))
    mixture.texts.cut(tokenizer / "tokenizer.json", words, limit=TOKENS)
    kinds = list(KINDS)
    pairs = [
        (*texts, group, kinds.index(kind))
        for kind in kinds
        for texts, group in mixture.pairs[kind].items()
    ]
    arrays: dict[str, Any] = {
        "flat": mixture.texts.flat.astype(np.uint16),
        "lengths": np.diff(mixture.texts.starts).astype(np.uint8),
        "pairs": np.array(pairs, np.int32),
        "messages": np.array([(text, *near) for text, near in mixture.messages.items()], np.int32),
        "variants": np.array(variants, np.int32),
    }
    for name, one in sets.items():
        arrays |= {key: rows.astype(np.int32) for key, rows in one.arrays(name)}
    out.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(out, **arrays)
    counts = {kind: len(mixture.pairs[kind]) for kind in kinds}
    return {"texts": len(mixture.texts), "messages": len(mixture.messages)} | counts


def _test_texts(paths: Iterable[Path]) -> tuple[HeldOut, set[str]]:
    """Read the skills and the requests of test sets, which must not be trained on."""
    held_out, asked = HeldOut(), set[str]()
    for path in paths:
        for row in read_rows(path):
            if "query" in row:
                asked.add(letters(row["query"]))
            else:
                held_out.add(row["name"], row["description"])
    return held_out, asked


def _rows(requests: Path, kind: str) -> Iterator[Row]:
    for path in sorted(requests.glob(f"{kind}-*.jsonl")):
        yield from read_rows(path)


def _library(mixture: _Mixture, data: Path, library: Sequence[str]) -> _Validation:
    """Requests for the validation skills in their library, as `prepare` wrote them."""
    found = _Validation(documents=[mixture.texts.add(text) for text in library])
    for row in read_rows(data / "validation.jsonl.xz"):
        found.queries.append(mixture.texts.add(row["query"]))
        found.targets.append((row["target"],))
        mixture.said[found.queries[-1]] = row["query"]
    return found


def _styles(
    mixture: _Mixture, sources: MixtureSources, library: Sequence[str], held_out: HeldOut
) -> _Validation:
    """Requests for published skills: terse, indirect, long, and beside something pasted."""
    wanted = {row["id"]: row for row in _rows(sources.requests, "styles")}
    found = _Validation(documents=[mixture.texts.add(text) for text in library])
    for skill in read_rows(sources.skills):
        row = wanted.get(skill["id"])
        if row is None or held_out.covers(skill["name"], skill["description"]):
            continue
        text = document(skill["name"], skill["description"])
        asked = [request for language in LANGUAGES for request in row[language]]
        if is_validation(skill["name"]):
            found.documents.append(mixture.texts.add(text))
            found.queries += map(mixture.texts.add, asked)
            found.targets += [(len(found.documents) - 1,)] * len(asked)
        else:
            for request in asked:
                mixture.pair("styles", request, text, letters(skill["description"]))
    return found


def _tools(mixture: _Mixture, requests: Path) -> _Validation:
    """Requests that need one tool or several of a group."""
    found = _Validation()
    for number, row in enumerate(_rows(requests, "tools")):
        texts = [
            main_text(SkillText.from_tool(tool["name"], tool["desc"])) for tool in row["tools"]
        ]
        if number % _KEPT_BACK == 0:
            first = len(found.documents)
            found.documents += map(mixture.texts.add, texts)
            found.queries += [mixture.texts.add(ask["q"]) for ask in row["asks"]]
            found.targets += [[first + at for at in ask["need"]] for ask in row["asks"]]
        else:
            for ask in row["asks"]:
                needed: list[int] = ask["need"]
                for at in needed:
                    mixture.pair("tools", ask["q"], texts[at], f"tool {texts[at]}")
    return found


def _everyday(
    mixture: _Mixture, requests: Path, held_out: HeldOut, asked: set[str]
) -> dict[str, _Validation]:
    """Requests for everyday skills in both languages, and messages near their subjects."""
    found = {f"everyday {language}": _Validation() for language in LANGUAGES}
    for row in _rows(requests, "everyday"):
        if held_out.covers(row["name"], row["en"], row["zh"]):
            continue
        texts = [
            main_text(SkillText(name=row["name"], summary=row[language])) for language in LANGUAGES
        ]
        said = [one for language in LANGUAGES for one in row[f"requests_{language}"]]
        said = [one for one in said if letters(one) not in asked]
        near = [one for language in LANGUAGES for one in row.get(f"near_{language}", ())]
        near = [one for one in near if letters(one) not in asked]
        if is_validation(row["name"]):
            for one, text in zip(found.values(), texts, strict=True):
                one.documents.append(mixture.texts.add(text))
                one.queries += map(mixture.texts.add, said)
                one.targets += [(len(one.documents) - 1,)] * len(said)
                one.messages += map(mixture.texts.add, near)
        else:
            for text in texts:
                for request in said:
                    mixture.pair("everyday", request, text, f"everyday {row['name']}")
            for message in near:
                mixture.message(message, texts)
    return found


def _prepared(mixture: _Mixture, data: Path, kept_back: set[int], chance: random.Random) -> None:
    """Add a sample of each kind of pair that `prepare` wrote, but for documents kept back."""
    by_kind = defaultdict[str, dict[tuple[str, int], int]](dict)
    for row in read_rows(data / "pairs.jsonl.xz"):
        by_kind[row["k"]].setdefault((row["q"], row["d"]), row["g"])
    texts = [row["text"] for row in read_rows(data / "documents.jsonl.xz")]
    for kind, (_, most) in KINDS.items():
        rows = list(by_kind[kind].items())
        for (request, number), group in chance.sample(rows, min(len(rows), most or len(rows))):
            if mixture.texts.add(texts[number]) not in kept_back:
                mixture.pair(kind, request, texts[number], f"prepared {group}")


def _errors(mixture: _Mixture, requests: Path, chance: random.Random) -> None:
    """Pasted error messages, answered by what they are about."""
    for error in read_errors(requests / "errors.jsonl"):
        for language in LANGUAGES:
            for text in map(error.about, LANGUAGES):
                mixture.pair("thing", ask_about(error, language, chance), text, f"log {error.en}")


def _small_talk(mixture: _Mixture, requests: Path) -> None:
    for row in read_rows(requests / "none.jsonl"):
        if row["kind"] not in _SERVED:
            for language in LANGUAGES:
                mixture.message(row[language])
    for row in _rows(requests, "task-or-talk"):
        if not row["needs"]:
            mixture.message(row["query"])


def _with_typos(
    mixture: _Mixture, clean: _Validation, sources: MixtureSources, chance: random.Random
) -> _Validation:
    typos = Typos.read(sources.requests / "homophones.txt")
    wrong = [typos.misspelt(mixture.said.pop(one), chance, is_light=True) for one in clean.queries]
    queries = [mixture.texts.add(text) for text in wrong]
    return _Validation(clean.documents, queries, clean.targets)


def _variants(mixture: _Mixture, requests: Path, chance: random.Random) -> list[tuple[int, ...]]:
    """Make noisy variants of requests: typing errors, background sentences, log lines."""
    typos = Typos.read(requests / "homophones.txt")
    background = Background.read(requests / "background.jsonl")

    def noisy(text: str) -> str:
        kind = chance.random()
        if kind < _TYPOS or len(text) > _LONG_CHARS:
            return typos.misspelt(text, chance, is_light=chance.random() < 0.5)
        if kind < _TYPOS + _LONG:
            return background.around(text, language_of(text), chance)
        return with_log(text, chance)

    return [
        (number, *(mixture.texts.add(noisy(text)) for _ in range(VARIANTS)))
        for number, text in mixture.said.items()
    ]
