"""A typed function becomes a tool."""

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
import pytest
from pydantic import BaseModel, Field

import apexbridge
from apexbridge.errors import PermissionDeniedError, ToolFailedError, ToolInputError
from apexbridge.permissions.rules import PermissionRequest
from apexbridge.tools.base import ToolContext, ToolRegistry, ToolResult
from apexbridge.tools.function import FunctionTool, tool
from tests.tools.tool_calls import context, use

pytestmark = pytest.mark.anyio


@dataclass
class Point:
    x: int
    y: float


@tool
def distance(
    start: Point,
    end: Point,
    unit: Literal["m", "km"] = "m",
    tags: list[str] | None = None,
) -> dict[str, object]:
    """Measure how far apart two points are.

    The way is straight.

    Args:
        start: Where it begins,
            and: this line goes on.
        end (Point): Where it ends.

    Returns:
        Not sent to the model.
    """
    return {"far": abs(start.x - end.x) + abs(start.y - end.y), "unit": unit, "tags": tags}


def test_the_schema_and_the_words_come_from_types_and_docstring() -> None:
    spec = distance.spec
    assert (spec.name, spec.read_only) == ("distance", False)
    assert spec.description == "Measure how far apart two points are.\n\nThe way is straight."
    shown = spec.input_schema
    assert shown["required"] == ["start", "end"]
    assert shown["additionalProperties"] is False
    assert shown["properties"]["unit"] == {"default": "m", "enum": ["m", "km"], "type": "string"}
    assert shown["properties"]["start"]["description"] == "Where it begins, and: this line goes on."
    assert shown["properties"]["end"]["description"] == "Where it ends."
    assert "title" not in str(shown)


def test_the_function_is_still_a_function() -> None:
    assert distance(Point(0, 0), Point(3, 4.5))["far"] == 7.5
    assert distance.__doc__ is not None
    assert "Measure" in distance.__doc__


async def test_numbers_may_be_text_and_null_means_not_given(tmp_path: Path) -> None:
    arguments = {"start": {"x": "1", "y": 2}, "end": {"x": 1, "y": "2.5"}, "unit": None}
    result = await use(distance, context(tmp_path), arguments)
    assert result.text == '{\n  "far": 0.5,\n  "unit": "m",\n  "tags": null\n}'


async def test_every_broken_argument_is_named_at_once(tmp_path: Path) -> None:
    wrong: dict[str, Any] = {"start": {"x": 1.5}, "unit": "mile", "tag": [], "end": None}
    with pytest.raises(ToolInputError) as caught:
        distance.permissions(wrong, context(tmp_path))
    said = caught.value.message
    assert "'start.x'" in said
    assert "'start.y' is missing" in said
    assert "'unit': input should be 'm' or 'km', not 'mile'" in said
    assert "'tag' is no argument of it (did you mean 'tags'?)" in said
    assert "'end'" in said
    with pytest.raises(ToolInputError, match="there are start, end, unit, tags"):
        await distance.call({"zzzzz": 1}, context(tmp_path))


async def test_hundreds_of_broken_arguments_make_a_short_message(tmp_path: Path) -> None:
    with pytest.raises(ToolInputError) as caught:
        await distance.call({f"k{n}" * 500: "v" * 9_000 for n in range(500)}, context(tmp_path))
    assert "more" in caught.value.message
    assert len(caught.value.message) < 5_000


async def test_a_long_wrong_value_is_shown_shortened(tmp_path: Path) -> None:
    with pytest.raises(ToolInputError) as caught:
        await distance.call({"start": "v" * 9_000, "end": 3}, context(tmp_path))
    assert len(caught.value.message) < 1_000


async def test_the_context_is_filled_in_and_not_shown(tmp_path: Path) -> None:
    @tool
    async def where(suffix: str, call: ToolContext) -> str:
        """Tell where."""
        return f"{call.session_id}:{call.cwd.name}{suffix}"

    assert list(where.spec.input_schema["properties"]) == ["suffix"]
    assert (await use(where, context(tmp_path), {"suffix": 7})).text == f"s:{tmp_path.name}7"


async def test_parameters_may_be_called_as_what_models_have(tmp_path: Path) -> None:
    @tool
    def odd(json: str, copy: int, model_config: str, schema: str = "s") -> str:
        return f"{json}{copy}{model_config}{schema}"

    assert odd.spec.description == "odd"
    arguments = {"json": "a", "copy": 1, "model_config": "b"}
    assert (await use(odd, context(tmp_path), arguments)).text == "a1bs"


async def test_name_words_and_permission_can_be_chosen(tmp_path: Path) -> None:
    @tool(name="Add", description="Adds.", read_only=True, permission="harmless")
    def add(one: Annotated[int, Field(ge=0, description="not negative")], two: int = 2) -> int:
        return one + two

    assert (add.spec.name, add.spec.description, add.spec.read_only) == ("Add", "Adds.", True)
    assert add.spec.input_schema["properties"]["one"]["description"] == "not negative"
    (asked,) = add.permissions({"one": 1}, context(tmp_path))
    assert asked == PermissionRequest(tool="Add", summary="Add(one=1)", harmless=True)
    with pytest.raises(ToolInputError, match="greater than or equal to 0"):
        await add.call({"one": -1}, context(tmp_path))
    registry = ToolRegistry()
    registry.add(add)
    assert registry.get("Add") is add


