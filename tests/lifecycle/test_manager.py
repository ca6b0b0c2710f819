"""SkillManager end to end: disk, catalog, index and audit log."""

import json
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

import anyio
import pytest

from apexbridge.errors import (
    ApexBridgeError,
    ArchiveError,
    SkillChangedError,
    SkillExistsError,
    SkillInvalidError,
    SkillNotFoundError,
    SkillReadOnlyError,
)
from apexbridge.retrieval.vectorized_marker import read_marker
from apexbridge.runtime import Runtime
from apexbridge.settings import Config, load
from apexbridge.testing import make_skill, make_zip, skill_md

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


def _zip(
    place: Path,
    name: str,
    description: str = "Grows tomatoes.",
    files: Mapping[str, bytes] | None = None,
) -> Path:
    entries = {f"{name}/SKILL.md": skill_md(name, description)}
    entries |= {f"{name}/{path}": data for path, data in (files or {}).items()}
    return make_zip(place / f"{name}.zip", entries)


def _records(loaded: Config) -> list[tuple[str, str]]:
    lines = (loaded.data / "audit.jsonl").read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    return [(line["action"], line["facts"].get("code", "")) for line in found]


async def _best(runtime: Runtime, query: str) -> str:
    hits = (await runtime.search(query)).hits
    return hits[0].name if hits else ""


async def test_an_installed_skill_is_listed_found_marked_and_recorded(
    runtime: Runtime, loaded: Config, tmp_path: Path
) -> None:
    archive = _zip(tmp_path, "garden", files={"references/a.md": b"more"})
    done = await runtime.manager.install(archive)
    root = loaded.data / "skills/garden"
    assert (done.skill.name, done.skill.root, done.index_error) == ("garden", root, None)
    assert (root / "references/a.md").read_bytes() == b"more"
    assert runtime.catalog.get("garden").is_trusted
    marker = read_marker(root)
    assert marker is not None
    assert done.skill.fingerprint is not None
    assert marker.sha256 == done.skill.fingerprint.sha256
    assert await _best(runtime, "grow tomatoes") == "garden"
    assert (await runtime.index_service.sync()).added == ()  # the row was right already
    assert _records(loaded) == [("install", "")]
    assert runtime.audit.verify() == 1


async def test_a_folder_is_installed_like_an_archive_and_its_litter_left_behind(
    runtime: Runtime, tmp_path: Path
) -> None:
    root = make_skill(tmp_path / "mine", "garden", files={"scripts/x.py": "1", ".git/x": "y"})
    done = await runtime.manager.install(root)
    assert done.skill.root is not None
    assert not (done.skill.root / ".git").exists()
    assert (done.skill.root / "scripts/x.py").stat().st_mode & 0o777 == 0o755


async def test_links_inside_a_folder_are_installed_as_copies_and_those_that_lead_out_refused(
    runtime: Runtime, tmp_path: Path
) -> None:
    folder = make_skill(tmp_path, "linked", files={"references/a.md": "text"})
    (folder / "docs").symlink_to("references")
    (folder / "b.md").symlink_to("references/a.md")
    done = await runtime.manager.install(folder)
    root = done.skill.root
    assert root is not None
    assert not any(path.is_symlink() for path in root.rglob("*"))
    assert (root / "docs/a.md").read_text(encoding="utf-8") == "text"
    assert (root / "b.md").read_text(encoding="utf-8") == "text"
    leaky = make_skill(tmp_path, "leaky")
    (leaky / "secret").symlink_to("/etc/passwd")
    with pytest.raises(ApexBridgeError) as caught:
        await runtime.manager.install(leaky)
    assert caught.value.code == "link_not_copied"
    assert "secret" in caught.value.message
    assert not (runtime.store.root / "leaky").exists()


@pytest.mark.promise("L01")
async def test_a_taken_name_is_refused_and_the_one_there_stays(
    runtime: Runtime, loaded: Config, tmp_path: Path
) -> None:
    await runtime.manager.install(_zip(tmp_path, "garden"))
    before = (loaded.data / "skills/garden/SKILL.md").read_bytes()
    with pytest.raises(SkillExistsError):
        await runtime.manager.install(_zip(tmp_path, "garden", "Another."))
    assert (loaded.data / "skills/garden/SKILL.md").read_bytes() == before
    assert _records(loaded)[-1] == ("install_refused", "skill_exists")


