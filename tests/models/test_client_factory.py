"""Client factory: from a preset or a base URL to a model client."""

import pytest

from apexbridge.errors import ConfigError
from apexbridge.messages import UserMessage
from apexbridge.models.base import ModelDelta, ModelRequest
from apexbridge.models.client_factory import ProviderConnection, open_client
from apexbridge.models.presets import Tools
from apexbridge.testing import RawResponse, ScriptedServer
from apexbridge.testing.anthropic_server import AnthropicServer
from apexbridge.tools.base import ToolSpec

pytestmark = pytest.mark.anyio

NOW = ToolSpec(name="Now", description="Tells the time.", input_schema={"type": "object"})
REQUEST = ModelRequest(model="m", messages=(UserMessage(text="hi"),), tools=(NOW,))
WRITTEN = [ModelDelta(text='{"tool": "Now", "arguments": {}}')]
NO_TOOLS = RawResponse(status=400, body=b'{"error": {"message": "m does not support tools"}}')


async def _called(connection: ProviderConnection) -> list[str]:
    async with open_client(connection) as client, client.stream(REQUEST) as stream:
        return [call.name async for piece in stream for call in piece.tool_calls]


@pytest.mark.parametrize(
    ("tools", "called", "offered"),
    [
        ("native", [], [True]),
        ("text", ["Now"], [False]),
        ("auto", [], [True]),
    ],
)
async def test_tool_calls_are_native_or_text_as_configured(
    tools: Tools, called: list[str], offered: list[bool]
) -> None:
    async with ScriptedServer([WRITTEN]) as server:
        connection = ProviderConnection(base_url=server.base_url, tools=tools)
        assert await _called(connection) == called
    assert ["tools" in sent for sent in server.requests] == offered


async def test_a_schema_is_asked_for_only_where_tools_are_words() -> None:
    async with ScriptedServer([NO_TOOLS, WRITTEN]) as server:
        connection = ProviderConnection.from_preset("ollama", base_url=server.base_url)
        assert await _called(connection) == ["Now"]
    assert ["response_format" in sent for sent in server.requests] == [False, True]


async def test_a_provider_brings_its_protocol_and_its_key_is_sent_but_not_shown() -> None:
    async with AnthropicServer([WRITTEN]) as server:
        connection = ProviderConnection.from_preset(
            "claude", api_key="sk-secret-123", base_url=server.base_url
        )
        assert await _called(connection.override(tools="text")) == ["Now"]
    assert server.headers[0]["x-api-key"] == "sk-secret-123"
    assert "sk-secret" not in repr(connection)


def test_an_address_is_the_provider_s_own_unless_one_is_given() -> None:
    assert (
        ProviderConnection.from_preset("zhipu").base_url == "https://open.bigmodel.cn/api/paas/v4"
    )
    assert (
        ProviderConnection.from_preset("vllm").override(protocol="anthropic").protocol
        == "anthropic"
    )
    with pytest.raises(ConfigError, match="no provider is named"):
        ProviderConnection.from_preset("unknown")
