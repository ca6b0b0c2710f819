"""The commands about the server and its keys, and their flags. The work is imported late."""

from typing import Annotated

import typer

from apexbridge.cli.options import Json, Quiet

keys = typer.Typer(
    help="Make, list and revoke the keys of the server.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def register(app: typer.Typer) -> None:
    """Add these commands to the program's."""
    app.command()(serve)
    app.add_typer(keys, name="keys")
    for command in (make, ls, revoke):
        keys.command()(command)


def serve(
    context: typer.Context,
    host: Annotated[str, typer.Option(help="The address to listen at [server.host].")] = "",
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help="The port; 0 for any free one [server.port]."),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Serve chat, skills, MCP and the console over HTTP, until told to stop."""
    from apexbridge.cli.output import command_output

    flags = context.obj
    chosen = {"host": host} if host else {}
    if port is not None:
        chosen["port"] = str(port)
    if chosen:
        flags = {**flags, "server": {**flags.get("server", {}), **chosen}}
    with command_output("serve", as_json=json, is_quiet=quiet, flags=flags) as out:
        from apexbridge.cli.commands import serve

        serve.serve(out)


def make(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="What it is for.")],
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help="What it may do: chat, skills:read, skills:write, exec or admin; repeatable "
            "[chat and skills:read]."
        ),
    ] = None,
    expires_days: Annotated[
        float | None, typer.Option(min=0, max=36_500, help="Days until it ends [never].")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make a key; it is shown this once."""
    from apexbridge.cli.commands import keys
    from apexbridge.cli.output import command_output

    with command_output("keys make", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        keys.make(out, name, scope or (), expires_days)


def ls(context: typer.Context, json: Json = False, quiet: Quiet = False) -> None:
    """List the keys: their names and what they may do."""
    from apexbridge.cli.commands import keys
    from apexbridge.cli.output import command_output

    with command_output("keys ls", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        keys.ls(out)


def revoke(
    context: typer.Context,
    key: Annotated[str, typer.Argument(metavar="ID", help="The key's id, or its name.")],
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """End a key at once, also for a server that runs."""
    from apexbridge.cli.commands import keys
    from apexbridge.cli.output import command_output

    with command_output("keys revoke", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        keys.revoke(out, key)
