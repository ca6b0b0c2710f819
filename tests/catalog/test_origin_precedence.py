"""No folder, symlink or file of a cloned project gains the rank of the user's own skills."""

import json
from pathlib import Path

import pytest

from apexbridge.runtime import Runtime
from apexbridge.settings import Config, load
from apexbridge.skills.model import Origin, Skill
from apexbridge.testing import make_skill

pytestmark = pytest.mark.anyio


@pytest.fixture
def project(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    return place


def _loaded(home: Path, project: Path, **variables: str) -> Config:
    return load(project=project, environment={"HOME": str(home), **variables})


async def _skills(loaded: Config) -> dict[str, Skill]:
    async with Runtime.open(loaded) as runtime:
        skills = runtime.catalog.snapshot.skills
    return {s.name: s for s in skills if s.provenance.origin is not Origin.BUNDLED}


async def test_a_managed_folder_is_never_looked_for_in_the_project(
    home: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    for place in ("~/managed", "managed"):
        make_skill(project / place, "theirs")
        loaded = _loaded(home, project, APEXBRIDGE_SKILLS__MANAGED_PATH=place)
        assert await _skills(loaded) == {}
    make_skill(home / "managed", "ours")
    loaded = _loaded(home, project, APEXBRIDGE_SKILLS__MANAGED_PATH="~/managed")
    assert (await _skills(loaded))["ours"].provenance.origin is Origin.MANAGED


async def test_a_link_in_the_project_makes_no_folder_outside_ones_own(
    home: Path, project: Path, tmp_path: Path
) -> None:
    make_skill(tmp_path / "other/skills", "theirs")
    (project / "team").symlink_to("../other/skills")
    consent = {"APEXBRIDGE_SKILLS__ALLOW_EXTERNAL_PATHS": "yes"}
    loaded = _loaded(home, project, APEXBRIDGE_SKILLS__PATHS="team", **consent)
    assert not (await _skills(loaded))["theirs"].is_trusted
    written = str(tmp_path / "other/skills")
    loaded = _loaded(home, project, APEXBRIDGE_SKILLS__PATHS=written, **consent)
    assert (await _skills(loaded))["theirs"].is_trusted


async def test_a_project_that_points_to_installed_skills_takes_nothing_from_them(
    home: Path, project: Path
) -> None:
    own = _loaded(home, project).data / "skills"
    make_skill(own, "mine")
    (project / ".claude/skills").mkdir(parents=True)
    (project / ".claude/skills/mine").symlink_to(own / "mine")
    chosen = f"[skills]\nproject_paths = {json.dumps(['.claude/skills', str(own)])}\n"
    (project / "apexbridge.toml").write_text(chosen, encoding="utf-8")
    mine = (await _skills(_loaded(home, project)))["mine"]
    assert (mine.provenance.origin, mine.is_trusted) == (Origin.INSTALLED, True)


async def test_rings_of_links_where_skills_could_lie_hold_none(home: Path, project: Path) -> None:
    (project / ".claude").mkdir()
    for ring in (".claude/skills", ".claude/commands", "more"):
        (project / ring).symlink_to(project / ring)
    make_skill(home / ".claude/skills", "mine")
    loaded = _loaded(home, project, APEXBRIDGE_SKILLS__PATHS="more")
    assert set(await _skills(loaded)) == {"mine"}


async def test_looking_up_ends_at_a_home_that_is_a_link(home: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(home)
    (home / "project").mkdir()
    make_skill(tmp_path / ".claude/skills", "above-home")
    make_skill(home / ".claude/skills", "mine")
    found = await _skills(_loaded(tmp_path / "link", home / "project"))
    assert {name: skill.is_trusted for name, skill in found.items()} == {"mine": True}
