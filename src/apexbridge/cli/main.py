"""The command line: its commands and their flags. The work is imported when a command runs."""

import io
import sys
from json import dumps as json_text
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from apexbridge.cli import (
    commands_catalog,
    commands_chat,
    commands_lifecycle,
    commands_mcp,
    commands_search,
    commands_serve,
    commands_versions,
)
from apexbridge.cli.options import Json, Quiet

app = typer.Typer(
    name="apexbridge",
    help="Skills and tools for any language model.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help starts in half the time
    pretty_exceptions_enable=False,
)

DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Replace what is there without asking.")]
Level = Annotated[
    Literal["compat", "spec"],
    typer.Option(help="compat: what ApexBridge takes; spec: the Agent Skills format alone."),
]


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
            raise typer.BadParameter(f"{key!r} is given as a value and as a table")
        into = into[key]
    into[keys[-1]] = value


@app.command()
def init(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The new skill's name.")],
    into: Annotated[Path, typer.Option("--in", help="The folder to make it in.")] = Path(),
    description: Annotated[str, typer.Option(help="What it does and when to use it.")] = "",
    script: Annotated[
        Literal["none", "python", "bash", "node"], typer.Option(help="Add a script to start from.")
    ] = "none",
    dry_run: DryRun = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make the scaffold of a good skill."""
    from apexbridge.cli.commands import package
    from apexbridge.cli.output import command_output

    with command_output("init", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        request = package.NewSkill(name=name, into=into, description=description, script=script)
        package.init(out, request, dry_run=dry_run)


@app.command()
def validate(
    context: typer.Context,
    paths: Annotated[list[Path], typer.Argument(help="Skill folders, folders of them, or zips.")],
    level: Level = "compat",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Check skills against the rules; every problem at once."""
    from apexbridge.cli.commands import package
    from apexbridge.cli.output import command_output

    with command_output("validate", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        package.validate(out, paths, level)


@app.command()
def pack(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(help="The skill's folder.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The zip to make [NAME.zip].")
    ] = None,
    with_evals: Annotated[bool, typer.Option(help="Take the evals folder along.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Pack a skill into a zip; equal folders give equal bytes."""
    from apexbridge.cli.commands import package
    from apexbridge.cli.output import command_output

    with command_output("pack", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        order = package.PackOptions(
            root=path, output=output, with_evals=with_evals, dry_run=dry_run, replace=yes
        )
        package.pack(out, order)


@app.command(context_settings={"allow_interspersed_args": False})
def run(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The skill's name.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SCRIPT] [-- ARGUMENTS]", help="The script, and what it gets."),
    ] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option("--input", "-i", help="Put a file into the workspace; repeatable."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Keep the files it makes in a folder.")
    ] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds until it is ended.")] = None,
    network: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="Let it reach this host; repeatable."),
    ] = None,
    unsafe: Annotated[
        bool,
        typer.Option("--unsafe-no-sandbox", help="Run it with all your rights; it is recorded."),
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a skill's script in the sandbox: apexbridge run [OPTIONS] SKILL [SCRIPT] [-- ARGS]."""
    from apexbridge.cli.commands import run
    from apexbridge.cli.output import command_output

    script, arguments = _split_words(words or [])
    with command_output("run", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        order = run.RunOptions(
            name=name,
            script=script,
            arguments=tuple(arguments),
            inputs=tuple(file or ()),
            output=output,
            timeout=timeout,
            hosts=tuple(network or ()),
            is_unsafe=unsafe,
        )
        run.run(out, order)


def _split_words(words: list[str]) -> tuple[str, list[str]]:
    """What stands before `--` is the script, what stands behind it is the script's."""
    mark = words.index("--") if "--" in words else len(words)
    if mark > 1:
        raise typer.BadParameter("put '--' before the script's arguments")
    return (words[0] if mark else ""), words[mark + 1 :]


commands_catalog.register(app)
commands_lifecycle.register(app)
commands_versions.register(app)
commands_chat.register(app)
commands_mcp.register(app)
commands_serve.register(app)
commands_search.register(app)


@app.command()
def doctor(
    context: typer.Context,
    fsck: Annotated[
        bool, typer.Option("--fsck", help="Check the data folder instead; nothing is changed.")
    ] = False,
    fix: Annotated[
        bool, typer.Option("--fix", help="Make anew what is derived, then check the data folder.")
    ] = False,
    short: Annotated[
        bool, typer.Option("--short", help="Only what does not work as it should.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Tell in one screen what works here and what does not, by trying."""
    from apexbridge.cli.output import command_output

    with command_output("doctor", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        if fsck or fix:
            from apexbridge.cli.commands import doctor

            doctor.fsck(out, mends=fix)
        else:
            from apexbridge.cli.commands import doctor

            doctor.doctor(out, is_short=short)


@app.command()
def config(
    context: typer.Context,
    key: Annotated[str, typer.Argument(help="One setting; all of them without.")] = "",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show each setting and where it comes from."""
    from apexbridge.cli.commands import doctor
    from apexbridge.cli.output import command_output

    with command_output("config", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        doctor.config(out, key)


def main() -> None:
    """Run the command line; a reader that went away is no failure."""
    if sys.stdout is None:  # the caller closed it
        sys.stdout = Path("/dev/null").open("w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot show a character gets its number, never a crash.
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(0) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except SystemExit as end:
        # The parser ends a wrong call by itself, with a plain 2; programs still get their line.
        if type(end.code) is int and end.code == 2 and "--json" in sys.argv:
            error = {"code": "usage", "message": "see stderr", "hint": "", "param": None}
            print(json_text({"ok": False, "command": None, "data": None, "error": error}))
        raise
