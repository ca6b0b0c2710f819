"""Many clients at once, a full disk, names that are paths, and skills that go while they run."""

import random
from collections import Counter
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest

from apexbridge.lifecycle.vectorized_marker import read_marker
from tests.server.skills_server import (
    Served,
    code_of,
    loaded_in,
    served,
    status_of,
    wait_until,
    zipped,
)

ACTIONS = ("install", "install", "uninstall", "edit", "edit", "search", "undo", "version", "show")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    with served(loaded_in(tmp_path_factory.mktemp("at-once"))) as running:
        yield running


def _staged(house: Served) -> list[str]:
    return [path.name for path in (house.data / "skills/.staging").iterdir()]


@pytest.mark.promise("L01")
def test_a_taken_name_is_a_conflict_and_the_one_there_stays(house: Served) -> None:
    made = house.install("first", "The first.")
    reply = house.send("/v1/skills", ("a.zip", zipped("first", "The second.")))
    assert code_of(reply) == (409, "skill_exists")
    assert reply.json()["error"]["hint"]
    assert house.get("/v1/skills/first").json() == {
        key: value for key, value in made.items() if key != "change"
    }
    assert _staged(house) == [".lock"]


@pytest.mark.unmeasured
@pytest.mark.promise("L02")
def test_of_fifty_clients_that_install_one_name_one_wins(house: Served) -> None:
    def install(at: int) -> httpx2.Response:
        return house.send("/v1/skills", ("a.zip", zipped("race", f"Number {at}.")))

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
    assert house.get("/v1/skills/race").json()["description"] == winner["description"]
    assert _staged(house) == [".lock"]


@pytest.mark.unmeasured
@pytest.mark.promise("L03")
def test_clients_that_change_one_skill_at_once_take_turns(house: Served) -> None:
    def take_part(seed: int) -> Counter[int]:
        chance, statuses = random.Random(seed), Counter[int]()  # noqa: S311  # no secret
        with httpx2.Client(base_url=house.url, headers=house.serving.headers, timeout=60) as client:
            for number in range(8):
                statuses[_do(client, chance.choice(ACTIONS), f"{seed}-{number}")] += 1
        return statuses

    with ThreadPoolExecutor(6) as pool:
        statuses = sum(pool.map(take_part, range(6)), Counter[int]())
    assert statuses.keys() <= {200, 201, 404, 409}, statuses
    assert statuses[200] + statuses[201]
    house.portal.call(house.runtime.index_service.index)
    root = house.data / "skills/shared"
    assert (house.get("/v1/skills/shared").status_code == 200) is root.is_dir()
    if root.is_dir():
        marker = read_marker(root)
        assert marker is not None
        assert marker.sha256 == house.get("/v1/skills/shared").json()["sha256"]
    status = house.portal.call(house.runtime.index_service.status)
    assert status.is_sound, status
    assert _staged(house) == [".lock"]
    assert house.runtime.audit.verify()


def _do(client: httpx2.Client, action: str, text: str) -> int:
    one, form = "/v1/skills/shared", {"files": ("a.zip", zipped("shared", f"Grows {text}."))}
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
def test_a_full_disk_is_told_and_changes_nothing(
    house: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.install("safe", "Before.")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("apexbridge.paths.fsync_file", full)
        new = house.send("/v1/skills", ("a.zip", zipped("new")))
        patch.setattr("apexbridge.lifecycle.store.create_bytes", full)
        edited = house.client.patch("/v1/skills/safe", json={"description": "After."})
        gone = house.client.delete("/v1/skills/safe")
        patch.setattr("apexbridge.lifecycle.version_store.exchange_dirs", full)
        changed = house.send("/v1/skills/safe/versions", ("a.zip", zipped("safe", "After.")))
        for reply in (new, edited, gone, changed):
            assert code_of(reply) == (507, "storage_failed")
    with monkeypatch.context() as patch:
        patch.setattr("apexbridge.server.skills.uploads.pack_files", full)
        folder = (("new/SKILL.md", b"x"), ("new/a", b"x"))
        assert code_of(house.send("/v1/skills", *folder)) == (507, "storage_failed")
    assert house.get("/v1/skills/safe").json()["description"] == "Before."
    assert house.get("/v1/skills/new").status_code == 404
    assert _staged(house) == [".lock"]


@pytest.mark.promise("L13")
def test_what_is_unknown_or_not_ours_cannot_be_removed(house: Served) -> None:
    (bundled, *_) = house.get("/v1/skills", origin="bundled").json()["data"]
    assert code_of(house.client.delete("/v1/skills/nowhere")) == (404, "skill_not_found")
    refused = house.client.delete(f"/v1/skills/{bundled['id']}")
    assert code_of(refused) == (403, "skill_read_only")
    assert house.get(f"/v1/skills/{bundled['id']}").status_code == 200


@pytest.mark.promise("L13")
@pytest.mark.needs("sandbox")
def test_a_run_goes_on_to_its_end_when_its_skill_is_removed(house: Served) -> None:
    script = b"import time\nopen('began', 'w').close()\ntime.sleep(1)\nprint('whole')\n"
    files = {"scripts/main.py": script}
    house.send("/v1/skills", ("a.zip", zipped("busy", "Is busy.", files)))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(house.post, "/v1/skills/busy/run", {})
        workspaces = house.runtime.config.workspaces
        wait_until(lambda: any(workspaces.rglob("began")))
        assert house.client.delete("/v1/skills/busy").status_code == 200
        result = running.result(timeout=60).json()
    assert (result["outcome"], result["stdout"]) == ("ok", "whole\n")
    assert code_of(house.post("/v1/skills/busy/run", {})) == (404, "skill_not_found")


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
def test_a_path_instead_of_a_name_finds_nothing(house: Served, name: str) -> None:
    if house.get("/v1/skills/victim").status_code == 404:
        house.install("victim", "Stays.")
    before = _everything(house.data)
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
        assert status_of(house, method, f"/v1/skills/{name}{tail}", body) in {404, 405}
    assert _everything(house.data) == before
    assert house.get("/v1/skills/victim").json()["description"] == "Stays."


@pytest.mark.promise("S13")
def test_an_endless_name_is_too_long(house: Served) -> None:
    assert status_of(house, "GET", "/v1/skills/" + "x" * 9_000, b"") == 414
    assert status_of(house, "DELETE", "/v1/skills/" + "%2e" * 3_000, b"") == 414
