"""Names that skills have for models."""

import pytest

from apexbridge.models.base import ModelDelta, ModelRequest
from apexbridge.models.client_factory import ModelAliases
from apexbridge.testing import ScriptedModel

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("asked", "reached"),
    [
        ("opus", "qwen-max"),
        ("sonnet", "qwen-plus"),
        ("haiku", "qwen-plus"),
        ("qwen-turbo", "qwen-turbo"),
        ("qwen-plus", "qwen-plus"),
    ],
)
async def test_a_name_is_asked_for_as_what_it_stands_for(asked: str, reached: str) -> None:
    inner = ScriptedModel([[ModelDelta(text="hello")]])
    model = ModelAliases(inner, "qwen-plus", {"opus": "qwen-max"})
    async with model.stream(ModelRequest(model=asked, messages=())) as deltas:
        assert "".join([delta.text async for delta in deltas]) == "hello"
    assert [request.model for request in inner.requests] == [reached]
