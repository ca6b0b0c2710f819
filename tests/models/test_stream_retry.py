"""Model requests as configured by settings."""

import json
from pathlib import Path

import anyio
import pytest

from apexbridge.models.base import ModelDelta
from apexbridge.runtime import Runtime
from apexbridge.settings import load
from apexbridge.testing import ScriptedServer

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("has_schema", [True, False])
async def test_a_service_that_holds_replies_to_a_schema_is_given_one(
    home: Path, tmp_path: Path, has_schema: bool
) -> None:
    call = json.dumps({"tool": "Calculate", "arguments": {"expression": "6 * 7"}})
    answer = json.dumps({"answer": "It is 42."})
    replies = [[ModelDelta(text=call)], [ModelDelta(text=answer)]]
    async with ScriptedServer(replies) as server:
        environment = {
            "HOME": str(home),
            "APEXBRIDGE_INDEX__EMBEDDER": "hash",
            "APEXBRIDGE_MODEL__BASE_URL": server.base_url,
            "APEXBRIDGE_MODEL__NAME": "m",
            "APEXBRIDGE_MODEL__TOOLS": "text",
            "APEXBRIDGE_MODEL__JSON_SCHEMA": str(has_schema),
        }
        loaded = load(project=tmp_path, environment=environment)
        said = list[str]()
        with anyio.fail_after(60):
            async with Runtime.open(loaded) as runtime:
                async for event in runtime.chat("How much is six times seven?"):
                    said.append(getattr(event, "text", ""))
    assert said[-1] == "It is 42."
    for request in server.requests:
        assert "tools" not in request
        assert ("response_format" in request) is has_schema
    if has_schema:
        schema = server.requests[0]["response_format"]["json_schema"]["schema"]
        names = [kind["properties"].get("tool", {}).get("const") for kind in schema["anyOf"]]
        assert "Calculate" in names
