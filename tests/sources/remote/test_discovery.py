"""Parsing of skill indexes, valid and invalid."""

import json

import pytest

from apexbridge.errors import SourceError
from apexbridge.sources.remote.discovery import (
    LEGACY_WELL_KNOWN,
    MAX_ENTRIES,
    SCHEMA,
    SkillIndex,
    index_url,
    legacy_index_url,
    parse_index,
)

BASE = "https://a.example/.well-known/agent-skills/index.json"
HASH = "0123456789abcdef" * 4
ENTRY = {
    "name": "pdf",
    "type": "skill-md",
    "description": "Reads.",
    "url": "pdf/SKILL.md",
    "digest": f"sha256:{HASH}",
}


def _read(*entries: object, schema: object = SCHEMA) -> SkillIndex:
    data = json.dumps({"$schema": schema, "skills": entries, "later": 1}).encode()
    return parse_index(data, BASE, may_be_private=False)


@pytest.mark.parametrize(
    ("url", "full"),
    [
        ("pdf/SKILL.md", "https://a.example/.well-known/agent-skills/pdf/SKILL.md"),
        ("/x/SKILL.md", "https://a.example/x/SKILL.md"),
        ("https://cdn.example/x", "https://cdn.example/x"),
        ("//cdn.example/x", "https://cdn.example/x"),
        ("../../x", "https://a.example/x"),
    ],
)
def test_addresses_are_relative_to_the_index(url: str, full: str) -> None:
    listing = _read({**ENTRY, "url": url, "unknown": []})
    assert [(each.url, each.name, each.sha256) for each in listing.entries] == [(full, "pdf", HASH)]
    assert listing.problems == ()
    assert listing.entries[0].is_listed
    assert not listing.entries[0].may_be_private


def test_further_files_are_relative_to_the_skill() -> None:
    files = [{"path": p, "digest": f"sha256:{HASH}"} for p in ("SKILL.md", "references/a b.md")]
    entry = _read({**ENTRY, "files": files}).entries[0]
    assert entry.files == {"references/a b.md": HASH}
    sibling = entry.sibling("references/a b.md", HASH)
    assert sibling.url == "https://a.example/.well-known/agent-skills/pdf/references/a%20b.md"
    assert (sibling.sha256, sibling.is_listed, sibling.may_be_private) == (HASH, True, False)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"digest": None}, "digest"),
        ({"digest": "sha256:12"}, "digest"),
        ({"digest": f"md5:{HASH}"}, "digest"),
        ({"digest": f"sha256:{HASH.upper()}"}, "digest"),
        ({"name": ""}, "name"),
        ({"name": "x" * 65}, "name"),
        ({"name": ["x"]}, "name"),
        ({"url": ""}, "url"),
        ({"url": 7}, "url"),
        ({"url": "https://[x"}, "url"),
        ({"type": "bundle"}, "only skill-md and archive"),
        ({"type": "\x1b[31m"}, "only skill-md"),
        ({"files": [{"path": "a", "digest": "no"}]}, "files"),
        ({"files": ["a"]}, "files"),
        ({"files": [{"path": "a", "digest": f"sha256:{HASH}"}] * 201}, "files"),
    ],
)
def test_an_entry_that_cannot_be_used_is_a_problem_beside_the_others(
    change: dict[str, object], says: str
) -> None:
    listing = _read({**ENTRY, **change}, {**ENTRY, "name": "other"})
    assert [each.name for each in listing.entries] == ["other"]
    assert [problem.code for problem in listing.problems] == ["remote_entry_invalid"]
    assert says in listing.problems[0].message
    assert "\x1b" not in listing.problems[0].message


@pytest.mark.parametrize(
    "path",
    ["../a", "a/../b", "/a", "a//b", "a/", "", ".", "a\\b", "a?b", "a#b", "文", "%2e%2e/a",
     "http://b", "a/ ../b", "a\nb"],
)  # fmt: skip
def test_a_path_that_leads_away_makes_an_entry_unusable(path: str) -> None:
    listing = _read({**ENTRY, "files": [{"path": path, "digest": f"sha256:{HASH}"}]})
    assert (listing.entries, [p.code for p in listing.problems]) == ((), ["remote_entry_invalid"])


