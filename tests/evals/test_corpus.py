"""Parsing skills and queries from JSON Lines, with arbitrary input."""

import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from apexbridge.errors import EvalInputError
from apexbridge.evals import corpus
from apexbridge.evals.corpus import CorpusSkill, EvalQuery, read_corpus, read_queries

SKILL = b'{"id": 1, "name": "pdf", "description": "Fill forms", "repo": "ignored"}\n'
QUERY = b'{"query": "fill a form", "accept": [1, "2", 9], "lang": "en", "pair": 0}\n'


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
def test_a_corpus_is_read_plain_or_packed_by_what_its_bytes_say(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "corpus"
    path.write_bytes(pack(SKILL + b'{"id": "b", "name": "pdf", "description": "", "body": "x"}'))
    assert read_corpus(path) == (
        CorpusSkill(id="1", name="pdf", description="Fill forms"),
        CorpusSkill(id="b", name="pdf", description="", body="x"),
    )


def test_a_bom_windows_line_ends_and_blank_lines_are_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + SKILL.replace(b"\n", b"\r\n") + b"\r\n  \r\n")
    assert [skill.id for skill in read_corpus(path)] == ["1"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"nothing", "Invalid JSON"),
        (b"[1, 2]", "object"),
        (b"\xff\xfe{}", "Invalid JSON"),
        (b'{"id": 2, "name": "\xff", "description": ""}', "Invalid JSON"),
        (b'{"id": 2, "name": "\\ud800", "description": ""}', "Invalid JSON"),
        (b'{"id": true, "name": "x", "description": ""}', "id: "),
        (b'{"id": 1.5, "name": "x", "description": ""}', "id: "),
        (b'{"id": 2, "name": 7, "description": ""}', "name: "),
        (b'{"id": 2, "name": "", "description": ""}', "name: "),
        (b'{"id": 2, "name": "x"}', "description: "),
        (b'{"id": 2, "name": "x", "description": null}', "description: "),
        (b'{"id": "1", "name": "x", "description": ""}', "duplicate id '1'"),
        (b"[" * 100_000, "Invalid JSON"),
        (b'"' + b"x" * corpus.MAX_LINE + b'"', "more than 1048576 bytes"),
    ],
    ids=range(14),
)
def test_a_wrong_line_is_told_by_its_number(tmp_path: Path, line: bytes, says: str) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(SKILL + b"\n" + line + b"\n")
    with pytest.raises(EvalInputError) as caught:
        read_corpus(path)
    assert caught.value.message.startswith(f"{path}:3: ")
    assert says in caught.value.message
    assert len(caught.value.message) < 500
    assert caught.value.details["line"] == 3


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0)])
def test_a_file_without_lines_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_bytes(content)
    with pytest.raises(EvalInputError, match="nothing to evaluate"):
        read_corpus(path)
    with pytest.raises(EvalInputError, match="nothing to evaluate"):
        read_queries(path, {"1"})


@pytest.mark.parametrize(
    "damaged",
    [
        gzip.compress(SKILL * 50)[:-20],
        gzip.compress(SKILL)[:10] + b"\xff" * 40,
        b"\x1f\x8bnot gzip",
        lzma.compress(SKILL * 50)[:-30],
        b"\xfd7zXZ\x00 and no more than that",
    ],
    ids=["cut gzip", "wrong deflate", "only its mark", "cut xz", "wrong xz"],
)
def test_a_damaged_archive_is_an_error_and_no_crash(tmp_path: Path, damaged: bytes) -> None:
    path = tmp_path / "corpus.gz"
    path.write_bytes(damaged)
    with pytest.raises(EvalInputError, match="damaged"):
        read_corpus(path)


def test_an_archive_that_unpacks_to_far_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "MAX_BYTES", 10_000)
    path = tmp_path / "corpus.gz"
    path.write_bytes(gzip.compress(b"\n" * 20_000))
    with pytest.raises(EvalInputError, match="more than 10000 bytes"):
        read_corpus(path)


def test_a_file_that_is_not_there_stays_the_systems_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_corpus(tmp_path / "nowhere.jsonl")


def test_accepted_ids_that_the_corpus_does_not_have_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "queries.jsonl"
    path.write_bytes(QUERY + QUERY)
    found = read_queries(path, {"1", "2"})
    assert found.unknown_accepts == 2
    assert found.queries[0] == EvalQuery(
        query="fill a form", accept=["1", "2", "9"], lang="en", pair="0"
    )


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ({"query": "x", "accept": [7, "8"]}, "none of the accepted ids 7, 8"),
        ({"query": "x", "accept": []}, "accept: "),
        ({"query": "x", "accept": 1}, "accept: "),
        ({"query": "x", "accept": [None]}, "accept.0: "),
        ({"query": "", "accept": [1]}, "query: "),
        ({"accept": [1]}, "query: "),
        ({"query": "x", "accept": [1], "query_zh": 5}, "query_zh: "),
    ],
)
def test_a_query_that_nothing_can_answer_is_an_error_line(
    tmp_path: Path, query: object, says: str
) -> None:
    path = tmp_path / "queries.jsonl"
    path.write_bytes(QUERY + json.dumps(query).encode())
    with pytest.raises(EvalInputError) as caught:
        read_queries(path, {"1", "2"})
    assert caught.value.message.startswith(f"{path}:2: ")
    assert says in caught.value.message
