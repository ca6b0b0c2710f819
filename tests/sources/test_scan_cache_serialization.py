"""Scan cache: serialization of parse results is lossless."""

from dataclasses import replace
from pathlib import Path

import pytest

from apexbridge.skills.model import Origin, Problem, Provenance
from apexbridge.skills.parser import ParseResult, read_skill
from apexbridge.sources import scan_cache
from apexbridge.sources.scan_cache import deserialize, reader_id, serialize
from apexbridge.testing import make_skill

OURS = Provenance(origin=Origin.USER, source_id="user:x", needs_trust=False)
FULL = b"""---
name: pdf
description: "Fill PDF forms: \xe8\xa1\xa8\xe5\x8d\x95"
when_to_use: on forms
allowed-tools: Read, Bash(git add *), mcp__x__*
arguments: [path, mode]
paths: src/**/*.{ts,tsx}
context: fork
user-invocable: no
metadata: {a: b, nested: {c: d}}
hooks:
  PreToolUse:
    - matcher: Bash
      hooks: [{type: command, command: echo hi, timeout: 5, once: true}]
unknown: [1, {x: y}]
---
Body
"""


def _read(tmp_path: Path, raw: bytes) -> ParseResult:
    root = make_skill(tmp_path, "pdf", raw=raw)
    return replace(read_skill(root, OURS), data=b"")


@pytest.mark.parametrize(
    "raw",
    [
        FULL,
        b"---\nname: pdf\ndescription: d\n---\n",
        b"---\nname: pdf\ncontext: wrong\npaths: '[z-a]/['\nhooks: {No: []}\n---\n# T\n",
    ],
    ids=["full", "plain", "problems"],
)
def test_a_reading_comes_back_as_it_was(tmp_path: Path, raw: bytes) -> None:
    reading = _read(tmp_path, raw)
    data = serialize(reading)
    assert data is not None
    assert deserialize(data, root=tmp_path / "pdf", provenance=OURS) == reading


def test_trust_is_not_what_was_written_but_what_the_source_says(tmp_path: Path) -> None:
    data = serialize(_read(tmp_path, FULL))
    theirs = replace(OURS, needs_trust=True)
    assert data is not None
    again = deserialize(data, root=tmp_path / "pdf", provenance=theirs)
    assert again is not None
    assert again.skill is not None
    assert not again.skill.is_trusted


def test_no_skill_is_not_written(tmp_path: Path) -> None:
    assert serialize(_read(tmp_path, b"nothing")) is None
    assert serialize(ParseResult()) is None


def test_a_detail_that_is_no_json_is_not_written(tmp_path: Path) -> None:
    odd = Problem(code="x", where="y", details={"path": tmp_path})
    assert serialize(replace(_read(tmp_path, FULL), problems=(odd,))) is None


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"[]", b"{}", b'{"fingerprint": [1, 2]}', b"null",
        b'{"fingerprint": [1, 2, "x"]}',
        b'{"fingerprint": [1, 2, "x"], "name": 5, "description": "d", "manifest": {},'
        b' "tools": [], "hooks": [], "problems": []}',
        b"[" * 100_000,
    ],
    ids=range(9),
)  # fmt: skip
def test_invalid_bytes_are_not_deserialized(tmp_path: Path, data: bytes) -> None:
    assert deserialize(data, root=tmp_path, provenance=OURS) is None


def test_the_reader_is_named_by_its_code() -> None:
    assert len(reader_id()) == 16
    assert reader_id() == reader_id()


def test_the_reader_in_a_zipped_package_is_named_by_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, named = tmp_path / "package.zip", set[str]()
    monkeypatch.setattr(scan_cache.skills, "__path__", [str(archive / "apexbridge/skills")])
    monkeypatch.setattr(
        scan_cache.permissions, "__path__", [str(archive / "apexbridge/permissions")]
    )
    for content in (b"one", b"other"):
        archive.write_bytes(content)
        named.add(reader_id.__wrapped__())
    assert len(named) == 2
