"""Claims of the skill formats about install, uninstall and the index, each by its own words."""

import json
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from apexbridge.lifecycle.source_records import SourceRecord
from apexbridge.retrieval.tags import Tags, TagStore
from apexbridge.runtime import Runtime
from apexbridge.settings import Config, load
from apexbridge.testing import make_skill, make_zip, skill_md
from tests.cli.in_process import call
from tests.sources.mcp.server_processes import HERE as MCP
from tests.sources.mcp.server_processes import Offer

pytestmark = pytest.mark.anyio


@pytest.fixture
def loaded(home: Path, tmp_path: Path) -> Config:
    (tmp_path / "project").mkdir()
    environment = {
        "HOME": str(home),
        "APEXBRIDGE_DATA_DIR": str(tmp_path / "data"),
        "APEXBRIDGE_INDEX__EMBEDDER": "hash",
    }
    return load(project=tmp_path / "project", environment=environment)


@pytest.fixture
async def runtime(loaded: Config) -> AsyncGenerator[Runtime]:
    async with Runtime.open(loaded) as runtime:
        yield runtime


def _archive(place: Path, text: str) -> Path:
    return make_zip(place / "garden.zip", {"garden/SKILL.md": skill_md("garden", text)})


async def _use_everything(runtime: Runtime, tmp_path: Path) -> set[str]:
    """Install, update, pin, use, tag and disable a skill; return the hashes of its versions."""
    manager = runtime.manager
    await manager.install(_archive(tmp_path, "Grows tomatoes."))
    await manager.update(_archive(tmp_path, "Grows beans."))
    await manager.versions.pin("garden")
    hashes = {version.sha256 for version in await manager.versions.list("garden")}
    runtime.usage.record("garden", time.time())
    for sha256 in hashes:
        TagStore(runtime.config.data / "tags").put(sha256, Tags(tags=("plants",), by="m"))
    await manager.set_enabled("garden", enabled=False)
    manager.sources.put("garden", SourceRecord(source="https://example.org/garden.zip"))
    return hashes


def _files_of(data: Path, hashes: set[str]) -> list[str]:
    """Return the files outside of the trash that carry one of the hashes in their name."""
    found = (path.relative_to(data) for path in data.rglob("*") if path.stem in hashes)
    return sorted(str(path) for path in found if "trash" not in str(path))


async def test_uninstall_cleans_the_metadata(
    runtime: Runtime, loaded: Config, tmp_path: Path
) -> None:
    hashes = await _use_everything(runtime, tmp_path)
    assert len(hashes) == 2
    assert len(_files_of(loaded.data, hashes)) >= 4  # tags and verdicts of two versions
    await runtime.manager.uninstall("garden")
    assert _files_of(loaded.data, hashes) == []
    assert runtime.manager.sources.get("garden") is None
    # The next skill of that name inherits neither state nor pin, usage, versions, tags, verdicts.
    await runtime.manager.install(_archive(tmp_path, "Sells gardens."))
    assert "garden" in runtime.catalog.snapshot.by_name
    assert (runtime.states.disabled(), runtime.states.pinned()) == (frozenset(), {})
    assert runtime.usage.count("garden") == 0
    assert len(await runtime.manager.versions.list("garden")) == 1
    assert (await runtime.manager.edit_description("garden", "Sells plots.")).has_changed


async def test_undo_brings_the_metadata_back(
    runtime: Runtime, loaded: Config, tmp_path: Path
) -> None:
    hashes = await _use_everything(runtime, tmp_path)
    before = _files_of(loaded.data, hashes)
    await runtime.manager.uninstall("garden")
    await runtime.manager.restore("garden")
    assert _files_of(loaded.data, hashes) == before
    assert runtime.states.disabled() == {"garden"}
    assert runtime.states.pinned().keys() == {"garden"}
    assert runtime.usage.count("garden") == 1
    assert {v.sha256 for v in await runtime.manager.versions.list("garden")} == hashes
    assert list((loaded.data / "skills/.trash").iterdir()) == []


async def test_versions_left_by_a_crash_go_to_the_trash_with_their_skill(
    runtime: Runtime, loaded: Config, tmp_path: Path
) -> None:
    hashes = await _use_everything(runtime, tmp_path)
    store = runtime.store
    entry = store.uninstall("garden")  # killed after the rename: the versions are still there
    assert store.versions.created("garden")
    store.recover(keep_seconds=1_000)
    assert store.versions.created("garden") == {}
    store.restore(entry)
    assert set(store.versions.created("garden")) < hashes


async def test_a_disabled_name_of_another_source_stays_disabled(
    home: Path, loaded: Config, tmp_path: Path
) -> None:
    make_skill(home / ".claude/skills", "garden", description="The user's own.")
    async with Runtime.open(loaded) as runtime:
        await runtime.manager.set_enabled("garden", enabled=False)
        await runtime.manager.install(_archive(tmp_path, "Grows tomatoes."))
        assert "garden" not in runtime.catalog.snapshot.by_name
        assert runtime.states.disabled() == {"garden"}


def test_rm_by_name_removes_a_switched_off_skill(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    assert call("add", str(_archive(tmp_path, "Grows tomatoes.")), "--yes").code == 0
    assert call("disable", "garden").code == 0
    assert call("show", "garden", "--json").data["name"] == "garden"
    gone = call("rm", "garden", "--yes")
    assert gone.code == 0, gone.err
    assert call("rm", "garden", "--yes", "--json").code == 3


def test_rm_by_name_removes_an_installed_skill_that_another_source_shadows(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    assert call("add", str(_archive(tmp_path, "Grows tomatoes.")), "--yes").code == 0
    own = make_skill(home / ".claude/skills", "garden")
    assert call("show", "garden", "--json").data["source"].startswith("user:")
    gone = call("rm", "garden", "--yes")
    assert gone.code == 0, gone.err
    assert (own / "SKILL.md").is_file()
    assert "skill_read_only" in call("rm", "garden", "--yes").err


async def test_mcp_prompts_with_a_required_argument_are_skills(home: Path, tmp_path: Path) -> None:
    (tmp_path / "offer").mkdir()
    (tmp_path / "project").mkdir()
    offer = Offer(tmp_path / "offer")
    arguments = [{"name": "branch_name", "required": True}, {"name": "base"}]
    offer.say(
        prompts=[
            {"name": "compare", "description": "Compares code.", "arguments": arguments},
            {"name": "greet", "description": "Greets someone."},
        ]
    )
    argv = {"command": sys.executable, "args": [str(MCP / "sdk_server.py"), str(offer.place)]}
    environment = {
        "HOME": str(home),
        "APEXBRIDGE_MCP__SERVERS": json.dumps({"far": argv}),
        "APEXBRIDGE_INDEX__EMBEDDER": "hash",
    }
    loaded = load(project=tmp_path / "project", environment=environment)
    async with Runtime.open(loaded) as runtime:
        report = await runtime.index_service.sync()
        assert report.failed == ()
        assert {"mcp__far__compare", "mcp__far__greet"} <= set(report.added)
        assert (await runtime.index_service.status()).missing == ()
        hits = (await runtime.search("compares code of a branch")).hits
        assert hits[0].name == "mcp__far__compare"
