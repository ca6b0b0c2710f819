"""The commands about which skills there are, and their flags. The work is imported late."""

from typing import Annotated, Literal

import typer

from apexbridge.cli.options import Json, Quiet

Origins = Literal[
    "managed", "user", "project", "installed", "additional", "bundled", "plugin", "mcp", "remote",
    "legacy",
]  # fmt: skip


def register(app: typer.Typer) -> None:
    """Add these commands to the program's."""
    for command in (ls, show, sources, trust):
        app.command()(command)


def ls(  # noqa: PLR0913  # a flag is a parameter
    context: typer.Context,
    origin: Annotated[Origins | None, typer.Option(help="Only skills of this origin.")] = None,
    every: Annotated[
        bool, typer.Option("--all", "-a", help="Those that another skill hides, too.")
    ] = False,
    text: Annotated[
        str, typer.Option("--filter", help="Only skills with this in their name or description.")
    ] = "",
    long: Annotated[
        bool, typer.Option("--long", "-l", help="Version, size and findings, by pages.")
    ] = False,
    limit: Annotated[
        int, typer.Option(min=1, max=1_000, help="With --long: how many at a time.")
    ] = 50,
    after: Annotated[
        str, typer.Option(metavar="NAME", help="With --long: where the next page begins.")
    ] = "",
    problems: Annotated[bool, typer.Option("--problems", help="List the problems.")] = False,
    xml: Annotated[bool, typer.Option("--xml", help="Print the block for a prompt.")] = False,
    budget: Annotated[
        bool, typer.Option("--budget", help="Show what of each skill a model is told.")
    ] = False,
    window: Annotated[
        int, typer.Option(min=1, help="With --budget: the model's context window, in tokens.")
    ] = 200_000,
    request: Annotated[
        str, typer.Option("--for", metavar="REQUEST", help="With --budget: what a user asks.")
    ] = "",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """List the skills that can be used here."""
    from apexbridge.cli.commands import listing, skills
    from apexbridge.cli.output import command_output

    with command_output("ls", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        if budget:
            listing.ls_budget(out, window=window, request=request)
        elif long:
            from apexbridge.cli.commands import listing

            asked = {"text": text, "origin": origin or "", "after": after}
            listing.ls_long(out, limit=limit, **asked)
        else:
            look = skills.SkillQuery(
                origin=origin or "", text=text, every=every, problems=problems, xml=xml
            )
            skills.ls(out, look)


def show(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The skill's name.")],
    body: Annotated[bool, typer.Option("--body", help="Print the instructions too.")] = False,
    why: Annotated[
        bool, typer.Option("--why", help="Say why this skill has the name, and who may call it.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show one skill: fields, files, fingerprint, problems."""
    from apexbridge.cli.commands import skills
    from apexbridge.cli.output import command_output

    with command_output("show", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        skills.show(out, name, body=body, why=why)


def sources(
    context: typer.Context,
    accept: Annotated[
        str,
        typer.Option(
            metavar="URL", help="Show how a remote skill changed since it was first read; take it."
        ),
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --accept: do not ask.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show where skills come from, the strongest first, and what came of reading each."""
    from apexbridge.cli.commands import sources
    from apexbridge.cli.output import command_output

    with command_output("sources", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        if accept:
            sources.accept(out, accept, yes=yes)
        else:
            sources.sources(out)


def trust(  # noqa: PLR0913  # a flag is a parameter
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(help="Skills to approve; none lists those that wait.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All skills that wait.")] = False,
    revoke: Annotated[bool, typer.Option("--revoke", help="Take approvals back.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Let skills of projects, plugins and servers act, in the state they are in now."""
    from apexbridge.cli.commands import trust
    from apexbridge.cli.output import command_output

    with command_output("trust", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        order = trust.TrustOptions(
            names=tuple(names or ()), every=every, revokes=revoke, dry_run=dry_run, yes=yes
        )
        trust.trust(out, order)
