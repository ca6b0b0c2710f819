"""The commands about finding skills, and their flags. The work is imported when one runs."""

from pathlib import Path
from typing import Annotated

import typer

from apexbridge.cli.options import Json, Quiet

index_app = typer.Typer(
    help="Look after the index that skills are found with.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
eval_app = typer.Typer(
    help="Measure how well skills are found; no model is asked.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def register(app: typer.Typer) -> None:
    """Add these commands to the program's."""
    app.command()(find)
    app.add_typer(index_app, name="index")
    app.add_typer(eval_app, name="eval")


def find(  # noqa: PLR0913  # a flag is a parameter
    context: typer.Context,
    query: Annotated[str, typer.Argument(help="What you want to do, in your own words.")],
    en: Annotated[str, typer.Option(metavar="TEXT", help="The same in English.")] = "",
    zh: Annotated[str, typer.Option(metavar="TEXT", help="The same in Chinese.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="How many skills to show.")] = 5,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say what each score is made of.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find the skills that fit a request, in English or Chinese."""
    from apexbridge.cli.commands import search
    from apexbridge.cli.output import command_output

    with command_output("find", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        request = search.SearchRequest(query=query, english=en, chinese=zh, limit=limit)
        search.find(out, request, explain=explain)


@index_app.command("status")
def index_status(context: typer.Context, json: Json = False, quiet: Quiet = False) -> None:
    """Tell what the index holds, and how it stands to the skills."""
    from apexbridge.cli.commands import search
    from apexbridge.cli.output import command_output

    with command_output("index status", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        search.status(out)


@index_app.command("verify")
def index_verify(context: typer.Context, json: Json = False, quiet: Quiet = False) -> None:
    """Read every entry of the index and compare it with the skills; exit 8 if something is off."""
    from apexbridge.cli.commands import search
    from apexbridge.cli.output import command_output

    with command_output("index verify", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        search.verify(out)


@index_app.command("rebuild")
def index_rebuild(context: typer.Context, json: Json = False, quiet: Quiet = False) -> None:
    """Make every entry of the index anew."""
    from apexbridge.cli.commands import search
    from apexbridge.cli.output import command_output

    with command_output("index rebuild", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        search.rebuild(out)


@eval_app.command("retrieval")
def eval_retrieval(
    context: typer.Context,
    corpus: Annotated[
        Path, typer.Option(help="Skills as JSON lines: id, name, description, body; .gz, .xz too.")
    ],
    queries: Annotated[
        Path, typer.Option(help="Queries as JSON lines: query, accept (a list of ids), lang.")
    ],
    limit: Annotated[
        int, typer.Option(min=1, max=1_000, help="How deep to look for mrr; at least 10.")
    ] = 10,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure how often the right skill is found in a library of skills."""
    from apexbridge.cli.commands import evals
    from apexbridge.cli.output import command_output

    with command_output("eval retrieval", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        evals.retrieval(out, corpus, queries, limit=limit)


@eval_app.command("triggers")
def eval_triggers(
    context: typer.Context,
    skills: Annotated[list[str], typer.Argument(help="Names of skills, or their folders.")],
    limit: Annotated[
        int, typer.Option(min=1, max=50, help="Among how many skills it must be.")
    ] = 5,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Check skills against their own evals/eval_queries.json; exit 8 if a query fails."""
    from apexbridge.cli.commands import evals
    from apexbridge.cli.output import command_output

    with command_output("eval triggers", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        evals.triggers(out, skills, limit=limit)


@eval_app.command("coexistence")
def eval_coexistence(context: typer.Context, json: Json = False, quiet: Quiet = False) -> None:
    """Tell which skills take other skills' queries, and which are nearly the same."""
    from apexbridge.cli.commands import evals
    from apexbridge.cli.output import command_output

    with command_output("eval coexistence", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        evals.coexistence(out)


@eval_app.command("preview")
def eval_preview(
    context: typer.Context,
    skill: Annotated[str, typer.Argument(help="The skill's name.")],
    description: Annotated[str, typer.Option(metavar="TEXT", help="The description to try.")],
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show what another description would do to the ranks; nothing is saved."""
    from apexbridge.cli.commands import evals
    from apexbridge.cli.output import command_output

    with command_output("eval preview", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        evals.preview(out, skill, description)
