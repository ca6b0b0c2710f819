"""The table of public tool-retrieval sets: its figures, its rows, and sets that are missing."""

from pathlib import Path

import pytest

from apexbridge.testing import HashEmbedder
from benchmarks import public_sets_table
from benchmarks.public_sets import ToolRequest, read_ultratool
from benchmarks.public_sets_table import Figures, evenly_spaced, figures, measure
from tests.benchmarks import tool_set_files

ONE = ToolRequest(texts=("one",), needed=(frozenset({"a"}),))
TWO = ToolRequest(texts=("two",), needed=(frozenset({"a"}), frozenset({"b", "c"})))


def test_figures_count_needed_tools_whole_requests_and_first_results() -> None:
    results = [(ONE, ["x", "a"]), (TWO, ["c", "b"]), (TWO, ["a", "b"]), (TWO, list[str]())]
    assert figures(results) == Figures(recall=(1 + 0.5 + 1 + 0) / 4, completeness=0.5, hit=0.5)


def test_a_sample_is_evenly_spaced() -> None:
    requests = [ToolRequest(texts=(str(at),), needed=ONE.needed) for at in range(10)]
    assert [request.texts[0] for request in evenly_spaced(requests, 3)] == ["0", "3", "6"]
    assert evenly_spaced(requests, 0) == evenly_spaced(requests, 99) == requests


async def test_every_system_is_measured_on_the_same_requests(tmp_path: Path) -> None:
    sets = {one.name: one for one in read_ultratool(tool_set_files.write_ultratool(tmp_path))}
    english = await measure(sets["UltraTool EN"], HashEmbedder(256), HashEmbedder(64))
    assert list(english) == ["ours", "vectors", "BM25", "MiniLM"]
    assert english["BM25"].hit == 0.5  # "Wake me" has no word of the tool that it needs
    both = await measure(sets["UltraTool both→ZH"], HashEmbedder(256), None)
    assert both["ours"].completeness == 1  # there are no more than five tools
    assert "MiniLM" not in both


def test_the_table_has_a_row_for_each_metric_and_says_which_sets_are_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tool_set_files.write_toole(tmp_path / "MetaTool")
    public_sets_table.main({"toole": folder, "toollens": tmp_path / "nowhere"}, sample=1)
    lines = capsys.readouterr().out.splitlines()
    assert "COLT is not measured: --toollens FOLDER is a checkout of it" in lines
    assert "Seal-Tools is not measured: --seal-tools FOLDER is a checkout of it" in lines
    (first,) = (at for at, line in enumerate(lines) if line.startswith("ToolE: "))
    rows = [line.split() for line in lines[first : first + 5]]
    assert rows[0][:5] == ["ToolE:", "2", "tools,", "1", "requests"]
    assert [row[-4] for row in rows] == ["R@5", "hit@1", "R@5", "COMP@5", "hit@1"]
    assert rows[0][-3:] == ["1.000", "1.000", "1.000"]
