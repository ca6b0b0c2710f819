"""Official MCP client over streamable HTTP, behind the server's middleware."""

import base64
import hashlib
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client, MCPError, types

from apexbridge.errors import ConfigError
from tests.mcp_server.mcp_fixtures import (
    SLOW,
    add_sample_skills,
    add_skill,
    is_running,
    mcp_endpoint,
    skill_text,
)

pytestmark = pytest.mark.anyio

HOSTILE = [
    "skill://greet/out",
    "skill://greet/../farewell/SKILL.md",
    "skill://greet/%2e%2e/farewell/SKILL.md",
    "skill://greet/..%2ffarewell%2fSKILL.md",
    "skill://greet/scripts%2Fmain.py",
    "skill://greet//SKILL.md",
    "skill://greet/./SKILL.md",
    "skill://greet/SKILL.md?x=1",
    "skill://greet/SKILL.md#x",
    "skill://greet/a%00b",
    "skill://greet/%ff",
    "skill://greet/..\\SKILL.md",
    "skill://greet",
    "skill:///etc/passwd",
    "file:///etc/passwd",
    "skill://" + "a" * 5_000 + "/SKILL.md",
]


def text_of(result: types.CallToolResult) -> str:
    content = result.content[0]
    assert isinstance(content, types.TextContent)
    return content.text


def shape_of(result: types.CallToolResult) -> dict[str, Any]:
    assert not result.is_error, result
    return result.structured_content


def code_of(result: types.CallToolResult) -> str:
    assert result.is_error
    return (result.meta or {})["code"]


async def test_a_client_finds_loads_and_runs_a_skill(home: Path) -> None:
    add_sample_skills(home)
    async with mcp_endpoint(home) as endpoint, endpoint.client() as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(tools) == ["search_skills", "load_skill", "run_skill", "Calculate", "Now"]
        assert all(tools[name].output_schema for name in ("search_skills", "run_skill"))
        found = shape_of(await client.call_tool("search_skills", {"query": "greet", "limit": 1}))
        assert [hit["name"] for hit in found["hits"]] == ["greet"]
        assert found["hits"][0]["uri"] == "skill://greet/SKILL.md"
        wordings = {"query": "grüßen", "query_en": "greet somebody", "query_zh": "问候"}
        assert set(wordings) <= set(tools["search_skills"].input_schema["properties"])
        result = await client.call_tool("search_skills", wordings | {"limit": 20})
        for hit in shape_of(result)["hits"]:
            is_good = hit["score"] >= 0.5
            assert (hit["match"], hit["kind"], hit["alike"]) == (
                "good" if is_good else "weak", "skill", [],
            )  # fmt: skip
            fit = f"{hit['score']:.2f}" if is_good else "weak match"
            assert f"- {hit['name']} ({fit}): " in text_of(result)
        loaded = shape_of(await client.call_tool("load_skill", {"name": "greet"}))
        assert loaded["text"] == "Greet $who, $how.\n"
        assert {file["path"] for file in loaded["files"]} == {
            "SKILL.md",
            "scripts/main.py",
            "references/按 语.md",
            "assets/dot.bin",
        }
        file = {"name": "greet", "file": "references/按 语.md"}
        assert shape_of(await client.call_tool("load_skill", file))["text"] == "问候\r\n"


@pytest.mark.needs("sandbox")
async def test_a_script_runs_with_progress_and_a_failing_one_says_so(home: Path) -> None:
    add_sample_skills(home)
    add_skill(
        home,
        "fails",
        skill_text("fails"),
        {"scripts/main.py": "import sys\nprint('no')\nsys.exit(3)\n"},
    )
    messages = list[str]()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        messages.append(message or "")

    async with mcp_endpoint(home) as endpoint, endpoint.client() as client:
        arguments = {"name": "greet", "arguments": ["a b", "您"], "stdin": "in"}
        ran = shape_of(
            await client.call_tool("run_skill", arguments, progress_callback=on_progress)
        )
        assert (ran["outcome"], ran["stdout"]) == ("ok", "hello a b 您 in\n")
        assert ran["isolation"] != "none"
        assert messages
        failed = await client.call_tool("run_skill", {"name": "fails"})
        assert failed.is_error
        assert (failed.structured_content["exit_code"], "no" in text_of(failed)) == (3, True)


_COPY = """\
import pathlib
data = pathlib.Path("in/数 据.bin").read_bytes()
pathlib.Path("out").mkdir()
pathlib.Path("out/数 据.bin").write_bytes(data)
pathlib.Path("note.md").write_text("done", encoding="utf-8")
pathlib.Path("link").symlink_to("/etc/passwd")
"""


