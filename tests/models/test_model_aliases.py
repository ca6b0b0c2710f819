"""Model aliases in skills."""

import pytest

from apexbridge.models.aliases import ModelAliases
from apexbridge.models.base import ModelDelta, ModelRequest
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
async def test_an_alias_is_resolved(asked: str, reached: str) -> None:
    inner = ScriptedModel([[ModelDelta(text="hello")]])
    model = ModelAliases(inner, "qwen-plus", {"opus": "qwen-max"})
    async with model.stream(ModelRequest(model=asked, messages=())) as deltas:
        assert "".join([delta.text async for delta in deltas]) == "hello"
    assert [request.model for request in inner.requests] == [reached]
