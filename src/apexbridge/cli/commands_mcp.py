"""`mcp`, and its flags. The work comes late."""

import typer

from apexbridge.cli.options import Quiet


def register(app: typer.Typer) -> None:
    """Add this command to the program's."""
    app.command()(mcp)


def mcp(context: typer.Context, quiet: Quiet = False) -> None:
    """Serve skills to an MCP client on standard input and output, which it starts this with."""
    from apexbridge.cli.commands import mcp
    from apexbridge.cli.output import command_output

    with command_output("mcp", as_json=False, is_quiet=quiet, flags=context.obj) as out:
        mcp.mcp(out)
