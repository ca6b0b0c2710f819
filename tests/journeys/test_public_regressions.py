"""Publicly reported bugs of other clients do not occur here."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from apexbridge.catalog.path_activation import PathActivation
from apexbridge.runtime import Runtime
from apexbridge.settings import Config, load
from apexbridge.testing import make_skill

pytestmark = [pytest.mark.anyio, pytest.mark.unmeasured]


def _loaded(home: Path, project: Path) -> Config:
    project.mkdir(parents=True, exist_ok=True)
    return load(project=project, environment={"HOME": str(home)})


def _raw(*lines: str) -> bytes:
    return "\n".join(("---", *lines, "---", "# Body", "")).encode()


@pytest.mark.parametrize(
    "written", ["2024", "007", "1.5", "1e3", "0x1F", "2024-01-31", "null", "yes"]
)
async def test_a_name_that_looks_like_another_type_is_a_name(
    home: Path, tmp_path: Path, written: str
) -> None:
    make_skill(home / ".claude/skills", "folder", raw=_raw(f"name: {written}", "description: d"))
    async with Runtime.open(_loaded(home, tmp_path / "p")) as runtime:
        (skill,) = [s for s in runtime.catalog.skills if s.root and s.root.name == "folder"]
        known = written.lower().replace(".", "-")
        assert skill.name in {known, "folder"}
        assert runtime.catalog.get(skill.name) is skill


async def test_a_colon_in_a_description_takes_nothing_away(home: Path, tmp_path: Path) -> None:
    text = "Deploys to AWS: ECS, Lambda: yes --- and more"
    make_skill(home / ".claude/skills", "x", raw=_raw("name: x", f"description: {text}"))
    make_skill(home / ".claude/skills", "y")
    async with Runtime.open(_loaded(home, tmp_path / "p")) as runtime:
        assert runtime.catalog.get("x").description == text
        assert runtime.catalog.get("y").name == "y"


@pytest.mark.promise("M14")
async def test_a_brace_bomb_in_paths_is_left_out_and_told(home: Path, tmp_path: Path) -> None:
    bomb = "{a,b}" * 30
    make_skill(home / ".claude/skills", "x", paths=[bomb, "*.ok"])
    async with Runtime.open(_loaded(home, tmp_path / "p")) as runtime:
        with anyio.fail_after(5):
            waking = PathActivation(tmp_path / "p")
            touched = await runtime.catalog.touch([tmp_path / "p/a.ok"], waking)
        assert touched.activated == ("x",)
        codes = [problem.code for problem in runtime.catalog.snapshot.problems]
        assert codes == ["path_pattern_too_wide"]


@pytest.mark.parametrize("pattern", ["[", "[z-a]", "\\", "!", "**[", "a/[!", "{a,b", "***/x", "/"])
async def test_a_malformed_pattern_stops_neither_the_skill_nor_the_others(
    home: Path, tmp_path: Path, pattern: str
) -> None:
    make_skill(home / ".claude/skills", "x", paths=[pattern, "*.ok"])
    make_skill(home / ".claude/skills", "y", paths="*.ok")
    async with Runtime.open(_loaded(home, tmp_path / "p")) as runtime:
        waking = PathActivation(tmp_path / "p")
        await runtime.catalog.touch([tmp_path / "p/a.txt"], waking)
        touched = await runtime.catalog.touch([tmp_path / "p/a.ok"], waking)
        assert not waking.is_inactive(runtime.catalog.get("x"))
        assert "y" in touched.activated


async def test_a_skill_by_two_ways_has_its_hooks_once(home: Path, tmp_path: Path) -> None:
    hooks = {"PreToolUse": [{"command": ["true"]}]}
    real = make_skill(tmp_path / "elsewhere", "x", hooks=hooks)
    for place in (".claude/skills", ".agents/skills", ".apexbridge/skills"):
        (home / place).mkdir(parents=True)
        (home / place / "x").symlink_to(real)
    async with Runtime.open(_loaded(home, tmp_path / "p")) as runtime:
        skills = [skill for skill in runtime.catalog.skills if skill.hooks]
        assert [(skill.name, len(skill.hooks)) for skill in skills] == [("x", 1)]
        assert runtime.catalog.snapshot.shadowed == ()
        await runtime.refresh()
        assert len(runtime.catalog.get("x").hooks) == 1


async def test_a_package_of_a_package_manager_brings_no_skills(home: Path, tmp_path: Path) -> None:
    project = tmp_path / "p"
    make_skill(project / "node_modules/evil/.claude/skills", "evil")
    make_skill(project / ".claude/skills/node_modules", "inner")
    async with Runtime.open(_loaded(home, project)) as runtime:
        waking = PathActivation(project)
        touched = await runtime.catalog.touch([project / "node_modules/evil/index.js"], waking)
        assert touched.found == ()
        assert {"evil", "inner"}.isdisjoint(skill.name for skill in runtime.catalog.skills)


LIVING = """
import sys, anyio
from pathlib import Path
from apexbridge.runtime import Runtime
from apexbridge.settings import load
from apexbridge.testing import make_skill

async def main():
    home = Path(sys.argv[1])
    loaded = load(project=home / "p", environment={"HOME": str(home)})
    async with Runtime.open(loaded, lives=True) as runtime:
        make_skill(home / ".claude/skills", "newcomer")
        with anyio.fail_after(30):
            while runtime.catalog.snapshot.winner("newcomer") is None:
                await anyio.sleep(0.05)
        print(len(runtime.catalog.skills) > 1000)

anyio.run(main)
"""


def test_a_thousand_skills_are_watched_with_few_descriptors(home: Path) -> None:
    (home / "p").mkdir()
    for number in range(1_000):
        make_skill(home / ".claude/skills", f"s{number}")

    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48))

    done = subprocess.run(
        [sys.executable, "-c", LIVING, str(home)],
        preexec_fn=lower,  # the limit is the point
        env={**os.environ, "HOME": str(home)},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
    )
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr
