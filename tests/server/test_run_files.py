"""Files in and out of scripts over HTTP: JSON, forms, folders, downloads and chat."""

import base64
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest

from apexbridge.api_keys import Scope
from apexbridge.server.admin import history, run_files
from apexbridge.server.chat import completions
from apexbridge.testing import make_skill
from tests.server.chat_server import ChatServer, chat_server, parse_chunks, text_reply, tool_reply
from tests.server.live_server import live_server
from tests.server.skills_server import (
    FORM_TYPE,
    ROUTES,
    SkillsServer,
    make_config,
    skill_zip,
    skills_server,
)

pytestmark = pytest.mark.needs("sandbox")

_COPY = b"""\
import pathlib, shutil
for path in sorted(pathlib.Path().rglob("*")):
    if path.is_file():
        print(path, path.read_bytes())
        target = pathlib.Path("copies", path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[SkillsServer]:
    routes = (*ROUTES, *history.router.routes, *run_files.router.routes)
    with skills_server(make_config(tmp_path_factory.mktemp("files")), routes) as running:
        running.send("/v1/skills", ("a.zip", skill_zip("copy", "Copies.", {"main.py": _COPY})))
        yield running


def _run(server: SkillsServer, body: dict[str, object]) -> Any:
    reply = server.post("/v1/skills/copy/run", body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_files_and_folders_are_given_as_json_and_come_back_byte_for_byte(
    server: SkillsServer,
) -> None:
    binary = bytes(range(256))
    files = [
        {"path": "a.txt", "text": "您好\n"},
        {"path": "data/deep/b.bin", "base64": base64.b64encode(binary).decode()},
    ]
    result = _run(server, {"files": files})
    assert result["stdout"].startswith("a.txt ")
    made = {file["path"]: file for file in result["files"]}
    assert set(made) == {"copies/a.txt", "copies/data/deep/b.bin"}
    for path, wanted in (("copies/a.txt", "您好\n".encode()), ("copies/data/deep/b.bin", binary)):
        assert base64.b64decode(made[path]["base64"]) == wanted
        reply = server.client.get(made[path]["url"])
        assert (reply.status_code, reply.content) == (200, wanted)
        assert reply.headers["content-disposition"].startswith("attachment;")
        assert reply.headers["content-type"] == "application/octet-stream"
        assert reply.headers["x-content-type-options"] == "nosniff"
    listed = server.get(f"/v1/runs/{result['id']}/files").json()["data"]
    assert [file["path"] for file in listed] == sorted(made)
    assert server.get(f"/v1/runs/{result['id']}").json()["files"] == sorted(made)


def test_names_of_other_systems_and_languages_come_back(server: SkillsServer) -> None:
    names = [
        "~$draft.docx",
        "C:",
        "~/x",
        "宽\u3000格.txt",
        "at 9.41\u202fPM.png",
        "👩\u200d💻",
        "中" * 85,
    ]
    result = _run(server, {"files": [{"path": name, "text": name} for name in names]})
    assert {file["path"] for file in result["files"]} == {f"copies/{name}" for name in names}
    for file in result["files"]:
        assert server.client.get(file["url"]).text == file["path"].removeprefix("copies/")


def test_many_input_files_leave_room_for_the_output(server: SkillsServer) -> None:
    many = [{"path": f"in/{number}", "text": "x"} for number in range(120)]
    source = b"open('result', 'w').write('precious'); open('a\\nb', 'w').write('2')"
    writer = skill_zip("writer", "Writes.", {"main.py": source})
    server.send("/v1/skills", ("a.zip", writer))
    result = server.post("/v1/skills/writer/run", {"files": many}).json()
    assert [file["path"] for file in result["files"]] == ["a\\x0ab", "result"]
    assert result["skipped_files"] == {}
    contents = [server.client.get(file["url"]).text for file in result["files"]]
    assert contents == ["2", "precious"]


def test_files_and_folders_are_given_as_a_form(server: SkillsServer) -> None:
    parts: list[tuple[str, tuple[str | None, bytes, str]]] = [
        ("request", (None, b'{"files": [{"path": "c", "text": "3"}]}', "application/json")),
        ("files[]", ("a.csv", b"1", FORM_TYPE)),
        ("files[]", ("data/b.zip", b"PK\x03\x04", FORM_TYPE)),
    ]
    reply = server.client.post("/v1/skills/copy/run", files=parts)
    assert reply.status_code == 200, reply.text
    assert {file["path"] for file in reply.json()["files"]} == {
        "copies/a.csv", "copies/c", "copies/data/b.zip",
    }  # fmt: skip


@pytest.mark.parametrize(
    "files",
    [
        [{"path": "../a", "text": ""}],
        [{"path": "/etc/passwd", "text": ""}],
        [{"path": "a\\b", "text": ""}],
        [{"path": "a\0b", "text": ""}],
        [{"path": ".", "text": ""}],
        [{"path": "x" * 256, "text": ""}],
        [{"path": "a\u202eb", "text": ""}],
        [{"path": "a"}],
        [{"path": "a", "text": "", "base64": ""}],
        [{"path": "a", "base64": "%%%"}],
        [{"path": "a", "text": ""}, {"path": "./a", "text": ""}],
        [{"path": "a", "text": ""}, {"path": "a/b", "text": ""}],
    ],
    ids=[
        "up",
        "absolute",
        "backslash",
        "nul",
        "nothing",
        "long",
        "bidi",
        "none",
        "two",
        "garbage",
        "twice",
        "in",
    ],
)
def test_invalid_input_files_are_refused(server: SkillsServer, files: list[dict[str, str]]) -> None:
    reply = server.post("/v1/skills/copy/run", {"files": files})
    assert (reply.status_code, reply.json()["error"]["code"]) == (422, "input_file_invalid")


def test_invalid_forms_are_refused(server: SkillsServer) -> None:
    def send(*parts: tuple[str, tuple[str | None, bytes, str]]) -> tuple[int, str]:
        reply = server.client.post("/v1/skills/copy/run", files=list(parts))
        return reply.status_code, reply.json()["error"]["code"]

    assert send(("other", (None, b"1", FORM_TYPE))) == (400, "request_invalid")
    assert send(("request", (None, b"{", FORM_TYPE))) == (400, "request_invalid")
    assert send(("files", ("../x", b"1", FORM_TYPE))) == (422, "input_file_invalid")


def test_too_many_input_bytes_are_refused(
    server: SkillsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apexbridge.activation.input_files.MAX_INPUT_BYTES", 10)
    files = [("files[]", (name, b"123456", FORM_TYPE)) for name in ("a", "b")]
    reply = server.client.post("/v1/skills/copy/run", files=files)
    assert (reply.status_code, reply.json()["error"]["code"]) == (413, "input_files_too_large")


def test_another_key_cannot_download_what_a_script_made(server: SkillsServer) -> None:
    made = _run(server, {"files": [{"path": "a", "text": "private"}]})
    (file,) = made["files"]
    with httpx2.Client(base_url=server.url) as stranger:
        assert stranger.get(file["url"]).status_code == 401
        cases: list[tuple[tuple[Scope, ...], int]] = [
            (("exec", "chat"), 404),
            (("skills:read",), 403),
            (("admin",), 403),
        ]
        for scopes, status in cases:
            key = server.serving.key_for(*scopes)
            reply = stranger.get(file["url"], headers={"Authorization": f"Bearer {key}"})
            assert reply.status_code == status, scopes
    for path in ("run_0000000000000000/files/a", "../../keys.json/files/a", "x/files"):
        assert server.get(f"/v1/runs/{path}").status_code == 404


@pytest.fixture
async def talk(home: Path) -> Any:
    make_skill(home / ".claude/skills", "copy", files={"main.py": _COPY.decode()})
    async with chat_server(home) as running:
        yield running


_WANTED = '{"skill": "copy", "files": ["%s/a.txt"]}'


def _folder(talk: ChatServer) -> str:
    """The folder with the attached files, as the model was told."""
    told = next(text for text in talk.said("user") if "attached files" in text)
    return told.partition("in the folder ")[2].partition(":")[0]


@pytest.mark.anyio
async def test_files_of_a_chat_request_reach_a_script_and_its_files_come_back(
    home: Path,
) -> None:
    make_skill(home / ".claude/skills", "copy", files={"main.py": _COPY.decode()})
    files = [{"path": "a.txt", "text": "from the client"}]
    routes = (*completions.router.routes, *run_files.router.routes)
    async with chat_server(home) as talk:
        await talk.post("Look", text_reply("."), apexbridge={"files": files, "session": "s"})
        wanted = _WANTED % _folder(talk)
        reply = await talk.post(
            "Go", tool_reply(("SkillScript", wanted)), text_reply("."),
            apexbridge={"session": "s"},
        )  # fmt: skip
        body = reply.json()
        assert body["choices"][0]["message"]["content"] == "."
        (made,) = body["apexbridge"]["files"]
        assert (made["path"], made["size"], made["skill"]) == ("copies/a.txt", 15, "copy")
        streamed = await talk.post(
            "Again", tool_reply(("SkillScript", wanted)), text_reply("."), stream=True,
            apexbridge={"session": "s", "progress": True},
        )  # fmt: skip
        events = [c["apexbridge"] for c in parse_chunks(streamed.text) if "apexbridge" in c]
        (created,) = [event for event in events if event.get("event") == "files_created"]
        assert "folder" not in created
        assert events[-1]["files"] == created["files"]
        config = talk.serving.state.runtime.config
    async with live_server(config, routes) as served, httpx.AsyncClient() as http:
        # The key of the first server is gone with it: the files are for their key, or an admin's.
        other = await http.get(served.url + made["url"], headers=served.headers)
        assert (other.status_code, other.text) == (200, "from the client")


@pytest.mark.anyio
async def test_a_key_without_exec_cannot_attach_files(talk: ChatServer) -> None:
    files = [{"path": "a.txt", "text": "1"}]
    key = talk.serving.key_for("chat")
    reply = await talk.post("Look", key=key, apexbridge={"files": files})
    assert (reply.status_code, reply.json()["error"]["code"]) == (403, "scope_missing")


@pytest.mark.anyio
async def test_deleting_a_session_deletes_its_files(talk: ChatServer) -> None:
    runtime = talk.serving.state.runtime
    files = [{"path": "a.txt", "text": "1"}]
    await talk.post("Look", text_reply("."), apexbridge={"files": files, "session": "s"})
    folder = Path(_folder(talk))
    assert (folder / "a.txt").exists()
    owner = runtime.script_runner.files.owner(folder.parent.name)
    assert owner is not None
    assert owner.endswith(":s")
    await runtime.chat_service.delete(owner)
    assert not folder.parent.exists()


_ODD = """\
import os
for name in ("~$a.docx", "宽\\u3000格.txt", "b\\nc"):
    open(name, "w").write(name)
