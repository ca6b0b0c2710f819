"""Public API: lazy exports and the type stub list the same names."""

import ast
import subprocess
import sys
from pathlib import Path

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


def test_the_command_line_answers_help_without_loading_the_house() -> None:
    code = (
        "import sys\nfrom apexbridge.cli.main import main\nsys.argv = ['apexbridge', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([m for m in ('pydantic', 'yaml', 'rich', 'anyio') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8", check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
