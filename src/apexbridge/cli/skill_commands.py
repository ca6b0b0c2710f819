"""Options of the commands on skills; `cli.commands` has the code that runs."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from apexbridge.cli.handlers import add_group, handled_in
from apexbridge.cli.options import AddDir, AllowFindings, DryRun, Lock, Name, NoLock, Yes

app = typer.Typer()

OriginName = Literal[
    "managed", "user", "project", "installed", "additional", "bundled", "plugin", "mcp", "remote",
    "legacy",
]  # fmt: skip


@app.command()
@handled_in("package")
def init(
    name: Annotated[str, typer.Argument(help="The new skill's name.")],
    into: Annotated[Path, typer.Option("--in", help="The parent folder.")] = Path(),
    description: Annotated[str, typer.Option(help="What it does and when to use it.")] = "",
    script: Annotated[
        Literal["none", "python", "bash", "node"], typer.Option(help="Add a script template.")
    ] = "none",
    dry_run: DryRun = False,
) -> None:
    """Create a new skill from a template."""


@app.command()
@handled_in("package")
def validate(
    paths: Annotated[list[Path], typer.Argument(help="Skill folders, folders of them, or zips.")],
    level: Annotated[
        Literal["compat", "spec"],
        typer.Option(help="compat: what ApexBridge accepts; spec: the Agent Skills format alone."),
    ] = "compat",
) -> None:
    """Validate skills and report every problem."""


@app.command()
@handled_in("package")
def pack(
    path: Annotated[Path, typer.Argument(help="The skill's folder.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The zip file to write [NAME.zip].")
    ] = None,
    with_evals: Annotated[bool, typer.Option(help="Include the evals folder.")] = False,
    sign: Annotated[
        Path | None,
        typer.Option(metavar="KEYFILE", help="Sign the zip too, with a key of 'signing keygen'."),
    ] = None,
    dry_run: DryRun = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Overwrite an existing file without asking.")
    ] = False,
) -> None:
    """Pack a skill into a zip, reproducibly: equal folders give equal bytes."""


@app.command(context_settings={"allow_interspersed_args": False})
@handled_in("run")
def run(
    name: Name,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SCRIPT] [-- ARGUMENTS]", help="The script and its arguments."),
    ] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option("--input", "-i", help="Copy a file or folder into the workspace; repeatable."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Save the files it creates in a folder.")
    ] = None,
    timeout: Annotated[float | None, typer.Option(help="Timeout in seconds.")] = None,
    network: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="Allow network access to this host; repeatable."),
    ] = None,
    unsafe: Annotated[
        bool, typer.Option("--unsafe-no-sandbox", help="Run it without isolation; this is audited.")
    ] = False,
) -> None:
    """Run a skill's script in the sandbox: apexbridge run [OPTIONS] SKILL [SCRIPT] [-- ARGS]."""


