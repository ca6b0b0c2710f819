"""Training data: translations, queries with their skills, and small talk, from data files."""

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from training.colloquial import Products, framed
from training.held_out import Described, HeldOut, close_over, letters, spoken
from training.implicit_requests import read_things, skills_about
from training.jsonl import Row, read_rows, write_rows

LANGUAGES = ("en", "zh")
_DOCUMENT = 900
_PHRASE = 400
_KEY = 80
_SEGMENT = {"en": 24, "zh": 8}
"""A shorter segment is too vague for a query."""
_SEGMENTS_A_SKILL = 8
_FRAMED_SHARE = 0.35
_NAMED_SHARE = 0.5
_WRITTEN_TIMES = 6
_NAMES_TIMES = 4
_THING_TIMES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Input files."""

    skills: Path
    phrases: Path
    segments: Path
    descriptions: Path
    held_out: Path
    requests: Path
    """Our own: `written-*`, `validation-*`, `things-*`, `none` and `products`."""


@dataclass(slots=True)
class Corpus:
    """Collected training data; the group of a query is its skill."""

    pairs: list[tuple[str, str, int, str]] = field(default_factory=list[tuple[str, str, int, str]])
    parallel: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    alone: list[str] = field(default_factory=list[str])
    """English texts without a translation, which preserve the base model's English."""
    counts: Counter[str] = field(default_factory=Counter[str])
    _groups: dict[str, int] = field(default_factory=dict[str, int])

    def pair(self, request: str, document: str, description: str, kind: str) -> None:
        """Add a query and the skill that answers it."""
        group = self._groups.setdefault(letters(description)[:_KEY], len(self._groups))
        self.pairs.append((request[:_PHRASE], document[:_DOCUMENT], group, kind))
        self.counts[f"pairs: {kind}"] += 1


def document(name: str, description: str) -> str:
    """Format the main text of a skill, as the index does."""
    return f"{spoken(name)}. {description}"


def language_of(text: str) -> str:
    """Detect Chinese: a fifth of the characters."""
    chinese = sum("\u4e00" <= character <= "\u9fff" for character in text)
    return "zh" if chinese * 5 >= len(text) else "en"


def prepare(sources: Sources, out: Path) -> dict[str, int]:
    """Write `pairs`, `parallel`, `alone`, `none`, `validation` and `library` to a folder."""
    chance = random.Random(1)  # noqa: S311  # no secret hangs on it
    skills = list(read_rows(sources.skills))
    translated = list(read_rows(sources.descriptions))
    held_out, evaluation = _held_out(sources, skills, translated)
    material = Corpus()
    clean = [row for row in skills if not held_out.covers(row["name"], row["description"])]
    translated = [
        row for row in translated if not held_out.covers(row["name_en"], row["en"], row["zh"])
    ]
    material.counts.update({"skills": len(clean), "descriptions in both": len(translated)})
    products = Products.read(sources.requests / "products.jsonl")
    _add_phrases(material, sources, held_out, _by_text(translated), chance, products)
    _add_translations(material, translated)
    _add_segments(material, sources, held_out, translated, chance)
    _add_names(material, clean, chance)
    _add_written(material, sources, {row["id"]: row for row in clean}, held_out)
    _add_things(material, sources, clean, held_out, chance)
    for _ in range(_NAMES_TIMES):
        material.parallel += products.pairs()
    chance.shuffle(material.pairs)
    chance.shuffle(material.parallel)
    return dict(material.counts) | _write(material, sources, evaluation, out)


def _held_out(
    sources: Sources, skills: list[Row], translated: list[Row]
) -> tuple[HeldOut, list[Row]]:
    """Collect the held-out texts, and the validation library."""
    held_out, evaluation = HeldOut(), list(read_rows(sources.held_out))
    for row in evaluation:
        held_out.add(row["name"], row["description"])
    asked = {row["id"] for row in _requests(sources, "validation")}
    for row in skills:
        if row["id"] in asked and not held_out.covers(row["name"], row["description"]):
            held_out.add(row["name"], row["description"])
            evaluation.append(row)
    for _ in close_over(
        held_out, (Described(row["name_en"], (row["en"], row["zh"])) for row in translated)
    ):
        pass
    return held_out, evaluation


def _requests(sources: Sources, kind: str) -> Iterator[Row]:
    for path in sorted(sources.requests.glob(f"{kind}-*.jsonl")):
        yield from read_rows(path)


def _by_text(translated: list[Row]) -> Mapping[str, Row]:
    found = dict[str, Row]()
    for row in translated:
        for language in LANGUAGES:
            found[letters(row[language])[:_KEY]] = row
    return found


def _add_phrases(  # all of it is needed
    material: Corpus,
    sources: Sources,
    held_out: HeldOut,
    by_text: Mapping[str, Row],
    chance: random.Random,
    products: Products,
) -> None:
    """Add sentences mined from skills: verbatim, colloquial and translated."""
    judged = dict[str, bool]()
    for row in read_rows(sources.phrases):
        name, _, description = row["d"].partition(": ")
        if row["d"] not in judged:
            judged[row["d"]] = held_out.covers(name, description)
        if judged[row["d"]] or held_out.covers_text(row["q"]):
            continue
        request, text = row["q"], document(name, description)
        material.pair(request, text, description, f"mined {row['s']}")
        language = language_of(request)
        if row["s"] != "C" and chance.random() < _FRAMED_SHARE:
            said = framed(request, language, chance)
            if said:
                material.pair(said, text, description, "framed")
        renamed = products.renamed(request, chance) if chance.random() < _NAMED_SHARE else None
        if renamed:
            material.pair(renamed, text, description, "renamed")
        other = by_text.get(letters(description)[:_KEY])
        if other is not None:
            there = "zh" if language_of(description) == "en" else "en"
            material.pair(
                request, document(other["name_en"], other[there]), description, "mined across"
            )


