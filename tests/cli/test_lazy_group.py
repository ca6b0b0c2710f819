"""Lazily imported commands, and deprecated commands and options."""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from apexbridge.cli import service_commands, skill_commands
from apexbridge.cli.handlers import load_handler
from apexbridge.cli.lazy_group import COMMANDS, DEPRECATED_OPTIONS
from apexbridge.testing import make_skill
from tests.cli.conftest import Run, commands


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_table_has_the_help_line_of_the_command(name: str) -> None:
    command = commands().commands[name]
    assert (command.help or "").partition("\n\n")[0].replace("\n", " ") == COMMANDS[name]


def _declared(app: typer.Typer) -> Iterator[Any]:
    yield from (command.callback for command in app.registered_commands)
    for group in app.registered_groups:
        yield from _declared(group.typer_instance) if group.typer_instance else ()


@pytest.mark.parametrize(
    "declared",
    [*_declared(skill_commands.app), *_declared(service_commands.app)],
    ids=lambda declared: f"{declared.handled_in}.{declared.__name__}",
)
def test_a_handler_takes_the_options_that_its_command_declares(declared: Any) -> None:
    # `--add-dir` is a setting, as are the options of `serve`: none of them reaches a handler.
    common = {"context", "json", "quiet", "add_dir"}
    options = inspect.signature(declared).parameters.keys() - common
    handler = inspect.signature(load_handler(declared.handled_in, declared.__name__))
    out, *required = (p for p in handler.parameters.values() if p.default is p.empty)
    assert out.name == "out"
    assert {p.name for p in required} == (set() if declared.__name__ == "serve" else options)


def test_a_misspelt_command_gets_a_suggestion(run: Run) -> None:
    done = run("serch")
    assert done.code == 2
    assert "No such command 'serch'" in done.err
    assert "Did you mean 'explain'" in run("explian").err


@pytest.mark.parametrize(
    ("command", "old", "new"),
    [(c, old, new) for c, names in DEPRECATED_OPTIONS.items() for old, new in names.items()],
)
def test_a_deprecated_option_is_replaced_with_a_warning(
    run: Run, command: str, old: str, new: str
) -> None:
    options = {option for param in commands().commands[command].params for option in param.opts}
    assert new in options
    assert old not in options
    value = "=x" if command == "edit-description" else ""
    done = run(command, old + value, "--help")
    assert done.err == f"Warning: option {old} is deprecated, use {new}\n"
    assert done.code == 0


def test_a_deprecated_option_keeps_its_value(run: Run, home: Path, project: Path) -> None:
    source = make_skill(project, "garden", description="Grows tomatoes.")
    assert run("--set", "index.embedder=hash", "add", str(source), "--yes").code == 0
    edit = ("--set", "index.embedder=hash", "edit-description", "garden", "Grows peas.")
    refused = run(*edit, "--seen=0000", "--json")
    assert refused.error["code"] == "skill_changed"
    assert "--seen is deprecated, use --if-match" in refused.err


def test_arguments_of_a_script_are_not_touched(run: Run) -> None:
    done = run("run", "csv-report", "--", "--seen")
    assert "deprecated" not in done.err


def test_keys_make_is_a_deprecated_name_of_keys_create(run: Run) -> None:
    old = run("keys", "make", "laptop", "--json")
    assert (old.code, old.data["name"]) == (0, "laptop")
    assert "deprecated" in old.err
    assert "make" not in run("keys", "--help").out
    new = run("keys", "create", "phone", "--json")
    assert (new.code, new.err) == (0, "")
