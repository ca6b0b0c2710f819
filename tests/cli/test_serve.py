"""`serve` and `keys`: bind address rules and API keys."""

import json
import socket
import stat
from pathlib import Path

import pytest

from apexbridge.api_keys import SCOPES, ApiKeyStore
from tests.cli.conftest import Run
from tests.cli.terminal import CTRL_C, environment, open_terminal

HASH = {"APEXBRIDGE_INDEX__EMBEDDER": "hash"}


@pytest.mark.promise("S06")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "some.example.org"])
def test_binding_a_public_address_requires_an_api_key(run: Run, home: Path, host: str) -> None:
    done = run("serve", "--host", host, "--port", "0", **HASH)
    assert done.code == 2
    assert "[bind_needs_key]" in done.err
    assert "apexbridge keys create" in done.err
    assert not list(home.rglob("first-key"))
    chinese = run("--lang", "zh", "serve", "--host", host, **HASH)
    assert "需要 API 密钥" in chinese.err


@pytest.mark.promise("S06")
def test_a_revoked_key_does_not_allow_a_public_address(run: Run) -> None:
    made = run("keys", "create", "k", "--expires-days", "0", "--json")
    assert made.code == 0
    assert run("serve", "--host", "0.0.0.0", **HASH).code == 2


def test_an_address_in_use_is_reported(run: Run, home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run("serve", "--port", port, "--json", **HASH)
    assert done.code == 2
    assert done.error["code"] == "bind_failed"


def test_keys_are_created_listed_and_revoked(run: Run, home: Path) -> None:
    assert "No API keys" in run("keys", "ls").out
    assert run("keys", "ls", "--json").data == []
    made = run("keys", "create", "my laptop", "--scope", "exec", "--scope", "chat", "--json").data
    assert made["key"].startswith("apx_")
    assert made["scopes"] == ["chat", "exec"]
    assert made["state"] == "good"
    (listed,) = run("keys", "ls", "--json").data
    assert "key" not in listed
    assert "sha256" not in listed
    assert listed["id"] == made["id"]
    (line,) = run("keys", "ls").out.splitlines()
    assert line.split("\t") == [made["id"], "my laptop", "active", "never", "chat exec"]
    gone = run("keys", "revoke", made["id"])
    assert (gone.code, "Revoked" in gone.out) == (0, True)
    again = run("keys", "revoke", made["id"], "--json")
    assert (again.code, again.error["code"]) == (3, "key_unknown")
    assert run("keys", "ls", "--json").data[0]["state"] == "ended"
    told = [record["action"] for record in run("audit", "ls", "--json").data["records"]]
    assert sorted(told) == ["key_made", "key_revoked"]


def test_quiet_prints_the_new_key_alone(run: Run, home: Path) -> None:
    done = run("keys", "create", "k", "--quiet")
    (text,) = done.out.splitlines()
    (path,) = home.rglob("keys.json")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    key = ApiKeyStore(path).find(text)
    assert key is not None
    assert key.scopes == ("chat", "skills:read")


def test_a_key_expires(run: Run) -> None:
    made = run("keys", "create", "k", "--expires-days", "1.5", "--json").data
    assert made["expires"] - made["created"] == pytest.approx(1.5 * 86_400, abs=5)
    assert "UTC" in run("keys", "ls").out
    run("keys", "create", "old", "--expires-days", "0")
    assert [key["state"] for key in run("keys", "ls", "--json").data] == ["good", "expired"]


@pytest.mark.anyio
async def test_the_first_key_is_shown_once_on_a_terminal(home: Path, project: Path) -> None:
    project.mkdir()
    words, variables = ("serve", "--port", "0"), environment(home)
    async with open_terminal(*words, cwd=project, variables=variables) as terminal:
        await terminal.sees("#token=")
        terminal.types(CTRL_C)
        assert await terminal.ends() == 0
        (place,) = home.rglob("first-key")
        key = place.read_text(encoding="ascii").strip()
        assert key in terminal.screen
        assert "Stopped." in terminal.screen
        assert terminal.screen.index(key) < terminal.screen.index("Listening on http://127.0.0.1:")


def test_an_unknown_scope_is_rejected(run: Run, home: Path) -> None:
    done = run("keys", "create", "k", "--scope", "everything")
    assert done.code == 2
    assert "unknown scope: everything" in done.err
    assert not list(home.rglob("keys.json"))
    every = [word for scope in SCOPES for word in ("--scope", scope)]
    assert run("keys", "create", "k", *every, "--json").data["scopes"] == list(SCOPES)


def test_escape_sequences_in_a_key_name_are_sanitized(run: Run) -> None:
    run("keys", "create", "a\x1b[2J\nb")
    assert "\x1b" not in run("keys", "ls").out
    assert json.loads(run("keys", "ls", "--json").out)["data"][0]["name"] == "a\x1b[2J\nb"


def test_short_diagnostics_without_warnings_are_one_line(run: Run) -> None:
    whole, short = run("doctor", **HASH), run("doctor", "--short", **HASH)
    assert whole.code == short.code
    assert len(short.out.splitlines()) < len(whole.out.splitlines()) / 4
    assert short.out.splitlines()[-1] == whole.out.splitlines()[-1]
    assert not [line for line in short.out.splitlines() if line.startswith("✓")]