@pytest.mark.needs("sandbox")
async def test_files_go_into_a_script_and_come_back_as_resources(home: Path) -> None:
    add_skill(home, "copy", skill_text("copy"), {"scripts/main.py": _COPY})
    data = bytes(range(256))
    sent = {"path": "in/数 据.bin", "base64": base64.b64encode(data).decode()}
    async with mcp_endpoint(home) as endpoint:
        async with endpoint.client() as client:
            result = await client.call_tool("run_skill", {"name": "copy", "files": [sent]})
            ran = shape_of(result)
            made = {file["name"]: file for file in ran["files"]}
            assert set(made) == {"note.md", "out/数 据.bin"}
            assert ran["skipped_files"] == {"link": "a link"}
            links = [part for part in result.content if part.type == "resource_link"]
            assert {link.uri: link.name for link in links} == {
                file["uri"]: name for name, file in made.items()
            }
            (text,) = (await client.read_resource(made["note.md"]["uri"])).contents
            assert isinstance(text, types.TextResourceContents)
            assert (text.text, text.mime_type) == ("done", "text/markdown")
            (blob,) = (await client.read_resource(made["out/数 据.bin"]["uri"])).contents
            assert isinstance(blob, types.BlobResourceContents)
            assert base64.b64decode(blob.blob) == data
            for bad in ("../x", "/etc/passwd"):
                files = [{"path": bad, "text": "x"}]
                refused = await client.call_tool("run_skill", {"name": "copy", "files": files})
                assert code_of(refused) == "input_file_invalid"
        async with endpoint.client() as stranger:  # another key
            for uri in (made["note.md"]["uri"], "run://run_0/x", "run://"):
                with pytest.raises(MCPError, match="record_unknown"):
                    await stranger.read_resource(uri)


@pytest.mark.needs("sandbox")
async def test_a_script_dies_with_the_client_that_went_away(home: Path) -> None:
    add_skill(home, "slow", skill_text("slow"), {"scripts/main.py": SLOW})
    async with mcp_endpoint(home) as endpoint:
        begun = anyio.Event()

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            if message == "begun":
                begun.set()

        async def ask(client: Client) -> None:
            await client.call_tool("run_skill", {"name": "slow"}, progress_callback=on_progress)

        with anyio.fail_after(30):
            async with endpoint.client() as client, anyio.create_task_group() as tasks:
                tasks.start_soon(ask, client)
                await begun.wait()
                assert is_running("slow/scripts/main.py")
                tasks.cancel_scope.cancel()
            while is_running("slow/scripts/main.py"):
                await anyio.sleep(0.02)


async def test_a_failed_call_has_an_error_code(home: Path) -> None:
    add_sample_skills(home)
    add_skill(home, "by-hand", skill_text("by-hand", more="disable-model-invocation: true\n"))
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("load_skill", {"name": "gret"}, "skill_not_found"),
        ("load_skill", {"name": "greet", "file": "../farewell/SKILL.md"}, "tool_failed"),
        ("load_skill", {"name": "by-hand"}, "skill_for_users_only"),
        ("load_skill", {}, "tool_input_invalid"),
        ("search_skills", {"query": "x", "limit": 21}, "tool_input_invalid"),
        ("search_skills", {"query": "x" * 3_000}, "tool_input_invalid"),
        ("run_skill", {"name": "greet", "script": "../../x"}, "path_unsafe"),
        ("run_skill", {"name": "farewell"}, "script_unusable"),
        ("run_skill", {"name": "greet", "stdin": "x" * 1_200_000}, "tool_input_invalid"),
        ("Calculate", {"expression": "1 +"}, "tool_input_invalid"),
    ]
    async with mcp_endpoint(home) as endpoint, endpoint.client() as client:
        for tool, arguments, code in wrong:
            assert code_of(await client.call_tool(tool, arguments)) == code, (tool, code)
        near = await client.call_tool("load_skill", {"name": "gret"})
        assert "greet" in text_of(near)
        with pytest.raises(MCPError, match=r"tool_not_found.*\n.*search_skills"):
            await client.call_tool("search_skill", {})
        hits = shape_of(await client.call_tool("search_skills", {"query": "by-hand does a thing"}))
        assert "by-hand" not in [hit["name"] for hit in hits["hits"]]


@pytest.mark.unmeasured
async def test_calls_side_by_side_get_each_their_own_answer(home: Path) -> None:
    async with mcp_endpoint(home) as endpoint, endpoint.client() as client:
        answers = dict[int, str]()

        async def ask(number: int) -> None:
            expression = {"expression": f"{number} * 2"}
            answers[number] = text_of(await client.call_tool("Calculate", expression))

        async with anyio.create_task_group() as tasks:
            for number in range(25):
                tasks.start_soon(ask, number)
        assert answers == {n: f"{n} * 2 = {n * 2}" for n in range(25)}


