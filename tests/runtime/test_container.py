"""Composition root: all sources that settings and project layout define."""

from pathlib import Path

import pytest

from apexbridge.errors import SkillNotFoundError
from apexbridge.runtime import Runtime
from apexbridge.settings import Config, load
from apexbridge.skills.model import Origin, Provenance, Skill, SkillManifest
from apexbridge.testing import make_skill

pytestmark = pytest.mark.anyio


def _load(home: Path, project: Path, **variables: str) -> Config:
    return load(project=project, environment={"HOME": str(home), **variables})


async def _origins(loaded: Config) -> dict[str, Origin]:
    async with Runtime.open(loaded) as runtime:
        found = runtime.catalog.snapshot.skills
    return {s.name: s.provenance.origin for s in found if s.provenance.origin is not Origin.BUNDLED}


async def test_skills_of_every_place_are_found(home: Path, tmp_path: Path) -> None:
    repository = tmp_path / "repo"
    project = repository / "packages/app"
    project.mkdir(parents=True)
    (repository / ".git").mkdir()
    make_skill(tmp_path / "managed", "m")
    make_skill(home / ".claude/skills", "u")
    make_skill(project / ".agents/skills", "p")
    make_skill(repository / ".claude/skills", "above")
    make_skill(tmp_path / ".claude/skills", "beyond-the-repository")
    make_skill(home / ".local/share/apexbridge/skills", "i")
    make_skill(project / "extra/skills", "e")
    loaded = _load(
        home,
        project,
        APEXBRIDGE_SKILLS__MANAGED_PATH=str(tmp_path / "managed"),
        APEXBRIDGE_SKILLS__PATHS="extra:missing",
        APEXBRIDGE_DATA_DIR=str(home / ".local/share/apexbridge"),
    )
    assert await _origins(loaded) == {
        "m": Origin.MANAGED,
        "u": Origin.USER,
        "p": Origin.PROJECT,
        "above": Origin.PROJECT,
        "i": Origin.INSTALLED,
        "e": Origin.ADDITIONAL,
    }


async def test_the_nearest_project_folder_wins(home: Path, tmp_path: Path) -> None:
    (tmp_path / "repo/.git").mkdir(parents=True)
    make_skill(tmp_path / "repo/.claude/skills", "x", description="far")
    make_skill(tmp_path / "repo/app/.claude/skills", "x", description="near")
    async with Runtime.open(_load(home, tmp_path / "repo/app")) as runtime:
        assert runtime.catalog.get("x").description == "near"
        assert len(runtime.catalog.snapshot.shadowed) == 1


async def test_looking_up_for_projects_ends_at_home(home: Path) -> None:
    (home / "work").mkdir()
    make_skill(home / ".apexbridge/skills", "mine")
    assert await _origins(_load(home, home / "work")) == {"mine": Origin.USER}


async def test_a_clone_in_skills_paths_brings_the_skills_of_every_published_folder(
    home: Path, tmp_path: Path
) -> None:
    clone, project = tmp_path / "clone", tmp_path / "project"
    project.mkdir()
    places = [
        "skills/a",
        "skills/group/b",
        "skills/.curated/c",
        "skills/.experimental/d",
        ".github/plugins/tool/skills/e",
        ".github/skills/f",
        ".claude/skills/g",
        "plugins/one/skills/h",
    ]
    for place in (*places, ".cache/x", "skills/.drafts/y", ".git/skills/z"):
        make_skill(clone / place.rpartition("/")[0], place.rpartition("/")[2])
    paths = {
        "APEXBRIDGE_SKILLS__PATHS": str(clone),
        "APEXBRIDGE_SKILLS__ALLOW_EXTERNAL_PATHS": "yes",
    }
    mirror = clone / ".gemini/skills/a"
    mirror.mkdir(parents=True)
    (mirror / "SKILL.md").symlink_to("../../../skills/a/SKILL.md")
    async with Runtime.open(_load(home, project, **paths)) as runtime:
        assert {p.severity for p in runtime.catalog.snapshot.problems} == {"warning"}
        found = {s.name for s in runtime.catalog.skills if s.provenance.origin == "additional"}
        assert found == set("abcdefgh")
        skipped = [
            str(problem.details["path"]).removeprefix(f"{clone}/")
            for problem in runtime.catalog.snapshot.problems
            if problem.code == "folder_not_searched"
        ]
        assert sorted(skipped) == [".cache", ".drafts"]


