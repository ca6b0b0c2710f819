"""Well-known skill index, read by our own discovery source."""

from collections.abc import Generator, Sequence
from pathlib import PurePosixPath

import anyio
import httpx2
import pytest

from apexbridge.runtime import Runtime
from apexbridge.skills.model import Skill
from apexbridge.sources.remote.discovery import WELL_KNOWN, parse_index
from apexbridge.testing import skill_md
from tests.server.skills_server import (
    SkillsServer,
    error_code,
    make_config,
    raw_status,
    skill_zip,
    skills_server,
)

FILES = {"references/soil.md": b"Loam.\n", "scripts/main.py": b"print(1)\n", "图.md": b"x\n"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[SkillsServer]:
    loaded = make_config(tmp_path_factory.mktemp("open"), server={"open_index": True})
    with skills_server(loaded) as running:
        running.send("/v1/skills", ("a.zip", skill_zip("garden", "Grows tomatoes.", FILES)))
        running.install("技能", "种番茄。")
        yield running


def test_the_index_lists_every_skill_with_its_digests(server: SkillsServer) -> None:
    reply = httpx2.get(f"{server.url}{WELL_KNOWN}")
    assert reply.status_code == 200
    listing = parse_index(reply.content, str(reply.url), may_be_private=True)
    assert listing.problems == ()
    names = [wanted.name for wanted in listing.entries]
    assert names == [skill.name for skill in server.runtime.catalog.snapshot.skills]
    garden = listing.entries[names.index("garden")]
    assert sorted(garden.files) == ["references/soil.md", "scripts/main.py"]  # plain names only
    for wanted in (garden, garden.sibling("references/soil.md", "")):
        assert httpx2.get(wanted.url).status_code == 200
    text = httpx2.get(garden.url)
    assert text.content == skill_md("garden", "Grows tomatoes.")
    assert text.headers["content-disposition"] == "attachment"


def test_our_own_source_finds_and_reads_what_another_server_gives(
    server: SkillsServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    remote = {"indexes": [server.url], "allow_networks": ["127.0.0.0/8"]}
    loaded = make_config(tmp_path_factory.mktemp("reader"), remote=remote)

    async def read() -> tuple[Sequence[Skill], bytes, bytes]:
        async with Runtime.open(loaded) as runtime:
            skills = [s for s in runtime.catalog.skills if s.provenance.origin == "remote"]
            garden = runtime.catalog.get("_canonical_garden")
            source = runtime.catalog.source_of(garden).source
            text = await source.resource(garden, PurePosixPath("SKILL.md"))
            file = await source.resource(garden, PurePosixPath("references/soil.md"))
            return skills, text.data, file.data

    skills, text, file = anyio.run(read)
    names = {skill.name for skill in skills}
    assert {"_canonical_garden", "_canonical_技能"} <= names
    assert len(names) == len(server.runtime.catalog.snapshot.skills)
    assert (text, file) == (skill_md("garden", "Grows tomatoes."), b"Loam.\n")


def test_skills_of_another_host_are_shown_and_stay_that_hosts(
    server: SkillsServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    remote = {"indexes": [server.url], "allow_networks": ["127.0.0.0/8"]}
    with skills_server(make_config(tmp_path_factory.mktemp("second"), remote=remote)) as second:
        one = "/v1/skills/_canonical_garden"
        shown = second.get(one).json()
        assert (shown["origin"], shown["writable"], shown["trusted"]) == ("remote", False, False)
        assert (shown["has_script"], shown["created_at"]) == (False, 0)
        text = second.get(f"{one}/text").json()
        assert (text["text"].encode(), text["files"]) == (skill_md("garden", "Grows tomatoes."), [])
        assert error_code(second.get(f"{one}/content")) == (404, "skill_not_found")
        (version,) = second.get(f"{one}/versions").json()["data"]
        assert version["current"]
        tried = second.client.patch(
            one, json={"description": "Grows peas."}, params={"dry_run": "true"}
        )
        assert tried.json()["preview"]["queries"]
        assert error_code(second.post(f"{one}/run", {})) == (403, "skill_untrusted")
        listed = second.get(WELL_KNOWN).json()["skills"]
        assert not any(skill["name"].startswith("_canonical_") for skill in listed)


@pytest.mark.parametrize(
    "path",
    [
        "garden/../garden/SKILL.md",
        "garden/%2e%2e/%2e%2e/audit.jsonl",
        "garden//etc/passwd",
        "garden/.vectorized",
        "garden/%E5%9B%BE.md",
        "garden/references",
        "garden/",
        "../index.json",
        "nowhere/SKILL.md",
        "%2e%2e/SKILL.md",
    ],
)
def test_only_listed_files_are_served(server: SkillsServer, path: str) -> None:
    assert raw_status(server, "GET", WELL_KNOWN.removesuffix("index.json") + path) == 404


def test_a_file_that_changed_since_the_index_is_not_served(server: SkillsServer) -> None:
    server.send("/v1/skills", ("a.zip", skill_zip("moving", files={"a.md": b"one"})))
    url = f"{server.url}{WELL_KNOWN.removesuffix('index.json')}moving/a.md"
    assert httpx2.get(url).content == b"one"
    (server.data / "skills/moving/a.md").write_bytes(b"two")
    assert httpx2.get(url).status_code == 404
    (server.data / "skills/moving/a.md").unlink()
    assert httpx2.get(url).status_code == 404
    server.client.delete("/v1/skills/moving")


def test_a_skill_that_is_switched_off_is_not_listed(server: SkillsServer) -> None:
    server.post("/v1/skills/技能/disable")
    listed = httpx2.get(f"{server.url}{WELL_KNOWN}").json()["skills"]
    server.post("/v1/skills/技能/enable")
    names = {skill["name"] for skill in listed}
    assert "garden" in names
    assert "技能" not in names


def test_the_index_needs_a_key_unless_it_is_public(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with skills_server(make_config(tmp_path_factory.mktemp("closed"))) as closed:
        made = closed.install("secret")
        one = f"{WELL_KNOWN.removesuffix('index.json')}secret/SKILL.md"
        for path in (WELL_KNOWN, one):
            stranger = httpx2.get(f"{closed.url}{path}")
            assert error_code(stranger) == (401, "key_missing")
            chatter = {"Authorization": f"Bearer {closed.serving.key_for('chat')}"}
            refused = httpx2.get(f"{closed.url}{path}", headers=chatter)
            assert error_code(refused) == (403, "scope_missing")
            reader = {"Authorization": f"Bearer {closed.serving.key_for('skills:read')}"}
            assert httpx2.get(f"{closed.url}{path}", headers=reader).status_code == 200
        assert made["name"] in closed.get(WELL_KNOWN).text