async def test_a_key_sees_and_does_only_what_its_scopes_allow(home: Path) -> None:
    add_sample_skills(home)
    add_skill(home, "acts", skill_text("acts", body="Now: !`date`"))
    async with mcp_endpoint(home, server={"mcp_tools": "Calculate Platform"}) as endpoint:
        async with endpoint.client("skills:read") as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            assert names == ["search_skills", "load_skill", "Calculate"]
            for tool in ("run_skill", "Platform"):
                with pytest.raises(MCPError, match=r"scope_missing.*exec"):
                    await client.call_tool(tool, {"name": "greet"})
            with pytest.raises(MCPError, match=r"scope_missing.*exec"):
                await client.get_prompt("acts")
            assert (await client.get_prompt("greet", {"who": "Ann"})).messages
        async with endpoint.client("exec") as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == [
                "run_skill",
                "Platform",
            ]
            for ask in (client.list_prompts, client.list_resources):
                with pytest.raises(MCPError, match=r"scope_missing.*skills:read"):
                    await ask()
            with pytest.raises(MCPError, match="scope_missing"):
                await client.read_resource("skill://greet/SKILL.md")


@pytest.mark.parametrize("key", ["none", "wrong", "chat"])
async def test_a_key_with_a_scope_is_required(home: Path, key: str) -> None:
    async with mcp_endpoint(home) as endpoint, httpx2.AsyncClient() as http:
        token = endpoint.key("chat") if key == "chat" else "apx_nothing"
        headers = {"Authorization": f"Bearer {token}"} if key != "none" else {}
        reply = await http.post(endpoint.url, headers=headers, json={})
        assert reply.status_code == (403 if key == "chat" else 401)


async def test_a_page_of_another_origin_is_refused(home: Path) -> None:
    async with mcp_endpoint(home) as endpoint, httpx2.AsyncClient() as http:
        headers = {"Authorization": f"Bearer {endpoint.key()}", "Origin": "https://evil.example"}
        reply = await http.post(endpoint.url, headers=headers, json={})
        assert reply.status_code == 403


async def test_what_rules_forbid_is_not_there(home: Path) -> None:
    add_sample_skills(home)
    permissions = {"deny": "Skill(greet) SkillScript(farewell)"}
    async with mcp_endpoint(home, permissions=permissions) as endpoint, endpoint.client() as client:
        assert code_of(await client.call_tool("load_skill", {"name": "greet"})) == "skill_not_found"
        refused = await client.call_tool("run_skill", {"name": "farewell"})
        assert code_of(refused) == "rule_denied"
        assert "greet" not in [prompt.name for prompt in (await client.list_prompts()).prompts]
        with pytest.raises(MCPError, match="skill_not_found"):
            await client.get_prompt("greet")
        with pytest.raises(MCPError, match="skill_not_found"):
            await client.read_resource("skill://greet/SKILL.md")


async def test_over_http_approvals_are_denied(home: Path) -> None:
    async with (
        mcp_endpoint(home, server={"mcp_tools": "Bash"}, permissions={"ask": "Bash"}) as endpoint,
        endpoint.client() as client,
    ):
        refused = await client.call_tool("Bash", {"command": "true"})
        assert code_of(refused) == "rule_asks"


