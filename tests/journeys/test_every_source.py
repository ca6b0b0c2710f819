"""Every source at once, with name conflicts between each pair of origins."""

import itertools
import json
import os
import signal
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from apexbridge.catalog.path_activation import PathActivation, paths_in_command
from apexbridge.errors import SkillNotInvocableError
from apexbridge.runtime import Runtime
from apexbridge.settings import Config, load
from apexbridge.skills.model import Origin, Skill
from apexbridge.testing import make_skill, skill_md
from tests.sources.mcp.server_processes import HERE, Offer
from tests.sources.remote.http_site import Site, publish

pytestmark = [pytest.mark.anyio, pytest.mark.unmeasured]

PLAIN = (
    Origin.MANAGED, Origin.USER, Origin.PROJECT, Origin.INSTALLED, Origin.ADDITIONAL,
    Origin.LEGACY,
)  # fmt: skip
"""Origins whose skills have plain names, strongest first; the bundled ones stand before legacy."""
BUNDLED = {
    Origin.MANAGED: "changelog",
    Origin.USER: "csv-report",
    Origin.PROJECT: "git-commit",
    Origin.INSTALLED: "meeting-minutes",
    Origin.ADDITIONAL: "skill-creator",
    Origin.LEGACY: "test-guide",
}
MANY = 10_000


@dataclass(frozen=True)
class World:
    """A machine on which skills lie in every place there is."""

    home: Path
    project: Path
    offer: Offer
    settings: dict[str, str]

    def loaded(self) -> Config:
        environment = {"HOME": str(self.home), **self.settings}
        return load(project=self.project, environment=environment)


@pytest.fixture
def world(home: Path, tmp_path: Path) -> Generator[World]:
    repository = tmp_path / "repository"
    project = repository / "packages/app"
    project.mkdir(parents=True)
    (repository / ".git").mkdir()
    data = tmp_path / "data"
    roots = {
        Origin.MANAGED: tmp_path / "managed",
        Origin.USER: home / ".claude/skills",
        Origin.PROJECT: project / ".agents/skills",
        Origin.INSTALLED: data / "skills",
        Origin.ADDITIONAL: project / "extra/skills",
        Origin.LEGACY: project / ".claude/commands",
    }
    _claim_pairs(roots)
    _make_plugin(tmp_path / "plugin")
    (roots[Origin.LEGACY] / "tidy").mkdir()
    (roots[Origin.LEGACY] / "tidy/up.md").write_text("Takes the plugin's name.", encoding="utf-8")
    _make_labyrinth(roots[Origin.USER], tmp_path)
    (tmp_path / "offer").mkdir()
    offer = Offer(tmp_path / "offer")
    offer.say(prompts=[{"name": "greet", "description": "Greets someone by name."}])
    offer.skills({"measure": {"SKILL.md": skill_md("measure", "Measures rooms.")}})
    # A folder of the user's that would like to be the server's.
    make_skill(roots[Origin.USER], "mcp__far__greet", description="An impostor.")
    with Site() as site:
        publish(site, {"polish": {"SKILL.md": skill_md("polish", "Polishes lenses.")}})
        servers = {
            "far": {
                "command": sys.executable,
                "args": [str(HERE / "sdk_server.py"), str(offer.place)],
            }
        }
        settings = {
            "APEXBRIDGE_DATA_DIR": str(data),
            "APEXBRIDGE_SKILLS__MANAGED_PATH": str(roots[Origin.MANAGED]),
            "APEXBRIDGE_SKILLS__PATHS": "extra",
            "APEXBRIDGE_PLUGINS__PATHS": str(tmp_path / "plugin"),
            "APEXBRIDGE_MCP__SERVERS": json.dumps(servers),
            "APEXBRIDGE_REMOTE__INDEXES": site.url(),
            "APEXBRIDGE_REMOTE__ALLOW_NETWORKS": "127.0.0.0/8",
            "APEXBRIDGE_INDEX__EMBEDDER": "hash",
        }
        yield World(home, project, offer, settings)


def _claim_pairs(roots: dict[Origin, Path]) -> None:
    """For each pair of origins a name that both have, and one name that each has alone."""
    for strong, weak in itertools.combinations(PLAIN, 2):
        for origin in (strong, weak):
            _put(roots[origin], origin, f"{strong}-or-{weak}")
    for origin, root in roots.items():
        _put(root, origin, f"only-{origin}")
        _put(root, origin, BUNDLED[origin])


