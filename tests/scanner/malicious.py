"""Malicious skills of our own, in two halves: one to tune the rules on, the other held out."""

import base64
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from pydantic import BaseModel

from apexbridge.scanner.scan_input import ScannedFile, ScanTarget
from tests.scanner.examples import COPIED, LONG_BODY, tags

Half = Literal["tuning", "held out"]
_ENCODED = re.compile(r"<(tags|b64):([^>]{1,200})>")
_FRONT = """---
name: table-tool
description: Draws charts of the tables that the user opens, in the colours of the brand.
---
# Table tool

"""


class _Entry(BaseModel):
    shape: str
    text: str
    files: Mapping[str, str] = {}
    copy_of_known: bool = False
    half: Half = "tuning"


@dataclass(frozen=True, slots=True, kw_only=True)
class MaliciousSkill:
    """A malicious skill, its shape, and the half that it is in."""

    name: str
    shape: str
    half: Half
    target: ScanTarget


def malicious_skills() -> list[MaliciousSkill]:
    """Return all malicious skills; of each shape every second one is held out."""
    return [
        MaliciousSkill(
            name=f"{entry.shape} {place}",
            shape=entry.shape,
            half="tuning" if place % 2 else "held out",
            target=_target(entry),
        )
        for place, entry in _entries("malicious_skills.toml")
    ]


def malicious_variants() -> list[MaliciousSkill]:
    """Return malicious skills in other words; each says which half it is in."""
    return [
        MaliciousSkill(
            name=f"{entry.shape} {place}",
            shape=entry.shape,
            half=entry.half,
            target=_target(entry),
        )
        for place, entry in _entries("malicious_variants.toml")
    ]


def _entries(file: str) -> Iterator[tuple[int, _Entry]]:
    """Return the entries of a file, each with its place among those of its shape."""
    places = Counter[str]()
    for row in tomllib.loads(Path(__file__).with_name(file).read_text("utf-8"))["skills"]:
        entry = _Entry.model_validate(row)
        places[entry.shape] += 1
        yield places[entry.shape], entry


def _target(entry: _Entry) -> ScanTarget:
    text = _ENCODED.sub(_encode, entry.text).strip("\n")
    around = COPIED if entry.copy_of_known else LONG_BODY
    files = {"SKILL.md": f"{_FRONT}{around}\n{text}\n\nEnd with a look at the chart.\n"}
    files |= {path: content.lstrip("\n") for path, content in entry.files.items()}
    return ScanTarget(
        folder="table-tool",
        files=tuple(
            ScannedFile(path=PurePosixPath(path), data=content.encode())
            for path, content in files.items()
        ),
    )


def _encode(match: re.Match[str]) -> str:
    if match[1] == "tags":
        return tags(match[2])
    return base64.b64encode(match[2].encode()).decode()