@pytest.mark.parametrize("name", ["Nothing", "Skill"])
async def test_a_setting_that_names_no_tool_is_refused(home: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown tool '{name}'; known tools: Bash, Calculate"):
        async with mcp_endpoint(home, server={"mcp_tools": name}):
            pass  # pragma: no cover


async def test_each_skill_that_a_user_may_call_is_a_prompt(home: Path) -> None:
    add_sample_skills(home)
    add_skill(home, "inner", skill_text("inner", more="user-invocable: false\n"))
    async with mcp_endpoint(home, lang="zh") as endpoint, endpoint.client() as client:
        prompts = {prompt.name: prompt for prompt in (await client.list_prompts()).prompts}
        assert "inner" not in prompts
        given = [(a.name, a.required) for a in prompts["greet"].arguments or ()]
        assert given == [("who", True), ("how", False)]
        plain = (prompts["farewell"].arguments or [])[0]
        assert (plain.name, plain.required) == ("arguments", False)
        assert "技能" in (plain.description or "")
        filled = await client.get_prompt("greet", {"who": "Ann Lee", "how": "it's $who"})
        content = filled.messages[0].content
        assert isinstance(content, types.TextContent)
        assert "Greet Ann Lee, it's $who." in content.text
        assert not endpoint.runtime.chat_service.store.turn()  # the session was temporary
        loose = await client.get_prompt("farewell", {"arguments": "to all"})
        assert "ARGUMENTS: to all" in loose.model_dump_json()
        wrong: list[tuple[str, dict[str, str], str]] = [
            ("gret", {}, "skill_not_found.*\n.*greet"),
            ("inner", {}, "skill_for_models_only"),
            ("greet", {}, "argument_missing"),
            ("greet", {"who": "a", "whom": "b"}, "request_invalid.*whom"),
            ("greet", {"who": "a" * 100_001}, "request_invalid"),
        ]
        for name, arguments, code in wrong:
            with pytest.raises(MCPError, match=code):
                await client.get_prompt(name, arguments)


async def test_every_file_is_a_resource_with_its_digest(home: Path) -> None:
    add_sample_skills(home)
    async with mcp_endpoint(home) as endpoint, endpoint.client() as client:
        listed = (await client.list_resources()).resources
        own = {r.uri: r for r in listed if r.uri.startswith("skill://greet/")}
        assert len(own) == 4
        odd = own["skill://greet/references/%E6%8C%89%20%E8%AF%AD.md"]
        digest = hashlib.sha256("问候\r\n".encode()).hexdigest()
        assert (odd.size, odd.meta) == (8, {"digest": f"sha256:{digest}"})
        text = (await client.read_resource(odd.uri)).contents[0]
        assert isinstance(text, types.TextResourceContents)
        assert text.text == "问候\r\n"
        blob = (await client.read_resource("skill://greet/assets/dot.bin")).contents[0]
        assert isinstance(blob, types.BlobResourceContents)
        assert blob.blob == "AP/+"
        templates = (await client.list_resource_templates()).resource_templates
        assert [template.uri_template for template in templates] == [
            "skill://{name}/{+path}",
            "run://{id}/{+path}",
        ]
        with pytest.raises(MCPError, match=r"skill_not_found.*\n.*greet"):
            await client.read_resource("skill://gret/SKILL.md")
        with pytest.raises(MCPError, match=r"request_invalid.*scripts/main\.py"):
            await client.read_resource("skill://greet/scripts/man.py")


async def test_tricks_in_addresses_lead_nowhere(home: Path) -> None:
    add_sample_skills(home)
    (home / ".claude/skills/greet/out").symlink_to("/etc/passwd")
    async with mcp_endpoint(home) as endpoint, endpoint.client() as client:
        for uri in HOSTILE:
            with pytest.raises(MCPError, match=r"request_invalid|skill_not_found"):
                await client.read_resource(uri)


async def test_lists_come_in_pages_that_go_on_behind_a_name(home: Path) -> None:
    for number in range(5):
        add_skill(home, f"one-{number}", skill_text(f"one-{number}"))
    async with mcp_endpoint(home, page_size=2) as endpoint, endpoint.client() as client:
        names, cursor = list[str](), None
        while True:
            page = await client.list_prompts(cursor=cursor)
            assert len(page.prompts) <= 2
            names += [prompt.name for prompt in page.prompts]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert len(names) == len(set(names))
        assert {f"one-{number}" for number in range(5)} < set(names)
        for bad in ("?", "%%%", "/w=="):
            with pytest.raises(MCPError, match="cursor"):
                await client.list_resources(cursor=bad)


async def test_a_subscribed_client_is_notified_of_list_changes(home: Path) -> None:
    async with mcp_endpoint(home) as endpoint, endpoint.client() as client:
        with anyio.fail_after(20):
            async with client.listen(
                prompts_list_changed=True, resources_list_changed=True
            ) as changes:
                add_skill(home, "new", skill_text("new"))
                await endpoint.runtime.refresh()
                changed = {type(await anext(aiter(changes))).__name__ for _ in range(2)}
        assert changed == {"PromptsListChanged", "ResourcesListChanged"}
        assert "new" in [prompt.name for prompt in (await client.list_prompts()).prompts]


async def test_a_server_that_stops_ends_the_waiting_for_changes(home: Path) -> None:
    async with mcp_endpoint(home) as endpoint, endpoint.client() as client:
        with anyio.fail_after(20):
            async with client.listen(prompts_list_changed=True) as changes:
                endpoint.app.close_subscriptions()
                assert [change async for change in changes] == []


async def test_a_client_of_the_older_kind_is_served_too(home: Path) -> None:
    add_sample_skills(home)
    async with mcp_endpoint(home) as endpoint, endpoint.client(mode="legacy") as client:
        assert client.protocol_version < "2026"
        loaded = shape_of(await client.call_tool("load_skill", {"name": "greet"}))
        assert loaded["name"] == "greet"
        assert code_of(await client.call_tool("load_skill", {"name": "x"})) == "skill_not_found"
