"""Skills without a folder, of another MCP server, forked or slow."""

import sys
from pathlib import Path

import pytest
from mcp import MCPError, types

from tests.mcp_server.mcp_fixtures import (
    SLOW,
    add_sample_skills,
    add_skill,
    mcp_endpoint,
    skill_text,
    stdio_parameters,
)

pytestmark = pytest.mark.anyio


async def test_a_command_without_a_folder_is_a_prompt_and_has_no_files(home: Path) -> None:
    place = home / ".claude" / "commands" / "tidy.md"
    place.parent.mkdir(parents=True)
    place.write_text("Tidy $ARGUMENTS up.\n", encoding="utf-8")
    async with mcp_endpoint(home) as endpoint, endpoint.client() as client:
        filled = await client.get_prompt("tidy", {"arguments": "the desk"})
        assert "Tidy the desk up." in filled.model_dump_json()
        loaded = await client.call_tool("load_skill", {"name": "tidy"})
        assert loaded.structured_content["files"] == []
        with pytest.raises(MCPError, match="request_invalid"):
            await client.read_resource("skill://tidy/SKILL.md")


@pytest.mark.unmeasured
async def test_what_another_server_offers_is_not_served_again(home: Path) -> None:
    add_sample_skills(home)
    inner = home / "inner"
    inner.mkdir()
    add_skill(inner, "far", skill_text("far"))
    far = stdio_parameters(inner)
    servers = {"near": {"command": sys.executable, "args": far.args, "env": far.env}}
    async with (
        mcp_endpoint(home, mcp={"servers": servers}) as endpoint,
        endpoint.client() as client,
    ):
        names = [prompt.name for prompt in (await client.list_prompts()).prompts]
        assert "mcp__near__far" in names
        uris = [resource.uri for resource in (await client.list_resources()).resources]
        assert not [uri for uri in uris if "mcp__" in uri]
        with pytest.raises(MCPError, match="skill_not_found"):
            await client.read_resource("skill://mcp__near__far/SKILL.md")
        loaded = await client.call_tool("load_skill", {"name": "mcp__near__far"})
        assert (loaded.structured_content["text"], loaded.structured_content["files"]) == (
            "Do it.\n",
            [],
        )


async def test_a_forked_skill_needs_more_than_reading(home: Path) -> None:
    add_skill(home, "apart", skill_text("apart", body="Say 1 + 1.", more="context: fork\n"))
    async with mcp_endpoint(home) as endpoint:
        async with endpoint.client("skills:read") as client:
            with pytest.raises(MCPError, match=r"scope_missing.*exec"):
                await client.get_prompt("apart")
        async with endpoint.client() as client:
            content = (await client.get_prompt("apart")).messages[0].content
            assert isinstance(content, types.TextContent)
            assert content.text


@pytest.mark.needs("sandbox")
async def test_a_client_may_end_a_script_earlier_than_settings_do(home: Path) -> None:
    add_skill(home, "slow", skill_text("slow"), {"scripts/main.py": SLOW})
    async with mcp_endpoint(home) as endpoint, endpoint.client() as client:
        ended = await client.call_tool("run_skill", {"name": "slow", "seconds": 0.5})
        assert ended.is_error
        assert ended.structured_content["outcome"] == "timeout"


async def test_a_skill_that_cannot_be_read_any_more_has_no_files(home: Path) -> None:
    add_sample_skills(home)
    async with mcp_endpoint(home) as endpoint, endpoint.client() as client:
        (home / ".claude/skills/farewell/SKILL.md").unlink()
        (home / ".claude/skills/farewell").rmdir()
        uris = [resource.uri for resource in (await client.list_resources()).resources]
        assert "skill://farewell/SKILL.md" not in uris
        assert "skill://greet/SKILL.md" in uris