async def test_a_clone_without_a_folder_of_skills_is_searched_itself(
    home: Path, tmp_path: Path
) -> None:
    make_skill(tmp_path / "clone/.curated", "a")
    make_skill(tmp_path / "clone/tools", "b")
    (tmp_path / "project").mkdir()
    paths = {
        "APEXBRIDGE_SKILLS__PATHS": str(tmp_path / "clone"),
        "APEXBRIDGE_SKILLS__ALLOW_EXTERNAL_PATHS": "yes",
    }
    loaded = _load(home, tmp_path / "project", **paths)
    assert await _origins(loaded) == {"a": Origin.ADDITIONAL, "b": Origin.ADDITIONAL}


async def test_paths_out_of_the_project_need_a_word_of_consent(home: Path, tmp_path: Path) -> None:
    make_skill(tmp_path / "outside", "o")
    project = tmp_path / "project"
    project.mkdir()
    path = {"APEXBRIDGE_SKILLS__PATHS": str(tmp_path / "outside")}
    async with Runtime.open(_load(home, project, **path)) as runtime:
        assert [p.code for p in runtime.catalog.snapshot.problems] == ["path_external"]
    consent = {**path, "APEXBRIDGE_SKILLS__ALLOW_EXTERNAL_PATHS": "yes"}
    assert await _origins(_load(home, project, **consent)) == {"o": Origin.ADDITIONAL}


async def test_a_home_in_a_path_is_ones_own(home: Path, tmp_path: Path) -> None:
    make_skill(home / "shared", "s")
    variables = {
        "APEXBRIDGE_SKILLS__PATHS": "~/shared",
        "APEXBRIDGE_SKILLS__ALLOW_EXTERNAL_PATHS": "1",
    }
    assert await _origins(_load(home, tmp_path, **variables)) == {"s": Origin.ADDITIONAL}


async def test_one_folder_by_two_ways_is_scanned_once(home: Path, tmp_path: Path) -> None:
    make_skill(home / ".claude/skills", "x")
    (home / ".agents").symlink_to(home / ".claude")
    async with Runtime.open(_load(home, tmp_path)) as runtime:
        there = [state.source.id for state in runtime.catalog.states if state.is_there()]
        assert len(there) == 2  # and the bundled ones
        assert runtime.catalog.snapshot.shadowed == ()


async def test_a_source_that_is_down_is_a_problem_beside_the_others(
    home: Path, tmp_path: Path
) -> None:
    make_skill(home / ".claude/skills", "x")
    (home / ".agents").mkdir()
    (home / ".agents/skills").write_bytes(b"a file")
    async with Runtime.open(_load(home, tmp_path)) as runtime:
        assert runtime.catalog.get("x").name == "x"
        assert [p.code for p in runtime.catalog.snapshot.problems] == ["source_unreadable"]


async def test_a_skill_is_found_by_name_and_a_slip_is_helped(home: Path) -> None:
    async with Runtime.open(_load(home, home)) as runtime:
        assert runtime.catalog.get(" /git-commit ").name == "git-commit"
        with pytest.raises(SkillNotFoundError) as caught:
            runtime.catalog.get("git-comit")
        assert caught.value.near == ("git-commit",)


async def test_a_skill_of_no_known_source_has_no_content(home: Path) -> None:
    stranger = Skill(
        name="x",
        description="d",
        manifest=SkillManifest(),
        provenance=Provenance(origin=Origin.MCP, source_id="mcp:gone"),
    )
    async with Runtime.open(_load(home, home)) as runtime:
        with pytest.raises(SkillNotFoundError):
            await runtime.catalog.content(stranger)
