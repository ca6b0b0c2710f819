"""Structure rules that a linter cannot state: sizes, annotations, no import cycles."""

import ast
import graphlib
from pathlib import Path

import grimp
import pytest

pytestmark = pytest.mark.unmeasured

SOURCE = Path(__file__).parents[2] / "src" / "apexbridge"
MODULES = sorted(SOURCE.rglob("*.py"))
OURS = [path for path in MODULES if "bundled" not in path.parts]
LAZY = frozenset({"runtime/container.py", "runtime/index_service.py"})
"""The composition root types services that it imports when they are first used: without this, a
public property would have no return type, or every command would load the agent and numpy."""
MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 60


def test_there_are_modules_to_measure() -> None:
    assert len(MODULES) > 40


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_and_its_functions_are_short(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= MAX_MODULE_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < MAX_FUNCTION_LINES, node.name


@pytest.mark.parametrize("path", OURS, ids=lambda path: str(path.relative_to(SOURCE)))
def test_annotations_are_real_and_types_are_not_hidden(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "from __future__ import annotations" not in text
    assert "TYPE_CHECKING" not in text or str(path.relative_to(SOURCE)) in LAZY
    assert "cast(" not in text


@pytest.mark.parametrize("path", OURS, ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_public_function_and_property_has_a_return_type(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.returns is not None or node.name.startswith("_"), node.name


def test_no_import_cycles() -> None:
    graph = grimp.build_graph("apexbridge")
    imports = {m: graph.find_modules_directly_imported_by(m) for m in graph.modules}
    order = list(graphlib.TopologicalSorter(imports).static_order())  # raises on a cycle
    assert len(order) == len(imports) > 40
