"""Public API: lazy exports and the type stub list the same names."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import apexbridge

STUB = Path(apexbridge.__file__).with_suffix(".pyi")


def _stub_names() -> set[str]:
    tree = ast.parse(STUB.read_text(encoding="utf-8"))
    listed = [node.value for node in tree.body if isinstance(node, ast.Assign)]
    return set(ast.literal_eval(listed[0]))


def test_the_lazy_names_and_the_stub_are_the_same() -> None:
    assert set(apexbridge.__all__) == _stub_names()


def test_every_public_name_can_be_had() -> None:
    for name in apexbridge.__all__:
        assert getattr(apexbridge, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert getattr(apexbridge, "nothing_of_that_name", None) is None


def test_importing_the_package_loads_no_library() -> None:
    code = (
        "import sys, apexbridge\n"
        "print([m for m in ('pydantic', 'yaml', 'typer') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8", check=True
    )
    assert done.stdout.strip() == "[]"


def _loaded_by(arguments: list[str]) -> set[str]:
    """Top-level packages, and subpackages of the project, that a command line imports."""
    code = (
        "import sys\nfrom apexbridge.cli.main import main\n"
        f"sys.argv = ['apexbridge', *{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8", check=True
    )
    return set(done.stdout.splitlines()[-1].split())


def test_the_command_line_answers_help_without_loading_libraries() -> None:
    assert _loaded_by(["--help"]).isdisjoint({"pydantic", "yaml", "rich", "anyio"})


@pytest.mark.parametrize(
    "arguments",
    [
        ["ls", "--help"],
        ["serve", "--help"],
        ["keys", "--help"],
        ["keys", "create", "--help"],
        ["ls", "--no-such-option"],
    ],
    ids=" ".join,
)
def test_help_and_usage_errors_of_a_command_load_neither_runtime_nor_libraries(
    arguments: list[str],
) -> None:
    # Not pydantic: Typer's parser itself imports it to convert the options.
    heavy = {"yaml", "rich", "anyio", "httpx", "numpy", "apexbridge.runtime", "apexbridge.settings"}
    assert _loaded_by(arguments).isdisjoint(heavy)
