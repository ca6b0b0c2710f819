"""Command handlers: each command's code is imported when the command runs, not for its help."""

import importlib
import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

import typer

from apexbridge.cli.options import Json, Quiet

_UNSET = (None, "")


def load_handler(module: str, name: str) -> Callable[..., None]:
    """Import the function that handles a command."""
    return getattr(importlib.import_module(f"apexbridge.cli.commands.{module}"), name)


def handled_in(
    module: str, *, has_json: bool = True, overrides: str = ""
) -> Callable[..., Callable[..., None]]:
    """Decorate a declaration of options: the function of its name in `cli.commands` handles it.

    Adds the options `--json` and `--quiet`; the handler gets an `Output` set up by them, and
    every other option by its name. With `overrides` the options are settings of that table, and
    `--add-dir` always is one.
    """
    common = {"context": typer.Context, **({"json": Json} if has_json else {}), "quiet": Quiet}

    def decorate(declared: Callable[..., None]) -> Callable[..., None]:
        @wraps(declared)
        def invoke(
            *, context: typer.Context, quiet: bool, json: bool = False, **options: Any
        ) -> None:
            from apexbridge.cli.output import command_output

            if folders := options.pop("add_dir", None):
                added = {"additional_dirs": list(map(str, folders))}
                context.obj = {**context.obj, "skills": {**context.obj.get("skills", {}), **added}}
            if overrides:
                given = {key: str(value) for key, value in options.items() if value not in _UNSET}
                if given:
                    table = {**context.obj.get(overrides, {}), **given}
                    context.obj = {**context.obj, overrides: table}
                options = {}
            with command_output(context, json=json, quiet=quiet) as out:
                load_handler(module, declared.__name__)(out, **options)

        # Typer reads the options from the signature and from the annotations.
        own = inspect.signature(declared).parameters.values()
        shared = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if name == "context" else False,
                annotation=annotation,
            )
            for name, annotation in common.items()
        ]
        vars(invoke)["handled_in"] = module
        vars(invoke)["__signature__"] = inspect.Signature([*own, *shared])
        invoke.__annotations__ = {**declared.__annotations__, **common}
        return invoke

    return decorate


def add_group(app: typer.Typer, name: str, help_line: str) -> typer.Typer:
    """Add a group of subcommands."""
    group = typer.Typer(help=help_line, no_args_is_help=True, rich_markup_mode=None)
    app.add_typer(group, name=name)
    return group
