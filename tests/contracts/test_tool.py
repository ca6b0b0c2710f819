"""Contract of every tool, run over every implementation."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from apexbridge.errors import ToolInputError
from apexbridge.permissions.engine import decide
from apexbridge.permissions.rules import Rule, ToolPattern
from apexbridge.sandbox.script_executor import ScriptExecutor
from apexbridge.sandbox.workspace import Workspaces
from apexbridge.testing import EventLog, FixedApprover, RecordingSandbox, StaticTool
from apexbridge.tools.base import (
    PathScope,
    SubagentRequest,
    Tool,
    ToolContext,
    ToolRegistry,
    ToolResult,
)
from apexbridge.tools.builtin.bash import BashTool
from apexbridge.tools.builtin.edit import EditTool, WriteTool
from apexbridge.tools.builtin.glob import GlobTool
from apexbridge.tools.builtin.grep import GrepTool
from apexbridge.tools.builtin.read import ReadTool
from apexbridge.tools.builtin.system import CalculateTool, NowTool, PlatformTool
from apexbridge.tools.function import tool

pytestmark = pytest.mark.anyio


@dataclass
class Subject:
    """A tool, and a call of it that makes sense."""

    tool: Tool
    arguments: dict[str, Any]


@tool
def greet(name: str) -> str:
    """Say hello."""
    return f"hello {name}"


def _bash(place: Path) -> Tool:
    async def executor() -> ScriptExecutor:
        return ScriptExecutor(RecordingSandbox(), Workspaces(place / "private"))

    return BashTool(executor)


async def _isolation() -> str:
    return "none"


IMPLEMENTATIONS: dict[str, Callable[[Path], Subject]] = {
    "static": lambda _: Subject(StaticTool(), {}),
    "function": lambda _: Subject(greet, {"name": "you"}),
    "read": lambda _: Subject(ReadTool(), {"file_path": "a.txt"}),
    "write": lambda _: Subject(WriteTool(), {"file_path": "b.txt", "content": "x"}),
    "edit": lambda _: Subject(
        EditTool(), {"file_path": "a.txt", "old_string": "text", "new_string": "x"}
    ),
    "glob": lambda _: Subject(GlobTool(), {"pattern": "*.txt"}),
    "grep": lambda _: Subject(GrepTool(), {"pattern": "te?xt"}),
    "bash": lambda place: Subject(_bash(place), {"command": "ls"}),
    "calculate": lambda _: Subject(CalculateTool(), {"expression": "1 + 1"}),
    "now": lambda _: Subject(NowTool(), {}),
    "platform": lambda _: Subject(PlatformTool(_isolation), {}),
}


@pytest.fixture(params=IMPLEMENTATIONS)
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Subject:
    (tmp_path / "a.txt").write_text("text", encoding="utf-8")
    return IMPLEMENTATIONS[request.param](tmp_path)


async def _no_child(_: SubagentRequest) -> str:
    return "nothing"


def _context(place: Path) -> ToolContext:
    return ToolContext(
        session_id="s",
        call_id="c",
        cwd=place,
        emit=EventLog(),
        spawn=_no_child,
        scope=PathScope(write=(place,)),
    )


def test_a_tool_says_how_it_looks_and_what_it_is_about_to_do(
    subject: Subject, tmp_path: Path
) -> None:
    spec = subject.tool.spec
    assert spec.name
    assert spec.description
    assert spec.input_schema["type"] == "object"
    asked = subject.tool.permissions(subject.arguments, _context(tmp_path))
    assert [request.tool for request in asked] == [spec.name]
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "text"


async def test_a_call_gives_a_result(subject: Subject, tmp_path: Path) -> None:
    result = await subject.tool.call(subject.arguments, _context(tmp_path))
    assert isinstance(result, ToolResult)
    assert result.text
    assert not result.is_error


@pytest.mark.parametrize("subject", sorted(IMPLEMENTATIONS.keys() - {"static"}), indirect=True)
async def test_an_unknown_argument_is_refused_by_name(subject: Subject, tmp_path: Path) -> None:
    """The double takes anything."""
    wrong = {**subject.arguments, "no_such_thing": 1}
    with pytest.raises(ToolInputError, match="no_such_thing"):
        subject.tool.permissions(wrong, _context(tmp_path))
    with pytest.raises(ToolInputError, match="no_such_thing"):
        await subject.tool.call(wrong, _context(tmp_path))


async def test_the_double_gives_what_was_prepared_and_remembers(tmp_path: Path) -> None:
    prepared = ToolResult(text="no", is_error=True)
    double = StaticTool("Mine", prepared)
    assert await double.call({"a": 1}, _context(tmp_path)) is prepared
    assert double.calls == [{"a": 1}]


def test_a_registry_finds_tools_and_takes_no_name_twice() -> None:
    registry = ToolRegistry()
    first = StaticTool("One")
    registry.add(first)
    assert (registry.get("One"), registry.get("Two"), list(registry)) == (first, None, [first])
    second = StaticTool("Two")
    registry.add(second, aliases=("Zwei",))
    assert (registry.get("Zwei"), len(list(registry))) == (second, 2)
    assert registry.names() == {"One", "Two", "Zwei"}
    for name, alias in (("One", "New"), ("New", "One"), ("New", "Zwei"), ("Zwei", "New")):
        with pytest.raises(ValueError, match="already registered"):
            registry.add(StaticTool(name), aliases=(alias,))
    assert registry.names() == {"One", "Two", "Zwei"}


async def test_an_approver_settles_a_question(tmp_path: Path) -> None:
    request = StaticTool("Bash").permissions({}, _context(tmp_path))[0]
    decision = decide(request, [])
    for answer in ("once", "always", "no"):
        approver = FixedApprover(answer)
        assert (decision.effect, await approver(request, decision)) == ("ask", answer)
        assert approver.asked == [request]
    allowed = Rule(effect="allow", pattern=ToolPattern.parse("Bash"))
    assert decide(request, [allowed]).effect == "allow"
