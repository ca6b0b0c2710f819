"""Command-line entry point: global options, and the group of lazily imported commands."""

import io
import sys
from json import dumps as json_text
from pathlib import Path
from typing import Annotated, Any

import typer

from apexbridge.cli.lazy_group import LazyGroup

app = typer.Typer(
    name="apexbridge",
    cls=LazyGroup,
    help="Skills and tools for any language model.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # importing rich would double the start-up time of --help
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(version("apexbridge"))
        raise typer.Exit


@app.callback()
def common(
    context: typer.Context,
    lang: Annotated[str, typer.Option(help="Language of messages: en or zh.")] = "",
    assign: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override one setting; repeatable."),
    ] = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Skills and tools for any language model."""
    # Kept as strings: the settings schema converts and validates them like variables.
    flags: dict[str, Any] = {"lang": lang} if lang else {}
    for text in assign or ():
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--set")
        _nest(flags, key.split("."), value)
    context.obj = flags


def _nest(into: dict[str, Any], keys: list[str], value: str) -> None:
    for key in keys[:-1]:
        if not isinstance(into.setdefault(key, {}), dict):
            raise typer.BadParameter(f"{key!r} is given both as a value and as a table")
        into = into[key]
    into[keys[-1]] = value


def main() -> None:
    """Run the command line; a closed pipe (BrokenPipeError) is not a failure."""
    if sys.stdout is None:  # the parent process closed file descriptor 1
        sys.stdout = Path("/dev/null").open("w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Escape what the terminal's encoding lacks, instead of a UnicodeEncodeError.
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(0) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except SystemExit as end:
        # Usage errors exit inside the parser; with --json stdout still gets its envelope.
        if type(end.code) is int and end.code == 2 and "--json" in sys.argv:
            error = {"code": "usage", "message": "see stderr", "hint": "", "param": None}
            print(json_text({"ok": False, "command": None, "data": None, "error": error}))
        raise
