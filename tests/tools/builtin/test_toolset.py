"""The built-in toolset: every tool under its name and aliases."""

import json
from pathlib import Path
from typing import Any

import pytest

from apexbridge.errors import ToolInputError
from apexbridge.sandbox.script_executor import ScriptExecutor
from apexbridge.sandbox.workspace import Workspaces
from apexbridge.testing import RecordingSandbox
from apexbridge.tools.base import ToolRegistry
from apexbridge.tools.builtin.toolset import builtin_tools
from tests.tools.tool_calls import context, use

pytestmark = pytest.mark.anyio


def _registry(place: Path) -> ToolRegistry:
    async def executor() -> ScriptExecutor:
        return ScriptExecutor(RecordingSandbox(), Workspaces(place / "private"))

    registry = ToolRegistry()
    for made, aliases in builtin_tools(executor):
        registry.add(made, aliases=aliases)
    return registry


def test_every_name_of_the_founding_documents_is_there(tmp_path: Path) -> None:
    registry = _registry(tmp_path)
    assert [made.spec.name for made in registry] == [
        "Read", "Write", "Edit", "Glob", "Grep", "Bash", "Calculate", "Now", "Platform"
    ]  # fmt: skip
    for name, meant in {
        "FileRead": "Read",
        "FileWrite": "Write",
        "PlatformDetector": "Platform",
        "calculate": "Calculate",
        "datetime": "Now",
    }.items():
        made = registry.get(name)
        assert made is not None
        assert made.spec.name == meant


def test_what_changes_nothing_says_so(tmp_path: Path) -> None:
    changing = {made.spec.name for made in _registry(tmp_path) if not made.spec.read_only}
    assert changing == {"Write", "Edit", "Bash"}


def test_every_schema_is_json_that_models_take(tmp_path: Path) -> None:
    total = 0
    for made in _registry(tmp_path):
        text = json.dumps(made.spec.input_schema)
        assert made.spec.input_schema["type"] == "object"
        assert made.spec.input_schema["additionalProperties"] is False
        assert '"title"' not in text
        total += len(text) + len(made.spec.description)
    assert total < 8_000  # what they cost in every prompt


async def test_the_platform_asks_the_workshop_what_isolates(tmp_path: Path) -> None:
    made = _registry(tmp_path).get("Platform")
    assert made is not None
    assert "sandbox: recording" in (await use(made, context(tmp_path), {})).text


@pytest.mark.parametrize("name", ["Read", "Write", "Edit", "Glob", "Grep", "Bash", "Calculate"])
@pytest.mark.parametrize(
    "arguments", [{}, {"no_such": 1}, {"path": ["a"]}, {"command": {}}, {"file_path": None}]
)
async def test_arguments_that_do_not_fit_are_refused_before_anything_happens(
    tmp_path: Path, name: str, arguments: dict[str, Any]
) -> None:
    made = _registry(tmp_path).get(name)
    assert made is not None
    with pytest.raises(ToolInputError, match="Invalid arguments"):
        made.permissions(arguments, context(tmp_path))
    with pytest.raises(ToolInputError, match="Invalid arguments"):
        await made.call(arguments, context(tmp_path))
    assert list(tmp_path.iterdir()) == []