def _put(root: Path, origin: Origin, name: str) -> None:
    if origin is Origin.LEGACY:
        root.mkdir(parents=True, exist_ok=True)
        (root / f"{name}.md").write_text(f"Comes from {origin}.", encoding="utf-8")
    else:
        make_skill(root, name, description=f"Comes from {origin}.")


def _make_plugin(place: Path) -> None:
    (place / ".claude-plugin").mkdir(parents=True)
    about = {"name": "tidy", "version": "1.0.0"}
    (place / ".claude-plugin/plugin.json").write_text(json.dumps(about), encoding="utf-8")
    make_skill(place / "skills", "up", description="Tidies up.")


def _make_labyrinth(root: Path, tmp_path: Path) -> None:
    """Links that go round in circles, to one skill twice, and nowhere."""
    (root / "round").mkdir()
    (root / "round/again").symlink_to(root)
    (root / "round/self").symlink_to(root / "round/self")
    real = make_skill(tmp_path / "elsewhere", "linked", description="Lies elsewhere.")
    (root / "one").symlink_to(real)
    (root / "two").symlink_to(real)
    (root / "nowhere").symlink_to(tmp_path / "nothing")
    make_skill(root / "node_modules/pkg", "never")
    make_skill(root / ".hidden", "never-either")


def _winners(skills: tuple[Skill, ...]) -> dict[str, Origin]:
    return {skill.name: skill.provenance.origin for skill in skills}


async def test_the_catalogue_is_what_everyone_would_expect(world: World) -> None:
    async with Runtime.open(world.loaded()) as runtime:
        snapshot = runtime.catalog.snapshot
    expected = {f"{strong}-or-{weak}": strong for strong, weak in itertools.combinations(PLAIN, 2)}
    expected |= {f"only-{origin}": origin for origin in PLAIN}
    expected |= {name: origin for origin, name in BUNDLED.items()}
    expected["test-guide"] = Origin.BUNDLED  # older clients' commands are the weakest of all
    expected |= {
        "linked": Origin.USER,
        "tidy:up": Origin.PLUGIN,
        "mcp__far__greet": Origin.MCP,
        "mcp__far__measure": Origin.MCP,
        "_canonical_polish": Origin.REMOTE,
        "mcp-far-greet": Origin.USER,
    }
    assert _winners(snapshot.skills) == expected
    hidden = [(skill.name, skill.provenance.origin) for skill in snapshot.shadowed]
    weak = [(f"{one}-or-{other}", other) for one, other in itertools.combinations(PLAIN, 2)]
    weak += [(name, Origin.BUNDLED) for name in BUNDLED.values() if name != "test-guide"]
    weak += [("test-guide", Origin.LEGACY), ("tidy:up", Origin.LEGACY)]
    assert sorted(hidden) == sorted(weak)
    reasons = [p for p in snapshot.problems if p.code == "skill_shadowed"]
    assert len(reasons) == len(weak)
    assert {p.code for p in snapshot.problems} == {
        "skill_shadowed",
        "name_replaced",  # the impostor's
        "name_mismatch",  # of the link that has another name than the skill
    }


async def test_what_others_bring_waits_for_a_persons_word(world: World) -> None:
    async with Runtime.open(world.loaded()) as runtime:
        skills = runtime.catalog.snapshot.skills
        waiting = {skill.provenance.origin for skill in skills if not skill.is_trusted}
        assert waiting == {
            Origin.PROJECT, Origin.ADDITIONAL, Origin.PLUGIN, Origin.MCP, Origin.REMOTE,
            Origin.LEGACY,
        }  # fmt: skip
        await runtime.approve([skill for skill in skills if not skill.is_trusted])
        again = runtime.catalog.snapshot.skills
        assert all(skill.is_trusted for skill in again)
        network = {s.name for s in again if s.provenance.origin in {Origin.MCP, Origin.REMOTE}}
        assert {skill.name for skill in again if not skill.may_run_shell} == network


