"""The house rules that a linter cannot state."""

import ast
import graphlib
from pathlib import Path

import grimp
import pytest

pytestmark = pytest.mark.unmeasured

SOURCE = Path(__file__).parents[2] / "src" / "apexbridge"
MODULES = sorted(SOURCE.rglob("*.py"))
ROOMS = [path for path in MODULES if "bundled" not in path.parts]
MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 60


def test_there_are_modules_to_measure() -> None:
    assert len(MODULES) > 40


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_fits_in_the_head(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= MAX_MODULE_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < MAX_FUNCTION_LINES, node.name


@pytest.mark.parametrize("path", ROOMS, ids=lambda path: str(path.relative_to(SOURCE)))
def test_annotations_are_real_and_nothing_is_hidden_from_the_program(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "from __future__ import annotations" not in text
    assert "TYPE_CHECKING" not in text
    assert "cast(" not in text


def test_no_modules_import_each_other_in_a_ring() -> None:
    graph = grimp.build_graph("apexbridge")
    imports = {m: graph.find_modules_directly_imported_by(m) for m in graph.modules}
    order = list(graphlib.TopologicalSorter(imports).static_order())  # raises on a ring
    assert len(order) == len(imports) > 40
