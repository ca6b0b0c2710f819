"""Skills API under concurrent clients, a full disk, path traversal and removals during runs."""

import random
from collections import Counter
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from apexbridge.retrieval.vectorized_marker import read_marker
from tests.server.skills_server import (
    SkillsServer,
    error_code,
    make_config,
    raw_status,
    skill_zip,
    skills_server,
    wait_until,
)

ACTIONS = ("install", "install", "uninstall", "edit", "edit", "search", "undo", "version", "show")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[SkillsServer]:
    with skills_server(make_config(tmp_path_factory.mktemp("at-once"))) as running:
        yield running


def _staged(server: SkillsServer) -> list[str]:
    return [path.name for path in (server.data / "skills/.staging").iterdir()]


@pytest.mark.promise("L01")
def test_a_duplicate_name_is_a_conflict_and_changes_nothing(server: SkillsServer) -> None:
    made = server.install("first", "The first.")
    reply = server.send("/v1/skills", ("a.zip", skill_zip("first", "The second.")))
    assert error_code(reply) == (409, "skill_exists")
    assert reply.json()["error"]["hint"]
    assert server.get("/v1/skills/first").json() == {
        key: value for key, value in made.items() if key != "change"
    }
    assert _staged(server) == [".lock"]


@pytest.mark.unmeasured
@pytest.mark.promise("L02")
def test_of_fifty_clients_that_install_one_name_one_wins(server: SkillsServer) -> None:
    def install(at: int) -> httpx2.Response:
        return server.send("/v1/skills", ("a.zip", skill_zip("race", f"Number {at}.")))

    with ThreadPoolExecutor(50) as pool:
        replies = list(
            pool.map(
                install,
                range(50),
            )
        )
    statuses = Counter(reply.status_code for reply in replies)
    assert statuses == {201: 1, 409: 49}
    (winner,) = [reply.json() for reply in replies if reply.status_code == 201]
    assert server.get("/v1/skills/race").json()["description"] == winner["description"]
    assert _staged(server) == [".lock"]


@pytest.mark.unmeasured
@pytest.mark.promise("L03")
def test_clients_that_change_one_skill_at_once_take_turns(server: SkillsServer) -> None:
    def take_part(seed: int) -> Counter[int]:
        chance, statuses = random.Random(seed), Counter[int]()  # noqa: S311  # no secret
        with httpx2.Client(
            base_url=server.url, headers=server.serving.headers, timeout=60
        ) as client:
            for number in range(8):
                statuses[_do(client, chance.choice(ACTIONS), f"{seed}-{number}")] += 1
        return statuses

    with ThreadPoolExecutor(6) as pool:
        statuses = sum(pool.map(take_part, range(6)), Counter[int]())
    assert statuses.keys() <= {200, 201, 404, 409}, statuses
    assert statuses[200] + statuses[201]
    server.portal.call(server.runtime.index_service.index)
    root = server.data / "skills/shared"
    assert (server.get("/v1/skills/shared").status_code == 200) is root.is_dir()
    if root.is_dir():
        marker = read_marker(root)
        assert marker is not None
        assert marker.sha256 == server.get("/v1/skills/shared").json()["sha256"]
    status = server.portal.call(server.runtime.index_service.status)
    assert status.is_sound, status
    assert _staged(server) == [".lock"]
    assert server.runtime.audit.verify()


def _do(client: httpx2.Client, action: str, text: str) -> int:
    one, form = "/v1/skills/shared", {"files": ("a.zip", skill_zip("shared", f"Grows {text}."))}
    match action:
        case "install":
            reply = client.post("/v1/skills", files=form)
        case "uninstall":
            reply = client.delete(one)
        case "edit":
            reply = client.patch(one, json={"description": f"Edited by {text}."})
        case "undo":
            reply = client.post(f"{one}/undo")
        case "version":
            reply = client.post(f"{one}/versions", files=form)
        case "search":
            reply = client.get("/v1/skills/search", params={"query": "grow"})
        case _:
            reply = client.get(one)
    return reply.status_code