async def test_another_order_of_precedence_turns_the_winners_round(world: World) -> None:
    world.settings["APEXBRIDGE_SKILLS__PRECEDENCE"] = "legacy bundled user managed"
    async with Runtime.open(world.loaded()) as runtime:
        winners = _winners(runtime.catalog.snapshot.skills)
    assert winners["user-or-legacy"] == Origin.LEGACY
    assert winners["csv-report"] == Origin.BUNDLED
    assert winners["tidy:up"] == Origin.LEGACY
    assert winners["managed-or-user"] == Origin.MANAGED  # policy is above any order
    assert winners["project-or-installed"] == Origin.PROJECT


async def test_all_of_them_are_read_through_their_source_and_found(world: World) -> None:
    async with Runtime.open(world.loaded()) as runtime:
        for skill in runtime.catalog.snapshot.skills:
            content = await runtime.catalog.content(skill)
            assert content.body.strip(), skill.name
        for query, name in (
            ("measure rooms", "mcp__far__measure"),
            ("polish lenses", "_canonical_polish"),
            ("tidies up", "tidy:up"),
        ):
            assert (await runtime.search(query)).hits[0].name == name


async def test_a_server_that_is_killed_is_missed_and_comes_back(world: World) -> None:
    async def until_there(name: str) -> None:
        with anyio.fail_after(30):
            while runtime.catalog.snapshot.winner(name) is None:
                await anyio.sleep(0.05)

    async with Runtime.open(world.loaded(), lives=True) as runtime:
        await until_there("mcp__far__greet")
        os.kill(world.offer.pids[-1], signal.SIGKILL)
        world.offer.say(
            prompts=[
                {"name": "greet", "description": "Greets."},
                {"name": "part", "description": "Says goodbye."},
            ]
        )
        runtime.watcher.changes.notify("mcp:far")
        await until_there("mcp__far__part")
        skill = runtime.catalog.get("mcp__far__part")
        assert (await runtime.catalog.content(skill)).body.startswith("part")
        assert len(world.offer.pids) >= 2


async def test_deeper_skills_come_with_the_files_near_them(world: World) -> None:
    project = world.project
    (project / ".gitignore").write_text("vendor/\n", encoding="utf-8")
    make_skill(project / "web/.claude/skills", "only-project", description="Nearer.")
    make_skill(project / "web/ui/.claude/skills", "styles", paths="*.css")
    make_skill(project / "vendor/lib/.claude/skills", "ignored")
    make_skill(project / "web/node_modules/x/.claude/skills", "packaged")
    async with Runtime.open(world.loaded()) as runtime:
        catalog, waking = runtime.catalog, PathActivation(project)
        named = paths_in_command("cat vendor/lib/a.js web/node_modules/x/i.js", project)
        assert (await catalog.touch(named, waking)).found == ("only-project",)
        assert catalog.get("only-project").description == "Nearer."
        assert catalog.snapshot.winner("ignored") is None
        assert catalog.snapshot.winner("packaged") is None
        await catalog.touch([project / "web/ui/index.html"], waking)
        with pytest.raises(SkillNotInvocableError, match="is inactive until"):
            catalog.get_for_model("styles", waking)
        touched = await catalog.touch(
            paths_in_command("sed -i s/a/b/ web/ui/x.css", project), waking
        )
        assert touched.activated == ("styles",)
        assert catalog.get_for_model("styles", waking).name == "styles"


@pytest.mark.promise("L16")
async def test_ten_thousand_folders_are_no_obstacle(world: World) -> None:
    many = world.project / "many/skills"
    text = skill_md("skill-NUMBER", "One of many.")
    for group in range(100):
        (many / f"group-{group:02}").mkdir(parents=True)
    for number in range(MANY):
        folder = many / f"group-{number % 100:02}" / f"skill-{number:05}"
        folder.mkdir()
        (folder / "SKILL.md").write_bytes(text.replace(b"NUMBER", b"%05d" % number))
    world.settings["APEXBRIDGE_SKILLS__PATHS"] = "many"
    async with Runtime.open(world.loaded()) as runtime:
        cut = [p for p in runtime.catalog.snapshot.problems if p.code == "folder_limit"]
        assert [problem.where for problem in cut] == [str(many)]
    world.settings["APEXBRIDGE_SKILLS__MAX_FOLDERS"] = "20000"
    async with Runtime.open(world.loaded()) as runtime:
        found = [s for s in runtime.catalog.snapshot.skills if s.name.startswith("skill-0")]
        assert len(found) == MANY
        assert runtime.catalog.get("skill-09999").provenance.origin is Origin.ADDITIONAL
