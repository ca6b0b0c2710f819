"""What every tool promises, over every implementation."""

from collections.abc import Callable
from pathlib import Path

import pytest

from apexbridge.policy.engine import decide
from apexbridge.policy.rules import Rule, ToolPattern
from apexbridge.testing import EventLog, FixedApprover, StaticTool
from apexbridge.tools.base import SubagentRequest, Tool, ToolContext, ToolRegistry, ToolResult

pytestmark = pytest.mark.anyio

IMPLEMENTATIONS: dict[str, Callable[[], Tool]] = {"static": StaticTool}


@pytest.fixture(params=IMPLEMENTATIONS)
def tool(request: pytest.FixtureRequest) -> Tool:
    return IMPLEMENTATIONS[request.param]()


async def _no_child(_: SubagentRequest) -> str:
    return "nothing"


def _context(place: Path) -> ToolContext:
    return ToolContext(session_id="s", call_id="c", cwd=place, emit=EventLog(), spawn=_no_child)


def test_a_tool_says_how_it_looks_and_what_it_is_about_to_do(tool: Tool) -> None:
    assert tool.spec.name
    assert tool.spec.description
    assert tool.spec.input_schema["type"] == "object"
    assert [request.tool for request in tool.permissions({})] == [tool.spec.name]


async def test_a_call_gives_a_result(tool: Tool, tmp_path: Path) -> None:
    assert isinstance(await tool.call({}, _context(tmp_path)), ToolResult)


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
    with pytest.raises(ValueError, match="already registered"):
        registry.add(StaticTool("One"))


async def test_an_approver_settles_a_question() -> None:
    request = StaticTool("Bash").permissions({})[0]
    decision = decide(request, [])
    for answer in ("once", "always", "no"):
        approver = FixedApprover(answer)
        assert (decision.effect, await approver(request, decision)) == ("ask", answer)
        assert approver.asked == [request]
    allowed = Rule(effect="allow", pattern=ToolPattern.parse("Bash"))
    assert decide(request, [allowed]).effect == "allow"