@app.command()
@handled_in("skills")
def ls(
    origin: Annotated[OriginName | None, typer.Option(help="Only skills of this origin.")] = None,
    every: Annotated[
        bool, typer.Option("--all", "-a", help="Include shadowed and disabled skills.")
    ] = False,
    text: Annotated[
        str, typer.Option("--filter", help="Only skills with this in their name or description.")
    ] = "",
    long: Annotated[
        bool, typer.Option("--long", "-l", help="Show version, size and findings, paginated.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="With --long: page size.")] = 50,
    after: Annotated[
        str, typer.Option(metavar="NAME", help="With --long: start after this skill.")
    ] = "",
    problems: Annotated[bool, typer.Option("--problems", help="List the problems.")] = False,
    xml: Annotated[
        bool, typer.Option("--xml", help="Print the <available_skills> block for a prompt.")
    ] = False,
    budget: Annotated[
        bool, typer.Option("--budget", help="Show how the listing budget is spent.")
    ] = False,
    window: Annotated[
        int, typer.Option(min=1, help="With --budget: the model's context window, in tokens.")
    ] = 200_000,
    request: Annotated[
        str, typer.Option("--for", metavar="REQUEST", help="With --budget: rank for this request.")
    ] = "",
    add_dir: AddDir = None,
) -> None:
    """List the available skills."""


@app.command()
@handled_in("skills")
def show(
    name: Name,
    body: Annotated[bool, typer.Option("--body", help="Print the instructions too.")] = False,
    why: Annotated[
        bool, typer.Option("--why", help="Explain precedence and who can invoke the skill.")
    ] = False,
) -> None:
    """Show one skill: fields, files, hash, problems."""


@app.command()
@handled_in("sources")
def sources(
    accept: Annotated[
        str,
        typer.Option(
            metavar="URL", help="Show the diff of a changed remote skill, and pin the new content."
        ),
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --accept: do not ask.")] = False,
) -> None:
    """List the sources of skills by precedence, with their state."""


@app.command()
@handled_in("trust")
def trust(
    names: Annotated[
        list[str] | None, typer.Argument(help="Skills to approve [list those not approved].")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All skills not yet approved.")] = False,
    revoke: Annotated[bool, typer.Option("--revoke", help="Revoke approvals.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Approve the scripts, hooks and tool grants of skills, also for the model to use unasked."""


@app.command()
@handled_in("add")
def add(
    address: Annotated[
        str,
        typer.Argument(
            help="owner/repo[@ref][/path], a git or https address, a folder, a zip or a tar."
        ),
    ],
    skill: Annotated[
        list[str] | None,
        typer.Option("--skill", "-s", help="A skill by name or path; repeatable."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All skills of the address.")] = False,
    list_only: Annotated[
        bool, typer.Option("--list", help="List its skills, and install none.")
    ] = False,
    rename: Annotated[
        bool, typer.Option("--rename", help="Rename the folder after the skill.")
    ] = False,
    allow_findings: AllowFindings = False,
    lock: Lock = None,
    no_lock: NoLock = False,
    yes: Yes = False,
) -> None:
    """Install skills from a repository, URL, archive or folder, after showing their contents."""


@app.command()
@handled_in("sync")
def sync(
    frozen: Annotated[
        bool, typer.Option("--frozen", help="Fail if the lock file would have to change.")
    ] = False,
    lock: Lock = None,
    allow_findings: AllowFindings = False,
    yes: Yes = False,
) -> None:
    """Install exactly the skills of the lock file; other content than is locked is refused."""


@app.command()
@handled_in("sync")
def outdated(
    names: Annotated[list[str] | None, typer.Argument(help="Skills [all with a source].")] = None,
) -> None:
    """List the installed skills that their sources have in a newer state."""


@app.command()
@handled_in("install")
def rm(name: Name, lock: Lock = None, no_lock: NoLock = False, yes: Yes = False) -> None:
    """Uninstall a skill; 'undo' restores it for some days."""


@app.command()
@handled_in("install")
def undo(name: Name) -> None:
    """Restore the last uninstalled skill of this name."""


@app.command("edit-description")
@handled_in("install")
def edit_description(
    name: Name,
    text: Annotated[str, typer.Argument(help="The new description.")],
    if_match: Annotated[
        str, typer.Option(metavar="SHA256", help="Only if the skill still has this hash.")
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing; preview the search ranks.")
    ] = False,
) -> None:
    """Change the description of an installed skill, and no other byte."""


@app.command()
@handled_in("install")
def enable(name: Name) -> None:
    """Enable a disabled skill."""


@app.command()
@handled_in("install")
def disable(name: Name) -> None:
    """Disable a skill: it is not listed, found or run."""


@app.command()
@handled_in("install")
def export(
    name: Name,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The zip file to write [NAME.zip].")
    ] = None,
) -> None:
    """Export a skill as an installable zip; no file is overwritten."""


@app.command()
@handled_in("migrate")
def migrate(
    places: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FOLDER]...", help="Folders of skills, skills, or zips [the default folders]."
        ),
    ] = None,
    dry_run: DryRun = False,
    allow_findings: AllowFindings = False,
    yes: Yes = False,
) -> None:
    """Install skills from other layouts; the originals are not changed."""


@app.command()
@handled_in("scan")
def scan(
    targets: Annotated[list[str], typer.Argument(help="Skills by name, folders, or zips.")],
    fail_at: Annotated[
        Literal["info", "review", "warn", "block"],
        typer.Option(help="Fail on findings of this level or higher."),
    ] = "warn",
    sarif: Annotated[
        bool, typer.Option("--sarif", help="Print a SARIF log; one target only.")
    ] = False,
) -> None:
    """Scan skills for prompt injection, exfiltration and malicious code. Nothing is executed."""


@app.command()
@handled_in("update")
def update(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...|PATH",
            help="Skills to update from their sources, or a zip or folder with a newer version.",
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All skills with a source.")] = False,
    allow_downgrade: Annotated[
        bool, typer.Option("--allow-downgrade", help="Accept a lower version number.")
    ] = False,
    allow_findings: AllowFindings = False,
    lock: Lock = None,
    no_lock: NoLock = False,
    yes: Yes = False,
) -> None:
    """Update installed skills after showing the diff; the old versions are kept."""


@app.command()
@handled_in("versions")
def versions(name: Name) -> None:
    """List the versions of an installed skill."""


@app.command()
@handled_in("versions")
def rollback(
    name: Name,
    version: Annotated[
        str, typer.Argument(help="A version, a hash or its prefix [the previous one].")
    ] = "",
) -> None:
    """Roll a skill back to an earlier version."""


@app.command()
@handled_in("versions")
def pin(
    name: Name,
    version: Annotated[
        str, typer.Argument(help="A version, a hash or its prefix [the one in use].")
    ] = "",
    off: Annotated[bool, typer.Option("--off", help="Unpin the skill.")] = False,
) -> None:
    """Pin a skill to a version: no update, edit or rollback."""


@app.command()
@handled_in("versions")
def diff(
    name: Name,
    old: Annotated[str, typer.Argument(help="The earlier version [the previous one].")] = "",
    new: Annotated[str, typer.Argument(help="The later version [the one in use].")] = "",
) -> None:
    """Show the diff between two versions of a skill."""


audit_app = add_group(app, "audit", "Show and verify the audit log of all changes.")


@audit_app.command("ls")
@handled_in("audit")
def audit_ls(
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Number of records.")] = 20,
) -> None:
    """List the latest audit records."""


@audit_app.command("verify")
@handled_in("audit")
def audit_verify() -> None:
    """Verify the hash chain of the audit log."""
