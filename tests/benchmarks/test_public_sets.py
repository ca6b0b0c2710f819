"""Readers of public tool-retrieval sets, with made-up files in their formats."""

from pathlib import Path

import pytest

from apexbridge.evals.corpus import CorpusSkill
from benchmarks import public_sets
from benchmarks.public_sets import ToolRequest
from tests.benchmarks import tool_set_files


def needs(*names: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset({name}) for name in names)


def test_ultratool_has_each_language_of_requests_against_each_of_tools(tmp_path: Path) -> None:
    sets = {
        one.name: one
        for one in public_sets.read_ultratool(tool_set_files.write_ultratool(tmp_path))
    }
    assert list(sets) == [f"UltraTool {mode}" for mode in public_sets.ULTRATOOL_MODES]
    assert sets["UltraTool ZH→EN"].tools == [
        CorpusSkill(id="book_table", name="book_table", description="Books a table"),
        CorpusSkill(
            id="set_alarm", name="set_alarm", description="Sets an alarm", body="hour: Hour"
        ),
    ]
    assert sets["UltraTool ZH→EN"].requests == [
        ToolRequest(texts=("订餐桌并设闹钟",), needed=needs("book_table", "set_alarm")),
        ToolRequest(texts=("叫醒我",), needed=needs("set_alarm")),
    ]
    assert [tool.description for tool in sets["UltraTool EN→ZH"].tools] == ["预订餐桌", "设置闹钟"]
    assert sets["UltraTool both→ZH"].requests[1].texts == ("Wake me", "叫醒我")


def test_ultratool_that_is_not_parallel_is_an_error(tmp_path: Path) -> None:
    tool_set_files.write_ultratool(tmp_path)
    chinese = tmp_path / public_sets.ULTRATOOL["zh"]
    chinese.write_text(chinese.read_text(encoding="utf-8").splitlines()[0], encoding="utf-8")
    with pytest.raises(ValueError, match="shorter"):
        list(public_sets.read_ultratool(tmp_path))


def test_toole_has_requests_for_one_tool_and_for_two(tmp_path: Path) -> None:
    one, two = public_sets.read_toole(tool_set_files.write_toole(tmp_path))
    assert [tool.id for tool in one.tools] == ["Maps", "Tides"]
    assert one.requests == [
        ToolRequest(texts=("When is high tide, and low?",), needed=needs("Tides")),
        ToolRequest(texts=("Draw the coast",), needed=needs("Maps")),
    ]
    assert two.tools == one.tools
    assert two.requests == [ToolRequest(texts=("Draw the tides",), needed=needs("Maps", "Tides"))]


def test_toollens_has_the_test_requests_and_tools_by_tool_and_api_name(tmp_path: Path) -> None:
    (found,) = public_sets.read_toollens(tool_set_files.write_toollens(tmp_path))
    body = "Food\nq: Food, to look up"
    assert found.tools == [
        CorpusSkill(id="0", name="Eats: Find", description="Find meals, or drinks", body=body),
        CorpusSkill(id="1", name="Eats: Shop", description="", body=body),
    ]
    assert found.requests == [ToolRequest(texts=("Cook soup",), needed=needs("0", "1"))]


def test_a_tool_of_toollens_in_another_format_is_an_error(tmp_path: Path) -> None:
    tool_set_files.write_toollens(tmp_path)
    tools = tmp_path / public_sets.TOOLLENS / "corpus.jsonl"
    tools.write_text('{"_id": "3", "text": "Eats"}', encoding="utf-8")
    with pytest.raises(ValueError, match="tool 3"):
        list(public_sets.read_toollens(tmp_path))


def test_seal_tools_needs_a_tool_once_however_often_it_is_called(tmp_path: Path) -> None:
    inside, outside = public_sets.read_seal_tools(tool_set_files.write_seal_tools(tmp_path))
    body = "Chemistry/Lab\nsample: What to weigh"
    tool = CorpusSkill(id="weighSample", name="weighSample", description="Weigh", body=body)
    assert inside.tools == outside.tools == [tool]
    assert inside.requests == [
        ToolRequest(texts=("Weigh a and b in domain",), needed=needs("weighSample"))
    ]
    assert outside.name == "Seal-Tools out of domain"


def test_livemcpbench_accepts_a_tool_of_that_name_on_any_server(tmp_path: Path) -> None:
    (found,) = public_sets.read_livemcpbench(tool_set_files.write_livemcpbench(tmp_path))
    assert found.tools == [
        CorpusSkill(
            id="disk:save", name="Disk Server: save", description="Save a file", body="path: "
        ),
        CorpusSkill(
            id="art:save", name="Art Server: save", description="Save a file", body="path: "
        ),
        CorpusSkill(id="art:draw", name="Art Server: draw", description=""),
    ]
    needed = (frozenset({"art:draw"}), frozenset({"disk:save", "art:save"}))
    assert found.requests == [ToolRequest(texts=("Draw and save a cat",), needed=needed)]