def _add_translations(material: Corpus, translated: list[Row]) -> None:
    for row in translated:
        english, chinese = row["en"][:_DOCUMENT], row["zh"][:_DOCUMENT]
        material.parallel.append((english, chinese))
        material.parallel.append(
            (document(row["name_en"], english), document(row["name_en"], chinese))
        )
        if row["name_zh"] != row["name_en"]:
            material.parallel.append((spoken(row["name_en"]), row["name_zh"]))
            material.pair(row["name_zh"], document(row["name_en"], english), row["en"], "name")


def _add_segments(
    material: Corpus,
    sources: Sources,
    held_out: HeldOut,
    translated: list[Row],
    chance: random.Random,
) -> None:
    """Add translated body segments, some as queries in the other language."""
    described = {row["key"]: row for row in translated}
    of_skill = defaultdict[str, list[Row]](list)
    for row in read_rows(sources.segments):
        slug = row["k"].partition("--")[2]
        if held_out.covers(slug, row["en"], row["zh"]):
            continue
        material.parallel.append((row["en"][:_DOCUMENT], row["zh"][:_DOCUMENT]))
        material.counts["segments in both"] += 1
        if row["k"] in described and row["t"] in {"p", "l", "n"}:
            of_skill[row["k"]].append(row)
    for key, rows in of_skill.items():
        skill = described[key]
        for row in chance.sample(rows, min(len(rows), _SEGMENTS_A_SKILL)):
            for here, there in (LANGUAGES, LANGUAGES[::-1]):
                if len(row[here]) >= _SEGMENT[here]:
                    text = document(skill["name_en"], skill[there])
                    material.pair(row[here], text, skill["en"], "segment across")


def _add_names(material: Corpus, clean: list[Row], chance: random.Random) -> None:
    """Add names as short queries, and descriptions as English-only texts."""
    for row in clean:
        if chance.random() < _NAMED_SHARE:
            material.pair(spoken(row["name"]), row["description"], row["description"], "name")
        if language_of(row["description"]) == "en":
            material.alone.append(document(row["name"], row["description"])[:_DOCUMENT])


def _add_written(
    material: Corpus, sources: Sources, by_id: Mapping[int, Row], held_out: HeldOut
) -> None:
    """Add queries written for skills, which are few and good, and therefore repeated."""
    for row in _requests(sources, "written"):
        skill = by_id.get(row["id"])
        if skill is None:
            continue
        text = document(skill["name"], skill["description"])
        for language in LANGUAGES:
            if not held_out.covers_text(row[language]):
                for _ in range(_WRITTEN_TIMES):
                    material.pair(row[language], text, skill["description"], "written")


def _add_things(
    material: Corpus,
    sources: Sources,
    clean: list[Row],
    held_out: HeldOut,
    chance: random.Random,
) -> None:
    """Add implicit queries for a thing, answered by its description and by skills about it."""
    things = read_things(sources.requests)
    for thing, skills in zip(things, skills_about(things, clean, chance), strict=True):
        texts = list(thing.texts())
        answers = texts + [document(row["name"], row["description"]) for row in skills]
        material.parallel += [tuple[str, str](texts)] * _NAMES_TIMES
        for request in thing.requests:
            if not held_out.covers_text(request):
                for text in answers * _THING_TIMES:
                    material.pair(request, text, f"thing {thing.names[0]}", "thing")


def _write(material: Corpus, sources: Sources, evaluation: list[Row], out: Path) -> dict[str, int]:
    small_talk = list(read_rows(sources.requests / "none.jsonl"))
    places = {row["id"]: place for place, row in enumerate(evaluation)}
    asked = [
        {"query": row[language], "lang": language, "target": places[row["id"]]}
        for row in _requests(sources, "validation")
        if row["id"] in places
        for language in LANGUAGES
    ]
    library = [
        {"text": document(row["name"], row["description"])[:_DOCUMENT]} for row in evaluation
    ]
    documents = {
        text: place for place, text in enumerate({pair[1]: None for pair in material.pairs})
    }
    pairs = ({"q": q, "d": documents[d], "g": g, "k": k} for q, d, g, k in material.pairs)
    return {
        "pairs": write_rows(out / "pairs.jsonl.xz", pairs),
        "documents": write_rows(out / "documents.jsonl.xz", ({"text": text} for text in documents)),
        "parallel": write_rows(
            out / "parallel.jsonl.xz", ({"en": en, "zh": zh} for en, zh in material.parallel)
        ),
        "alone": write_rows(out / "alone.jsonl.xz", ({"en": text} for text in material.alone)),
        "small talk": write_rows(out / "none.jsonl.xz", small_talk),
        "validation requests": write_rows(out / "validation.jsonl.xz", asked),
        "validation library": write_rows(out / "library.jsonl.xz", library),
    }
