"""A tiny everyday set, in the format of `benchmarks/requests/everyday`."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

SKILLS = {
    "pdf-merge": "Merge several PDF files into one.",
    "email": "Send an email to somebody.",
    "weather-zh": "查询城市的天气预报。",
    "bread": "Bake bread from flour and water.",
}
REQUESTS = [
    ("pdf-merge", "merge two pdf files"),
    ("pdf-merge", "put all these PDF files into one"),
    ("email", "send an email to Ann"),
    ("email", "email somebody"),
    ("weather-zh", "查询北京的天气"),
    ("weather-zh", "天气预报"),
    ("bread", "bake bread"),
    ("bread", "flour and water"),
]
NONE = ["hello there", "thanks a lot", "你好", "何时何地", "good night", "never mind"]
CORPUS = {
    f"c{number}": f"{verb} {thing} for the {place}."
    for number, (verb, thing, place) in enumerate(
        (verb, thing, place)
        for verb in ("Paint", "Sell", "Count")
        for thing in ("chairs", "lamps")
        for place in ("office", "garden")
    )
}


def write_everyday(folder: Path) -> Path:
    """Write skills, requests and requests that need none."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "skills.jsonl", map(_skill, SKILLS.items()))
    asked = ({"skill": s, "lang": "en", "kind": "terse", "query": q} for s, q in REQUESTS)
    _write(folder / "requests.jsonl", asked)
    _write(folder / "none.jsonl", ({"lang": "en", "kind": "chat", "query": q} for q in NONE))
    return folder


def write_corpus(path: Path) -> Path:
    """Write a corpus of other skills."""
    _write(path, map(_skill, CORPUS.items()))
    return path


def write_queries(path: Path) -> Path:
    """Write a request for each skill of the corpus."""
    _write(path, ({"query": text, "accept": [id_]} for id_, text in CORPUS.items()))
    return path


def _skill(pair: tuple[str, str]) -> Mapping[str, object]:
    return {"id": pair[0], "name": pair[0], "description": pair[1], "body": ""}


def _write(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    lines = (json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