@pytest.mark.promise("L05")
def test_a_full_disk_is_reported_and_changes_nothing(
    server: SkillsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.install("safe", "Before.")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("apexbridge.paths.fsync_file", full)
        new = server.send("/v1/skills", ("a.zip", skill_zip("new")))
        patch.setattr("apexbridge.lifecycle.store.create_bytes", full)
        edited = server.client.patch("/v1/skills/safe", json={"description": "After."})
        gone = server.client.delete("/v1/skills/safe")
        patch.setattr("apexbridge.lifecycle.version_store.exchange_dirs", full)
        changed = server.send("/v1/skills/safe/versions", ("a.zip", skill_zip("safe", "After.")))
        for reply in (new, edited, gone, changed):
            assert error_code(reply) == (507, "storage_failed")
    with monkeypatch.context() as patch:
        patch.setattr("apexbridge.server.skills.uploads.pack_files", full)
        folder = (("new/SKILL.md", b"x"), ("new/a", b"x"))
        assert error_code(server.send("/v1/skills", *folder)) == (507, "storage_failed")
    assert server.get("/v1/skills/safe").json()["description"] == "Before."
    assert server.get("/v1/skills/new").status_code == 404
    assert _staged(server) == [".lock"]


@pytest.mark.promise("L13")
def test_what_is_unknown_or_not_ours_cannot_be_removed(server: SkillsServer) -> None:
    (bundled, *_) = server.get("/v1/skills", origin="bundled").json()["data"]
    assert error_code(server.client.delete("/v1/skills/nowhere")) == (404, "skill_not_found")
    refused = server.client.delete(f"/v1/skills/{bundled['id']}")
    assert error_code(refused) == (403, "skill_read_only")
    assert server.get(f"/v1/skills/{bundled['id']}").status_code == 200


@pytest.mark.promise("L13")
@pytest.mark.needs("sandbox")
def test_a_run_goes_on_to_its_end_when_its_skill_is_removed(server: SkillsServer) -> None:
    script = b"import time\nopen('began', 'w').close()\ntime.sleep(1)\nprint('whole')\n"
    files = {"scripts/main.py": script}
    server.send("/v1/skills", ("a.zip", skill_zip("busy", "Is busy.", files)))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(server.post, "/v1/skills/busy/run", {})
        workspaces = server.runtime.config.workspaces
        wait_until(lambda: any(workspaces.rglob("began")))
        assert server.client.delete("/v1/skills/busy").status_code == 200
        result = running.result(timeout=60).json()
    assert (result["outcome"], result["stdout"]) == ("ok", "whole\n")
    assert error_code(server.post("/v1/skills/busy/run", {})) == (404, "skill_not_found")


def _everything(place: Path) -> set[str]:
    return {str(path) for path in place.rglob("*") if path.suffix not in {".jsonl", ".lock"}}


@pytest.mark.promise("S13")
@pytest.mark.parametrize(
    "name",
    [
        "..",
        "%2e%2e",
        "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "..%5c..%5cx",
        "victim%2f..%2fvictim",
        "victim%2Ftext",
        "%2fvictim",
        ".",
        "%00",
        "victim%00",
        "victim%0a",
        "%ff%fe",
        "%c0%ae%c0%ae",
        "%EF%BC%8E%EF%BC%8E",
        "%E2%80%A5",
        "victim%E2%80%8B",
        "skill_..",
        "skill_",
        ".staging",
        ".trash",
        "x" * 300,
    ],
)
def test_a_path_instead_of_a_name_finds_nothing(server: SkillsServer, name: str) -> None:
    if server.get("/v1/skills/victim").status_code == 404:
        server.install("victim", "Stays.")
    before = _everything(server.data)
    for method, tail, body in (
        ("GET", "", b""),
        ("GET", "/text", b""),
        ("GET", "/content", b""),
        ("GET", "/versions", b""),
        ("DELETE", "", b""),
        ("PATCH", "", b'{"description": "Changed."}'),
        ("POST", "/undo", b""),
        ("POST", "/disable", b""),
        ("POST", "/run", b"{}"),
    ):
        assert raw_status(server, method, f"/v1/skills/{name}{tail}", body) in {404, 405}
    assert _everything(server.data) == before
    assert server.get("/v1/skills/victim").json()["description"] == "Stays."


@pytest.mark.promise("S13")
def test_an_endless_name_is_too_long(server: SkillsServer) -> None:
    assert raw_status(server, "GET", "/v1/skills/" + "x" * 9_000, b"") == 414
    assert raw_status(server, "DELETE", "/v1/skills/" + "%2e" * 3_000, b"") == 414