open(b"bad\\xff", "w").close()
os.symlink("/etc/passwd", "link")
os.mkdir("empty")
"""


@pytest.mark.anyio
async def test_the_sdk_of_openai_is_told_what_was_left_out(home: Path) -> None:
    make_skill(home / ".claude/skills", "odd", files={"main.py": _ODD})
    script = ("SkillScript", '{"skill": "odd"}')
    async with chat_server(home) as talk:
        talk.script.play(tool_reply(script), text_reply("."))
        async with talk.client() as client:
            reply = await client.chat.completions.create(
                model="scripted",
                messages=[{"role": "user", "content": "Go"}],
                extra_body={"apexbridge": {"session": "one"}},
            )
        told: Any = (reply.model_extra or {})["apexbridge"]
        assert told["skipped_files"] == {"link": "a link", "empty": "an empty folder"}
        files = {file["path"]: file for file in told["files"]}
        assert set(files) == {"~$a.docx", "宽\u3000格.txt", "b\\x0ac", "bad\\udcff"}
        store = talk.serving.state.runtime.script_runner.files
        run_id = files["bad\\udcff"]["run"]
        (folder,) = {file.location.parent for file in store.list(run_id)}
        read = ("Read", f'{{"file_path": "{folder}/~$a.docx"}}')
        for session, found in (("one", "~$a.docx"), ("two", "[path_outside]")):
            await talk.post(
                "Read", tool_reply(read), text_reply("."), apexbridge={"session": session}
            )
            assert found in talk.said("tool")[-1]
        config = talk.serving.state.runtime.config
        key = talk.serving.key
    async with live_server(config, run_files.router.routes) as served, httpx.AsyncClient() as http:
        for path, file in files.items():
            mine = await http.get(
                served.url + file["url"], headers={"Authorization": f"Bearer {key}"}
            )
            text = {"b\\x0ac": "b\nc", "bad\\udcff": ""}.get(path, path)
            assert (mine.status_code, mine.text) == (200, text)
            other = {"Authorization": f"Bearer {served.key_for('exec', 'chat')}"}
            assert (await http.get(served.url + file["url"], headers=other)).status_code == 404


def test_a_file_that_can_be_had_nowhere_is_named(tmp_path: Path) -> None:
    source = b"open('large', 'wb').write(bytes(9_000_000))"
    config = make_config(tmp_path, sandbox={"kept_files_days": 0})
    with skills_server(config) as server:
        server.send("/v1/skills", ("a.zip", skill_zip("big", "Writes.", {"main.py": source})))
        result = server.post("/v1/skills/big/run", {}).json()
    (file,) = result["files"]
    assert (file["base64"], file["url"]) == (None, None)
    assert list(result["skipped_files"]) == ["large"]


def test_deleting_a_session_leaves_files_of_other_runs(server: SkillsServer) -> None:
    result = _run(server, {"files": [{"path": "a", "text": "1"}]})
    delete = server.runtime.chat_service.delete
    owner = server.runtime.script_runner.files.owner(result["id"]) or ""
    server.portal.call(delete, f"{owner.partition(':')[0]}:run")
    assert server.client.get(result["files"][0]["url"]).text == "1"