async def test_a_tool_of_ones_own_is_asked_about_by_its_name(tmp_path: Path) -> None:
    arguments = {"start": {"x": 1, "y": 1}, "end": {"x": 1, "y": 1}, "tags": ["字" * 999]}
    (asked,) = distance.permissions(arguments, context(tmp_path))
    assert (asked.tool, asked.argument, asked.harmless) == ("distance", "", False)
    assert asked.summary.startswith("distance(start=")
    assert len(asked.summary) == 200


async def test_a_tool_can_say_itself_what_it_asks_for(tmp_path: Path) -> None:
    def asks(arguments: Mapping[str, Any], _: ToolContext) -> Sequence[PermissionRequest]:
        return (PermissionRequest(tool="send", argument=str(arguments["to"])),)

    @tool(permission=asks)
    def send(to: str) -> None:
        """Send it."""

    assert [asked.argument for asked in send.permissions({"to": "x"}, context(tmp_path))] == ["x"]
    assert "nothing was returned" in (await use(send, context(tmp_path), {"to": "x"})).text


async def test_an_exception_is_reported_without_a_traceback(tmp_path: Path) -> None:
    @tool
    def breaks(how: str) -> str:
        if how == "own":
            raise PermissionDeniedError("not you")
        raise ValueError(how)

    with pytest.raises(ToolFailedError) as caught:
        await breaks.call({"how": "磁盘满了"}, context(tmp_path))
    assert caught.value.message == "The tool 'breaks' failed: ValueError: 磁盘满了"
    with pytest.raises(ToolFailedError, match="no reason given"):
        await breaks.call({"how": ""}, context(tmp_path))
    with pytest.raises(PermissionDeniedError):
        await breaks.call({"how": "own"}, context(tmp_path))
    with pytest.raises(ToolFailedError) as caught:
        await breaks.call({"how": "x" * 100_000}, context(tmp_path))
    assert len(caught.value.message) < 3_000


class Reply(BaseModel):
    name: str


async def test_a_function_may_return_anything_that_json_can_carry(tmp_path: Path) -> None:
    prepared = ToolResult(text="mine", is_error=True)
    circle: list[object] = []
    circle.append(circle)
    values = {
        "text": "字",
        "model": Reply(name="中"),
        "result": prepared,
        "list": [1, Path("/a")],
        "object": object(),
        "circle": circle,
        "long": "x" * 100_000,
    }

    @tool
    def give(which: str) -> object:
        return values[which]

    async def given(which: str) -> ToolResult:
        return await use(give, context(tmp_path), {"which": which})

    assert (await given("text")).text == "字"
    assert (await given("model")).text == '{\n  "name": "中"\n}'
    assert await given("result") is prepared
    assert (await given("list")).text == '[\n  1,\n  "/a"\n]'
    assert "characters are left out" in (await given("long")).text
    for odd in ("object", "circle"):
        with pytest.raises(ToolFailedError, match="cannot be shown"):
            await given(odd)


async def test_a_slow_function_does_not_hold_up_a_cancelled_turn(tmp_path: Path) -> None:
    begun, done, nothing = threading.Event(), threading.Event(), dict[str, Any]()

    @tool
    def slow() -> None:
        begun.set()
        done.wait(30)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(slow.call, nothing, context(tmp_path))
            await anyio.to_thread.run_sync(begun.wait)
            group.cancel_scope.cancel()
    assert not done.is_set()
    done.set()


async def test_objects_methods_and_wrapped_coroutines_are_functions_too(tmp_path: Path) -> None:
    class Greeter:
        async def __call__(self, name: str) -> str:
            return f"hello {name}"

        def loud(self, name: str) -> str:
            return name.upper()

    async def inner(name: str) -> str:
        return f"inner {name}"

    @functools.wraps(inner)
    def wrapped(name: str) -> object:
        return inner(name)

    for made, said in (
        (FunctionTool(Greeter(), name="greet"), "hello a"),
        (FunctionTool(Greeter().loud), "A"),
        (FunctionTool(wrapped), "inner a"),
    ):
        assert (await use(made, context(tmp_path), {"name": "a"})).text == said


def _unknown_type(a: Any) -> None:
    """Its type cannot be found."""


_unknown_type.__annotations__["a"] = "NoSuchThing"


def _untyped(a: Any) -> None:
    """It has none."""


_untyped.__annotations__.clear()


def _no_schema(a: threading.Event) -> None:
    """Its type is nothing that JSON has."""


def _code(a: Callable[[], int]) -> None:
    """Its type is nothing that a schema can say."""


def _starred(*a: int) -> None:
    """Its arguments have no names."""


@pytest.mark.parametrize("function", [_untyped, _unknown_type, _no_schema, _code, _starred])
def test_a_function_without_usable_types_is_refused_when_it_is_made(function: Any) -> None:
    with pytest.raises(TypeError):
        tool(function)


def test_it_is_one_of_the_public_names() -> None:
    assert apexbridge.tool is tool
