"""The commands that change which skills are installed, and their flags. The work comes late."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from apexbridge.cli.options import Json, Name, Quiet, Yes

audit_app = typer.Typer(
    help="Look at the record of every attempted change.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def register(app: typer.Typer) -> None:
    """Add these commands to the program's."""
    for command in (add, migrate, rm, undo, enable, disable, export, scan):
        app.command()(command)
    app.command("edit-description")(edit_description)
    app.add_typer(audit_app, name="audit")


def add(  # noqa: PLR0913  # a flag is a parameter
    context: typer.Context,
    path: Annotated[Path, typer.Argument(help="A zip or folder with one skill.")],
    rename: Annotated[
        bool, typer.Option("--rename", help="Let a folder of another name take the skill's.")
    ] = False,
    despite_findings: Annotated[
        bool, typer.Option("--despite-findings", help="Install what looks dangerous, too.")
    ] = False,
    yes: Yes = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Install a skill from a zip or folder, after showing what it holds."""
    from apexbridge.cli.commands import install
    from apexbridge.cli.output import command_output

    with command_output("add", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        order = install.InstallOptions(
            path=path, renames=rename, despite_findings=despite_findings, yes=yes
        )
        install.add(out, order)


def migrate(  # noqa: PLR0913  # a flag is a parameter
    context: typer.Context,
    places: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PLACE]...", help="Folders of skills, skills, or zips; else the usual places."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
    ] = False,
    despite_findings: Annotated[
        bool, typer.Option("--despite-findings", help="Install what looks dangerous, too.")
    ] = False,
    yes: Yes = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Install the skills that lie in other layouts; the originals are not changed."""
    from apexbridge.cli.commands import migrate
    from apexbridge.cli.output import command_output

    with command_output("migrate", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        order = migrate.MigrateOptions(
            places=tuple(places or ()),
            dry_run=dry_run,
            despite_findings=despite_findings,
            yes=yes,
        )
        migrate.migrate(out, order)


def rm(
    context: typer.Context, name: Name, yes: Yes = False, json: Json = False, quiet: Quiet = False
) -> None:
    """Remove an installed skill; 'undo' brings it back for some days."""
    from apexbridge.cli.commands import install
    from apexbridge.cli.output import command_output

    with command_output("rm", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        install.rm(out, name, yes=yes)


def undo(context: typer.Context, name: Name, json: Json = False, quiet: Quiet = False) -> None:
    """Bring back the skill of this name that was removed last."""
    from apexbridge.cli.commands import install
    from apexbridge.cli.output import command_output

    with command_output("undo", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        install.undo(out, name)


def edit_description(  # noqa: PLR0913  # a flag is a parameter
    context: typer.Context,
    name: Name,
    text: Annotated[str, typer.Argument(help="The new description.")],
    seen: Annotated[
        str, typer.Option(metavar="SHA256", help="Only if the skill is still in this state.")
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing; show what would be found instead.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Change an installed skill's description, and not one other byte."""
    from apexbridge.cli.commands import install
    from apexbridge.cli.output import command_output

    with command_output("edit-description", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        if dry_run:
            from apexbridge.cli.commands import evals

            evals.preview(out, name, text)
        else:
            install.change_description(out, name, text, seen=seen)


def enable(context: typer.Context, name: Name, json: Json = False, quiet: Quiet = False) -> None:
    """Switch a skill on again."""
    from apexbridge.cli.commands import install
    from apexbridge.cli.output import command_output

    with command_output("enable", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        install.set_enabled(out, name, is_on=True)


def disable(context: typer.Context, name: Name, json: Json = False, quiet: Quiet = False) -> None:
    """Switch a skill off: it is not listed, found or run any more."""
    from apexbridge.cli.commands import install
    from apexbridge.cli.output import command_output

    with command_output("disable", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        install.set_enabled(out, name, is_on=False)


def export(
    context: typer.Context,
    name: Name,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The zip to make [NAME.zip].")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write a skill as a zip that installs elsewhere."""
    from apexbridge.cli.commands import install
    from apexbridge.cli.output import command_output

    with command_output("export", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        install.export(out, name, output)


def scan(
    context: typer.Context,
    targets: Annotated[list[str], typer.Argument(help="Skills by name, folders, or zips.")],
    fail_at: Annotated[
        Literal["info", "review", "warn", "block"],
        typer.Option(help="Findings of this level or graver make the command fail."),
    ] = "warn",
    sarif: Annotated[
        bool, typer.Option("--sarif", help="Print a SARIF log; one target only.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Tell what looks dangerous in skills. Advice, and no guarantee; nothing is run."""
    from apexbridge.cli.commands import scan
    from apexbridge.cli.output import command_output

    with command_output("scan", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        scan.scan(out, targets, fail_at=fail_at, as_sarif=sarif)


@audit_app.command("ls")
def audit_ls(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many, the latest.")] = 20,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """List the latest records."""
    from apexbridge.cli.commands import audit
    from apexbridge.cli.output import command_output

    with command_output("audit ls", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        audit.ls(out, limit)


@audit_app.command("verify")
def audit_verify(context: typer.Context, json: Json = False, quiet: Quiet = False) -> None:
    """Follow the chain of records from its beginning."""
    from apexbridge.cli.commands import audit
    from apexbridge.cli.output import command_output

    with command_output("audit verify", as_json=json, is_quiet=quiet, flags=context.obj) as out:
        audit.verify(out)
