"""Model factory: from a preset or a base URL in the settings to a model client."""

from pathlib import Path

import pytest

from apexbridge.errors import ConfigError
from apexbridge.messages import UserMessage
from apexbridge.models.base import ModelDelta, ModelRequest
from apexbridge.runtime.model_factory import ModelHandle, open_model
from apexbridge.settings import load
from apexbridge.testing import RawResponse, ScriptedServer
from apexbridge.testing.anthropic_server import AnthropicServer
from apexbridge.tools.base import ToolSpec

pytestmark = pytest.mark.anyio

NOW = ToolSpec(name="Now", description="Tells the time.", input_schema={"type": "object"})
REQUEST = ModelRequest(model="m", messages=(UserMessage(text="hi"),), tools=(NOW,))
WRITTEN = [ModelDelta(text='{"tool": "Now", "arguments": {}}')]
NO_TOOLS = RawResponse(status=400, body=b'{"error": {"message": "m does not support tools"}}')


def _model(home: Path, **settings: str) -> ModelHandle:
    flags = {"model": {"name": "m", **settings}}
    return open_model(load(project=home, flags=flags, environment={"HOME": str(home)}))


async def _called(model: ModelHandle) -> list[str]:
    try:
        async with model.client.stream(REQUEST) as stream:
            return [call.name async for piece in stream for call in piece.tool_calls]
    finally:
        await model.close()


@pytest.mark.parametrize(
    ("tools", "called", "offered"),
    [
        ("native", [], [True]),
        ("text", ["Now"], [False]),
        ("auto", [], [True]),
    ],
)
async def test_tool_calls_are_native_or_text_as_configured(
    home: Path, tools: str, called: list[str], offered: list[bool]
) -> None:
    async with ScriptedServer([WRITTEN]) as server:
        assert await _called(_model(home, base_url=server.base_url, tools=tools)) == called
    assert ["tools" in sent for sent in server.requests] == offered


async def test_a_schema_is_sent_only_with_text_tool_calls(home: Path) -> None:
    async with ScriptedServer([NO_TOOLS, WRITTEN]) as server:
        model = _model(home, preset="ollama", base_url=server.base_url)
        assert await _called(model) == ["Now"]
    assert ["response_format" in sent for sent in server.requests] == [False, True]


async def test_a_preset_brings_its_protocol_and_the_key_is_sent_but_not_shown(home: Path) -> None:
    async with AnthropicServer([WRITTEN]) as server:
        model = _model(
            home,
            preset="claude",
            api_key="sk-secret-123",
            base_url=server.base_url,
            tools="text",
        )
        assert await _called(model) == ["Now"]
    assert server.headers[0]["x-api-key"] == "sk-secret-123"
    assert "sk-secret" not in repr(model)


async def test_an_unknown_preset_is_refused_and_without_one_the_embedded_model_answers(
    home: Path,
) -> None:
    with pytest.raises(ConfigError, match="no provider is named"):
        _model(home, preset="unknown")
    assert open_model(load(project=home, environment={"HOME": str(home)})).name == "embedded"
