"""Skills extension, read by another implementation's client and by our own source."""

from pathlib import Path, PurePosixPath

import pytest
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from fastmcp.skills import SkillsClientExtension
from mcp import MCPError

from apexbridge.skills.parser import read_skill
from apexbridge.sources.mcp.source import McpSource, ServerAddress
from tests.mcp_server.mcp_fixtures import (
    GREET,
    McpEndpoint,
    add_sample_skills,
    add_skill,
    mcp_endpoint,
    skill_text,
    stdio_parameters,
)

pytestmark = pytest.mark.anyio

LISTED = """\
---
name: listed
description: Lists its tools, nests its data, leaves one field empty
allowed-tools: [Read, "Bash(git add:*)"]
license:
metadata:
  tags: [a, b]
---
Body.
"""


def others(endpoint: McpEndpoint) -> Client[StreamableHttpTransport]:
    """The other implementation's client."""
    transport = StreamableHttpTransport(endpoint.url, auth=endpoint.key("skills:read"))
    return Client(transport, extensions=[SkillsClientExtension()])


async def test_fastmcp_lists_and_gets_skills_with_their_digests(home: Path) -> None:
    add_sample_skills(home)
    add_skill(home, "listed", LISTED)
    async with mcp_endpoint(home, page_size=2) as endpoint, others(endpoint) as client:
        skills = {skill.frontmatter.name: skill for skill in await client.list_skills()}
        assert {"greet", "farewell", "listed", "csv-report"} <= skills.keys()
        greet = skills["greet"]
        assert (greet.uri, greet.frontmatter.description) == (
            "skill://greet/SKILL.md",
            "Greets somebody politely",
        )
        assert not isinstance(greet.resources, str)
        assert len(greet.resources) == 4
        assert skills["listed"].frontmatter.allowed_tools == "Read Bash(git add:*)"
        assert skills["listed"].frontmatter.metadata == {"tags": '["a", "b"]'}
        assert await client.get_skill(greet.uri) == greet
        for uri, code in {
            "skill://gret/SKILL.md": "skill_not_found",
            "skill://greet/scripts/main.py": "request_invalid",
            "skill://greet/../x": "request_invalid",
        }.items():
            with pytest.raises(MCPError, match=code):
                await client.get_skill(uri)


@pytest.mark.parametrize(
    "text",
    [
        "Only a body.\n",
        skill_text("other-name"),
        skill_text("odd", description="x" * 1_025),
        skill_text("odd", more="compatibility: [a]\n"),
        skill_text("odd", more="license: [MIT]\n"),
        "---\ndescription: No name\n---\nBody\n",
    ],
    ids=["no-frontmatter", "other-name", "long", "compatibility", "license", "no-name"],
)
async def test_an_entry_with_invalid_frontmatter_is_left_out(home: Path, text: str) -> None:
    add_skill(home, "odd", text)
    add_skill(home, "sound", skill_text("sound"))
    async with mcp_endpoint(home) as endpoint, others(endpoint) as client:
        names = {skill.uri.split("/")[2] for skill in await client.list_skills()}
        assert "sound" in names
        assert "odd" not in names


async def test_a_skill_with_too_many_files_is_not_listed_as_whole(home: Path) -> None:
    add_skill(home, "many", skill_text("many"), {f"f/{number}.txt": "x" for number in range(513)})
    async with mcp_endpoint(home) as endpoint, others(endpoint) as client:
        assert "many" not in {skill.frontmatter.name for skill in await client.list_skills()}
        with pytest.raises(MCPError, match="skill_not_found"):
            await client.get_skill("skill://many/SKILL.md")
        uris = {str(resource.uri) for resource in await client.list_resources()}
        assert "skill://many/SKILL.md" in uris
        assert "skill://many/f/1.txt" not in uris


async def test_an_edited_skill_is_listed_with_its_new_digest(home: Path) -> None:
    add_sample_skills(home)
    async with mcp_endpoint(home) as endpoint, others(endpoint) as client:
        before = await client.get_skill("skill://greet/SKILL.md")
        add_skill(home, "greet", GREET.replace("politely", "loudly"))
        await endpoint.runtime.refresh()
        after = await client.get_skill("skill://greet/SKILL.md")
        assert after.frontmatter.description == "Greets somebody loudly"
        assert after.resources != before.resources


@pytest.mark.parametrize("way", ["http", pytest.param("stdio", marks=pytest.mark.unmeasured)])
async def test_our_own_source_reads_back_what_we_serve(home: Path, way: str) -> None:
    add_sample_skills(home)
    add_skill(home, "listed", LISTED)
    async with mcp_endpoint(home) as endpoint:
        over_http = ServerAddress(
            url=endpoint.url, headers={"Authorization": f"Bearer {endpoint.key('skills:read')}"}
        )
        started = stdio_parameters(home)
        as_process = ServerAddress(
            command=started.command, args=tuple(started.args), env=started.env or {}
        )
        source = McpSource("own", over_http if way == "http" else as_process)
        try:
            scan = await source.scan()
            assert not [problem for problem in scan.problems if problem.severity == "error"]
            found = {skill.name: skill for skill in scan.skills}
            assert (await source.content(found["mcp__own__listed"])).body == "Body.\n"
            skill = found["mcp__own__greet"]
            root = home / ".claude/skills/greet"
            original = read_skill(root, skill.provenance).skill
            assert original is not None
            assert skill.manifest == original.manifest
            assert skill.description == original.description
            assert (await source.content(skill)).body == "Greet $who, $how.\n"
            for path in (path for path in root.rglob("*") if path.is_file()):
                relative = PurePosixPath(path.relative_to(root).as_posix())
                assert (await source.resource(skill, relative)).data == path.read_bytes()
        finally:
            await source.close()
