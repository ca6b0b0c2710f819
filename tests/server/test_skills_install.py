"""POST /v1/skills/install: skills from https addresses, and what is for the command line only."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from apexbridge.testing import make_zip, skill_md
from tests.server.skills_server import SkillsServer, error_code, make_config, skills_server
from tests.sources.remote.http_site import Answer, Site

PDF, CSV = skill_md("pdf-remote", "Reads PDF."), skill_md("csv-remote", "Reads CSV.")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[SkillsServer]:
    remote = {"allow_networks": ["127.0.0.1/32"]}
    with skills_server(make_config(tmp_path_factory.mktemp("install"), remote=remote)) as running:
        yield running


def _install(server: SkillsServer, **body: Any) -> httpx2.Response:
    return server.client.post(f"{server.url}/v1/skills/install", json=body)


def test_skills_of_an_archive_are_listed_chosen_and_installed(
    server: SkillsServer, tmp_path: Path
) -> None:
    entries = {"r/skills/a/SKILL.md": PDF, "r/skills/b/SKILL.md": CSV}
    data = make_zip(tmp_path / "a.zip", entries).read_bytes()
    with Site() as site:
        site.answers["/a.zip"] = Answer(body=data, headers={"Content-Type": "application/zip"})
        listed = _install(server, source=site.url("/a.zip"), dry_run=True).json()
        assert [skill["path"] for skill in listed["skills"]] == ["skills/a", "skills/b"]
        assert not any(skill["installed"] for skill in listed["skills"])
        several = _install(server, source=site.url("/a.zip"))
        assert error_code(several) == (422, "source_choice")
        done = _install(server, source=site.url("/a.zip"), skills=["pdf-remote"]).json()
        assert [(s["name"], s["installed"]) for s in done["skills"]] == [("pdf-remote", True)]
        assert done["revision"].startswith("sha256:")
        rest = _install(server, source=site.url("/a.zip"), all=True)
        assert rest.status_code == 200
        errors = {s["name"]: s["error"] and s["error"]["code"] for s in rest.json()["skills"]}
        assert errors == {"pdf-remote": "skill_exists", "csv-remote": None}
    names = [skill["name"] for skill in server.get("/v1/skills", limit=1000).json()["data"]]
    assert {"pdf-remote", "csv-remote"} <= set(names)


@pytest.mark.promise("R04")
@pytest.mark.parametrize(
    "source",
    [
        "ext::sh -c x",
        "-oProxyCommand=x",
        "--upload-pack=x",
        "file:///etc",
        "git@localhost:o/r.git",
        "ssh://localhost/o/r.git",
        "/etc",
        "/nowhere",
        "./",
        "~",
        "ftp://localhost/a.zip",
    ],
)
def test_r04_other_schemes_and_paths_are_refused_with_422(
    server: SkillsServer, source: str
) -> None:
    refused = _install(server, source=source)
    assert error_code(refused) == (422, "source_refused")


@pytest.mark.promise("R01")
@pytest.mark.parametrize(
    "source", ["https://169.254.169.254/a.zip", "https://10.0.0.1/a.tar.gz", "https://[::1]/a.zip"]
)
def test_r01_private_addresses_are_refused_with_422(server: SkillsServer, source: str) -> None:
    refused = _install(server, source=source)
    assert error_code(refused) == (422, "remote_refused")


def test_a_key_without_the_scope_may_not_install(server: SkillsServer) -> None:
    bare = httpx2.post(f"{server.url}/v1/skills/install", json={"source": "o/r"})
    assert bare.status_code == 401