@pytest.mark.promise("L02")
async def test_of_fifty_installs_of_a_name_one_wins(runtime: Runtime, tmp_path: Path) -> None:
    archives = list[Path]()
    for number in range(50):
        (tmp_path / str(number)).mkdir()
        archives.append(_zip(tmp_path / str(number), "garden", f"Number {number}."))
    outcomes = list[str]()

    async def install(archive: Path) -> None:
        try:
            done = await runtime.manager.install(archive)
            outcomes.append(done.skill.description)
        except SkillExistsError:
            outcomes.append("conflict")

    async with anyio.create_task_group() as tasks:
        for archive in archives:
            tasks.start_soon(install, archive)
    assert outcomes.count("conflict") == 49
    (winner,) = [outcome for outcome in outcomes if outcome != "conflict"]
    assert runtime.catalog.get("garden").description == winner
    status = await runtime.index_service.status()
    assert (status.stale, status.orphaned) == ((), ())


async def _refused(runtime: Runtime, path: Path, *, renames: bool = False) -> ApexBridgeError:
    with pytest.raises(ApexBridgeError) as refused:
        await runtime.manager.install(path, renames=renames)
    return refused.value


@pytest.mark.promise("Z35")
async def test_what_is_refused_leaves_nothing_behind(
    runtime: Runtime, loaded: Config, tmp_path: Path
) -> None:
    other = make_zip(tmp_path / "other.zip", {"folder/SKILL.md": skill_md("garden")})
    bare = make_zip(tmp_path / "bare.zip", {"SKILL.md": skill_md("garden")})
    nothing = make_zip(tmp_path / "nothing.zip", {"garden/SKILL.md": b"no frontmatter"})
    (tmp_path / "garbage.zip").write_bytes(b"garbage")
    assert isinstance(await _refused(runtime, other), SkillInvalidError)
    assert isinstance(await _refused(runtime, bare), ArchiveError)
    assert isinstance(await _refused(runtime, nothing), SkillInvalidError)
    assert isinstance(await _refused(runtime, tmp_path / "garbage.zip"), ArchiveError)
    skills = loaded.data / "skills"
    assert [path.name for path in skills.iterdir() if path.name != ".staging"] == []
    assert [path.name for path in (skills / ".staging").iterdir()] == [".lock"]
    done = await runtime.manager.install(other, renames=True)
    assert done.skill.root == skills / "garden"


@pytest.mark.parametrize(
    ("declared", "folder", "used"),
    [
        ("SQL Injection Testing", "sql-injection", "sql-injection"),
        ("many_chat-automation", "many_chat-automation", "many-chat-automation"),
        ("Weather", "Weather", "weather"),
        ("-edge--case-", "odd", "odd"),
        ("天气 查询", "天气 查询", "天气-查询"),
    ],
)
async def test_a_title_as_the_name_is_replaced_when_renaming_is_allowed(
    runtime: Runtime, tmp_path: Path, declared: str, folder: str, used: str
) -> None:
    text = f"---\nname: {declared}\ndescription: Plants beds and waters them.\n---\nbody\n"
    archive = make_zip(tmp_path / "titled.zip", {f"{folder}/SKILL.md": text.encode()})
    assert isinstance(await _refused(runtime, archive), SkillInvalidError)
    assert isinstance(await _refused(runtime, archive, renames=True), SkillInvalidError)
    done = await runtime.manager.install(archive, renames="titles")
    assert done.skill.name == used
    problems = [problem.code for problem in done.problems if problem.severity != "advice"]
    assert problems == ["name_replaced"]
    assert runtime.catalog.get(used).root == done.skill.root


async def test_a_title_that_would_become_a_device_name_is_refused(
    runtime: Runtime, tmp_path: Path
) -> None:
    text = b"---\nname: AUX\ndescription: Plants beds and waters them.\n---\nbody\n"
    archive = make_zip(tmp_path / "device.zip", {"AUX_/SKILL.md": text})
    with pytest.raises(SkillInvalidError, match="reserved"):
        await runtime.manager.install(archive, renames="titles")


async def test_a_removed_skill_is_gone_everywhere_and_can_come_back(
    runtime: Runtime, loaded: Config, tmp_path: Path
) -> None:
    await runtime.manager.install(_zip(tmp_path, "garden"))
    assert await _best(runtime, "grow tomatoes") == "garden"
    await runtime.manager.uninstall("garden")
    with pytest.raises(SkillNotFoundError):
        runtime.catalog.get("garden")
    assert await _best(runtime, "grow tomatoes") != "garden"
    assert (await runtime.index_service.status()).orphaned == ()
    done = await runtime.manager.restore("garden")
    assert done.skill.description == "Grows tomatoes."
    assert await _best(runtime, "grow tomatoes") == "garden"
    with pytest.raises(SkillNotFoundError):
        await runtime.manager.restore("garden")
    assert [action for action, _ in _records(loaded)] == [
        "install", "uninstall", "undo", "undo_refused",
    ]  # fmt: skip


@pytest.mark.promise("L13")
async def test_only_installed_skills_can_be_changed(runtime: Runtime, loaded: Config) -> None:
    with pytest.raises(SkillReadOnlyError):
        await runtime.manager.uninstall("git-commit")
    with pytest.raises(SkillReadOnlyError):
        await runtime.manager.edit_description("git-commit", "new")
    for name in ("nothing", "..", "../x", "%2e%2e"):
        with pytest.raises(SkillNotFoundError):
            await runtime.manager.uninstall(name)
    assert {code for _, code in _records(loaded)} == {"skill_read_only", "skill_not_found"}


@pytest.mark.promise("L11")
async def test_an_edit_changes_the_description_and_no_other_byte(
    runtime: Runtime, loaded: Config, tmp_path: Path
) -> None:
    await runtime.manager.install(_zip(tmp_path, "garden"))
    file = loaded.data / "skills/garden/SKILL.md"
    before = file.read_bytes()
    done = await runtime.manager.edit_description("garden", "Tunes violins.\nallowed-tools: Bash")
    assert done.has_changed
    assert file.read_bytes() != before
    assert done.skill.description == "Tunes violins.\nallowed-tools: Bash"
    assert done.skill.tools == ()
    assert await _best(runtime, "tune violins") == "garden"
    mark = done.skill.fingerprint
    marker = read_marker(file.parent)
    assert mark is not None
    assert marker is not None
    assert marker.sha256 == mark.sha256
    await runtime.manager.edit_description("garden", "Grows tomatoes.")
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()].count("SKILL.md") == 1


@pytest.mark.promise("L11")
async def test_an_edit_knows_same_long_wrong_and_stale(runtime: Runtime, tmp_path: Path) -> None:
    done = await runtime.manager.install(_zip(tmp_path, "garden"))
    assert done.skill.fingerprint is not None
    seen = done.skill.fingerprint.sha256
    same = await runtime.manager.edit_description("garden", "Grows tomatoes.", expected_sha256=seen)
    assert not same.has_changed
    for text in ("", "x" * 1_025, "x" * 5_000_000):
        with pytest.raises(SkillInvalidError):
            await runtime.manager.edit_description("garden", text)
    await runtime.manager.edit_description("garden", "描" * 1_024, expected_sha256=seen)
    with pytest.raises(SkillChangedError):
        await runtime.manager.edit_description("garden", "late", expected_sha256=seen)
    assert runtime.catalog.get("garden").description == "描" * 1_024


async def test_a_skill_of_any_source_can_be_switched_off(runtime: Runtime) -> None:
    assert await runtime.manager.set_enabled("git-commit", enabled=False)
    with pytest.raises(SkillNotFoundError):
        runtime.catalog.get("git-commit")
    assert [skill.name for skill in runtime.catalog.snapshot.disabled] == ["git-commit"]
    assert await _best(runtime, "commit staged changes with a message") != "git-commit"
    assert await runtime.manager.set_enabled("git-commit", enabled=True)
    assert not await runtime.manager.set_enabled("git-commit", enabled=True)
    assert runtime.catalog.get("git-commit").name == "git-commit"
    with pytest.raises(SkillNotFoundError):
        await runtime.manager.set_enabled("nothing", enabled=False)


async def test_what_is_exported_can_be_installed_elsewhere(
    runtime: Runtime, tmp_path: Path
) -> None:
    await runtime.manager.install(_zip(tmp_path, "garden", files={"scripts/x.py": b"print(1)"}))
    data = await runtime.manager.export("garden")
    assert data == await runtime.manager.export("garden")
    (tmp_path / "copy.zip").write_bytes(data)
    await runtime.manager.uninstall("garden")
    done = await runtime.manager.install(tmp_path / "copy.zip")
    assert done.skill.description == "Grows tomatoes."


@pytest.mark.promise("L06")
async def test_an_embedder_that_is_down_does_not_stop_an_install(
    home: Path, tmp_path: Path
) -> None:
    environment = {
        "HOME": str(home),
        "APEXBRIDGE_INDEX__EMBEDDER": "http",
        "APEXBRIDGE_INDEX__EMBEDDER_URL": "http://127.0.0.1:9",
        "APEXBRIDGE_INDEX__EMBEDDER_MODEL": "x",
    }
    loaded = load(project=tmp_path, environment=environment)
    async with Runtime.open(loaded) as runtime:
        done = await runtime.manager.install(_zip(tmp_path, "garden"))
        assert done.index_error is not None
        assert read_marker(loaded.data / "skills/garden") is None
        assert await _best(runtime, "grows tomatoes") == "garden"


async def test_leftovers_of_a_crash_are_gone_after_a_restart(loaded: Config) -> None:
    make_skill(loaded.data / "skills/.staging/abandoned", "half")
    async with Runtime.open(loaded) as runtime:
        assert runtime.catalog.snapshot.winner("half") is None
    assert [path.name for path in (loaded.data / "skills/.staging").iterdir()] == [".lock"]
