"""The commands about the versions of installed skills, and their flags. The work comes late."""

from pathlib import Path
from typing import Annotated

import typer

from apexbridge.cli.options import Json, Name, Quiet, Yes


def register(app: typer.Typer) -> None:
    """Add these commands to the program's."""
    for command in (update, versions, rollback, pin, diff):
        app.command()(command)


def update(  # noqa: PLR0913  # a flag is a parameter
    context: typer.Context,
    path: Annotated[Path, typer.Argument(help="A zip or folder with a newer version of a skill.")],
    allow_older: Annotated[
        bool, typer.Option("--allow-older", help="Take a version with a lower number, too.")
    ] = False,
    despite_findings: Annotated[
        bool, typer.Option("--despite-findings", help="Install what looks dangerous, too.")
    ] = False,
    yes: Yes = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Replace an installed skill by a newer version of it; the old one is kept."""
    from apexbridge.cli.commands import versions
    from apexbridge.cli.output import command_output

    with command_output("update", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        order = versions.UpdateOptions(
            path=path, allow_older=allow_older, despite_findings=despite_findings, yes=yes
        )
        versions.update(out, order)


def versions(context: typer.Context, name: Name, json: Json = False, quiet: Quiet = False) -> None:
    """List the versions of an installed skill."""
    from apexbridge.cli.commands import versions
    from apexbridge.cli.output import command_output

    with command_output("versions", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        versions.versions(out, name)


def rollback(
    context: typer.Context,
    name: Name,
    version: Annotated[
        str, typer.Argument(help="A version, a hash or its beginning [the last one].")
    ] = "",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Let an earlier version of a skill be used again."""
    from apexbridge.cli.commands import versions
    from apexbridge.cli.output import command_output

    with command_output("rollback", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        versions.rollback(out, name, version)


def pin(
    context: typer.Context,
    name: Name,
    version: Annotated[
        str, typer.Argument(help="A version, a hash or its beginning [the one in use].")
    ] = "",
    off: Annotated[bool, typer.Option("--off", help="Let the skill change again.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Hold a skill to a version: it is not updated, edited or rolled back."""
    from apexbridge.cli.commands import versions
    from apexbridge.cli.output import command_output

    with command_output("pin", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        if off:
            versions.unpin(out, name)
        else:
            versions.pin(out, name, version)


def diff(
    context: typer.Context,
    name: Name,
    old: Annotated[str, typer.Argument(help="The earlier version [the last one put aside].")] = "",
    new: Annotated[str, typer.Argument(help="The later version [the one in use].")] = "",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show what is different between two versions of a skill."""
    from apexbridge.cli.commands import versions
    from apexbridge.cli.output import command_output

    with command_output("diff", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        versions.diff(out, name, old, new)