@pytest.mark.parametrize("entry", [None, 1, "x", [], {}])
def test_an_entry_that_is_none_is_a_problem(entry: object) -> None:
    assert [p.code for p in _read(entry).problems] == ["remote_entry_invalid"]


def test_only_so_many_entries_are_read() -> None:
    listing = _read(*[{**ENTRY, "name": f"s{number}"} for number in range(MAX_ENTRIES + 1)])
    assert len(listing.entries) == MAX_ENTRIES
    assert [(p.code, p.severity) for p in listing.problems] == [("remote_limit", "warning")]


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b'{"skills": {}}', b'{"skills": null}', b"\xff", b"[" * 100_000,
     b'{"$schema": "https://a.example/9", "skills": []}', b'{"$schema": 1, "skills": []}'],
    ids=["empty", "cut", "list", "null", "map", "none", "binary", "deep", "schema", "number"],
)  # fmt: skip
def test_what_is_no_index_of_a_known_kind_is_refused(data: bytes) -> None:
    with pytest.raises(SourceError) as caught:
        parse_index(data, BASE, may_be_private=True)
    assert caught.value.code == "remote_unusable"


def test_an_index_without_a_schema_is_read() -> None:
    data = json.dumps({"skills": [ENTRY]}).encode()
    assert len(parse_index(data, BASE, may_be_private=True).entries) == 1


@pytest.mark.parametrize("place", ["https://a.example", "https://a.example/", BASE])
def test_an_index_is_found_by_its_host(place: str) -> None:
    assert index_url(place) == BASE


def test_an_archive_is_a_whole_skill() -> None:
    entry = _read({**ENTRY, "type": "archive", "url": "pdf.tar.gz"}).entries[0]
    assert (entry.kind, entry.url, entry.sha256) == (
        "archive",
        "https://a.example/.well-known/agent-skills/pdf.tar.gz",
        HASH,
    )


def _read_legacy(*entries: object) -> SkillIndex:
    url = f"https://a.example{LEGACY_WELL_KNOWN}"
    return parse_index(json.dumps({"skills": entries}).encode(), url, may_be_private=False)


def test_an_index_of_0_1_lists_paths_without_digests() -> None:
    listing = _read_legacy({"name": "pdf", "description": "…", "files": ["SKILL.md", "a/图 1.md"]})
    (entry,) = listing.entries
    assert entry.url == "https://a.example/.well-known/skills/pdf/SKILL.md"
    assert (entry.sha256, entry.files, entry.unhashed) == ("", {}, ("a/图 1.md",))
    sibling = entry.sibling(entry.unhashed[0], "")
    assert sibling.url == "https://a.example/.well-known/skills/pdf/a/%E5%9B%BE%201.md"


@pytest.mark.parametrize(
    "change",
    [
        {"files": []},
        {"files": ["a.md"]},
        {"files": ["SKILL.md", "../x"]},
        {"files": ["SKILL.md", "/x"]},
        {"files": ["SKILL.md", "a%2f..%2fb"]},
        {"files": ["SKILL.md", 7]},
        {"name": "../x"},
        {"name": "a/b"},
        {"name": ""},
    ],
)
def test_an_entry_of_0_1_that_cannot_be_used_is_a_problem(change: dict[str, object]) -> None:
    listing = _read_legacy({"name": "pdf", "description": "…", "files": ["SKILL.md"], **change})
    assert (listing.entries, [p.code for p in listing.problems]) == ((), ["remote_entry_invalid"])


def test_the_address_of_0_1_is_beside_that_of_0_2() -> None:
    assert legacy_index_url(BASE) == f"https://a.example{LEGACY_WELL_KNOWN}"
    assert legacy_index_url(f"https://a.example{LEGACY_WELL_KNOWN}") == ""
    assert index_url(f"https://a.example{LEGACY_WELL_KNOWN}").count("index.json") == 1
