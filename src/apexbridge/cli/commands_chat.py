"""`chat`, `explain` and `runs`, and their flags. The work comes late."""

from typing import Annotated

import typer

from apexbridge.cli.options import Json, Quiet


def register(app: typer.Typer) -> None:
    """Add these commands to the program's."""
    for command in (chat, explain, runs):
        app.command()(command)


def chat(  # noqa: PLR0913  # a flag is a parameter
    context: typer.Context,
    text: Annotated[
        str, typer.Argument(help="The question; without one, a conversation begins.")
    ] = "",
    session: Annotated[str, typer.Option(metavar="ID", help="Go on with this conversation.")] = "",
    model: Annotated[str, typer.Option(help="Ask another model than the configured one.")] = "",
    skill: Annotated[
        list[str] | None, typer.Option(help="A skill to use; may be given more than once.")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Ask something; the model uses tools and skills until it is done."""
    from apexbridge.cli.commands import chat
    from apexbridge.cli.output import command_output

    with command_output("chat", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        order = chat.ChatOptions(text=text, session=session, model=model, skills=tuple(skill or ()))
        chat.chat(out, order)


def explain(
    context: typer.Context,
    turn: Annotated[str, typer.Argument(help="The turn's id, or its beginning [the last].")] = "",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Tell why a turn went as it did: skills found, listed and refused, calls, tokens, times."""
    from apexbridge.cli.commands import audit
    from apexbridge.cli.output import command_output

    with command_output("explain", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        audit.explain(out, turn)


def runs(
    context: typer.Context,
    run: Annotated[str, typer.Argument(help="The run's id [list the latest].")] = "",
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="How many, the latest.")] = 20,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """List the latest runs of scripts, or show one and the end of what it wrote."""
    from apexbridge.cli.commands import audit
    from apexbridge.cli.output import command_output

    with command_output("runs", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        audit.runs(out, run, limit)
