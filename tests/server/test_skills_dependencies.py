"""Dependency endpoints of the skills API, with a package index on the loopback interface."""

from collections.abc import Generator

import pytest

from tests.environments.package_server import PackageServer, package_server
from tests.server.skills_server import (
    SkillsServer,
    error_code,
    make_config,
    skill_zip,
    skills_server,
)

pytestmark = pytest.mark.needs("bubblewrap")

FILES = {
    "scripts/main.py": b"import greet\nprint(greet.WORD)\n",
    "requirements.txt": b"greet\n-e .\n",
}


@pytest.fixture(scope="module")
def packages() -> Generator[PackageServer]:
    with package_server() as running:
        running.add_wheel("greet", "1.0", {"greet.py": "WORD = 'hello'\n"})
        yield running


@pytest.fixture(scope="module")
def server(
    packages: PackageServer, tmp_path_factory: pytest.TempPathFactory
) -> Generator[SkillsServer]:
    place = tmp_path_factory.mktemp("http")
    loaded = make_config(place, dependencies={"python_index": packages.index})
    with skills_server(loaded) as running:
        yield running


def test_an_inspection_lists_the_packages_and_fetches_none(
    server: SkillsServer, packages: PackageServer
) -> None:
    archive = skill_zip("looked-at", "Greets.", FILES)
    shown = server.send("/v1/skills/inspect", ("a.zip", archive)).json()
    (package,) = shown["packages"]
    assert (package["requirement"], package["certainty"]) == ("greet", "declared")
    assert not any("greet" in path for path in packages.requests)


def test_a_key_that_may_write_skills_builds_and_the_script_runs(server: SkillsServer) -> None:
    server.install("greeter", "Greets.", **FILES)
    before = server.get("/v1/skills/greeter/dependencies").json()
    assert (before["states"]["python"], before["missing"]) == ("missing", ["greet"])
    assert [one["reason"] for one in before["refused"]] == ["option"]
    failed = server.post("/v1/skills/greeter/run", {}).json()
    assert failed["exit_code"] == 1
    assert "apexbridge deps build greeter" in failed["reason"]
    built = server.post("/v1/skills/greeter/dependencies").json()
    assert built["states"]["python"] == "built"
    assert built["environments"][0]["packages"] == ["greet==1.0"]
    assert server.post("/v1/skills/greeter/run", {}).json()["stdout"] == "hello\n"


def test_a_build_that_fails_says_why(server: SkillsServer) -> None:
    server.install("broken", "Fails.", **{"requirements.txt": b"no-such-thing\n"})
    reply = server.post("/v1/skills/broken/dependencies")
    assert error_code(reply) == (422, "dependencies_absent")
    assert "no-such-thing" in reply.json()["error"]["message"]
    assert error_code(server.post("/v1/skills/nobody/dependencies"))[0] == 404
