"""Well-known skill index, read by our own discovery source."""

import hashlib
from collections.abc import Generator, Sequence
from pathlib import PurePosixPath

import anyio
import httpx2
import pytest

from apexbridge.lifecycle.zip.contents import read_skill_archive
from apexbridge.runtime import Runtime
from apexbridge.skills.model import Skill
from apexbridge.sources.remote.discovery import LEGACY_WELL_KNOWN, WELL_KNOWN, parse_index
from apexbridge.testing import skill_md
from tests.server.skills_server import (
    SkillsServer,
    error_code,
    make_config,
    raw_status,
    skill_zip,
    skills_server,
)

FILES = {
    "references/soil.md": b"Loam.\n",
    "scripts/main.py": b"print(1)\n",
    "图.md": b"x\n",
    "assets/page.html": b"<!doctype html><p>",
    "assets/dot.png": bytes(range(256)),
    "evals/cases.json": b"{}",
}
GARDEN = skill_md("garden", "Grows tomatoes.")


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
    assert reply.json()["skipped"] == []
    garden = listing.entries[names.index("garden")]
    assert garden.kind == "archive"
    archive = httpx2.get(garden.url)
    assert archive.headers["content-type"] == "application/zip"
    assert hashlib.sha256(archive.content).hexdigest() == garden.sha256
    assert read_skill_archive(archive.content) == {"SKILL.md": GARDEN, **FILES}
    plain = listing.entries[names.index("技能")]
    text = httpx2.get(plain.url)
    assert (plain.kind, text.content) == ("text", skill_md("技能", "种番茄。"))
    assert text.headers["content-disposition"] == "attachment"


def test_the_index_of_0_1_lists_every_file_of_skills_with_names_of_the_specification(
    server: SkillsServer,
) -> None:
    reply = httpx2.get(f"{server.url}{LEGACY_WELL_KNOWN}").json()
    garden = next(skill for skill in reply["skills"] if skill["name"] == "garden")
    assert set(garden["files"]) == {"SKILL.md", *FILES}
    assert [skill["name"] for skill in reply["skipped"]] == ["技能"]
    place = f"{server.url}{LEGACY_WELL_KNOWN.removesuffix('index.json')}garden/"
    for path, data in FILES.items():
        assert httpx2.get(f"{place}{path}").content == data


def test_a_long_description_is_cut_for_other_programs(server: SkillsServer) -> None:
    server.install("long", "种" * 1_000 + "🌱" * 12)
    server.install("longer", "🌱" * 600)
    listed = httpx2.get(f"{server.url}{WELL_KNOWN}").json()["skills"]
    lengths = {s["name"]: len(s["description"].encode("utf-16-le")) // 2 for s in listed}
    assert (lengths["long"], lengths["longer"]) == (1_024, 1_024)
    server.client.delete("/v1/skills/long")
    server.client.delete("/v1/skills/longer")


def test_a_skill_that_cannot_be_packed_is_skipped_and_the_index_says_so(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    place = tmp_path_factory.mktemp("links")
    config = make_config(place, server={"public_index": True})
    folder = place / "home/.apexbridge/skills/linked"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_bytes(skill_md("linked"))
    (folder / "a.md").symlink_to("/etc/hostname")
    (folder / "b.md").write_bytes(b"b")
    with skills_server(config) as running:
        reply = httpx2.get(f"{running.url}{WELL_KNOWN}").json()
        (skipped,) = reply["skipped"]
        assert skipped["name"] == "linked"
        assert "a.md" in skipped["reason"]
        assert not any(skill["name"] == "linked" for skill in reply["skills"])
        assert httpx2.get(f"{running.url}/.well-known/agent-skills/linked.zip").status_code == 404


def test_our_own_source_finds_and_reads_what_another_server_gives(
    server: SkillsServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    remote = {"indexes": [server.url], "allow_networks": ["127.0.0.0/8"]}
    loaded = make_config(tmp_path_factory.mktemp("reader"), remote=remote)

    async def read() -> tuple[Sequence[Skill], bytes, dict[str, bytes]]:
        async with Runtime.open(loaded) as runtime:
            skills = [s for s in runtime.catalog.skills if s.provenance.origin == "remote"]
            garden = runtime.catalog.get("_canonical_garden")
            source = runtime.catalog.source_of(garden).source
            text = await source.resource(garden, PurePosixPath("SKILL.md"))
            files = {
                path: (await source.resource(garden, PurePosixPath(path))).data for path in FILES
            }
            return skills, text.data, files

    skills, text, files = anyio.run(read)
    names = {skill.name for skill in skills}
    assert {"_canonical_garden", "_canonical_技能"} <= names
    assert len(names) == len(server.runtime.catalog.snapshot.skills)
    assert (text, files) == (GARDEN, FILES)


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
        "garden/references",
        "garden/",
        "../index.json",
        "nowhere/SKILL.md",
        "nowhere.zip",
        "%E6%8A%80%E8%83%BD.zip",
        "%2e%2e/SKILL.md",
    ],
)
def test_only_listed_files_are_served(server: SkillsServer, path: str) -> None:
    assert raw_status(server, "GET", WELL_KNOWN.removesuffix("index.json") + path) == 404


def test_a_file_that_changed_since_the_index_is_not_served(server: SkillsServer) -> None:
    server.send("/v1/skills", ("a.zip", skill_zip("moving", files={"a.md": b"one"})))
    url = f"{server.url}{WELL_KNOWN.removesuffix('index.json')}moving/a.md"
    assert httpx2.get(url).content == b"one"
    archive = f"{server.url}{WELL_KNOWN.removesuffix('index.json')}moving.zip"
    assert httpx2.get(archive).status_code == 200
    (server.data / "skills/moving/a.md").write_bytes(b"two")
    assert httpx2.get(url).status_code == 404
    assert httpx2.get(archive).status_code == 404
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
