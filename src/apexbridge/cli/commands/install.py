"""`add`, `rm`, `undo`, `edit-description`, `enable`, `disable` and `export`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import anyio
import typer

from apexbridge.cli.commands.scan import print_findings
from apexbridge.cli.options import AllowFindings, Json, Name, Quiet, Yes
from apexbridge.cli.output import Output, command_output, sanitize
from apexbridge.errors import PermissionDeniedError, StorageError
from apexbridge.lifecycle.transactions import InstallResult
from apexbridge.lifecycle.unpack_and_validate import Inspection, inspect_skill
from apexbridge.paths import create_bytes
from apexbridge.runtime import Runtime
from apexbridge.runtime.policies import archive_limits

app = typer.Typer()


@app.command()
def add(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(help="A zip or folder with one skill.")],
    rename: Annotated[
        bool, typer.Option("--rename", help="Rename the folder after the skill.")
    ] = False,
    allow_findings: AllowFindings = False,
    yes: Yes = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Install a skill from a zip or folder, after showing its contents."""
    with command_output(context, json=json, quiet=quiet) as out:
        options = InstallOptions(path=path, renames=rename, allow_findings=allow_findings, yes=yes)
        _add(out, options)


@app.command()
def rm(
    context: typer.Context, name: Name, yes: Yes = False, json: Json = False, quiet: Quiet = False
) -> None:
    """Uninstall a skill; 'undo' restores it for some days."""
    with command_output(context, json=json, quiet=quiet) as out:
        anyio.run(_remove, out, name, yes)


@app.command()
def undo(context: typer.Context, name: Name, json: Json = False, quiet: Quiet = False) -> None:
    """Restore the last uninstalled skill of this name."""
    with command_output(context, json=json, quiet=quiet) as out:

        async def restore() -> InstallResult:
            async with Runtime.open(out.config) as runtime:
                return await runtime.manager.restore(name)

        print_change(out, anyio.run(restore), "restored")


@app.command("edit-description")
def edit_description(
    context: typer.Context,
    name: Name,
    text: Annotated[str, typer.Argument(help="The new description.")],
    if_match: Annotated[
        str, typer.Option(metavar="SHA256", help="Only if the skill still has this hash.")
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing; preview the search ranks.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Change the description of an installed skill, and no other byte."""
    with command_output(context, json=json, quiet=quiet) as out:
        if dry_run:
            # Imported late: the evaluation package is needed for a preview only.
            from apexbridge.cli.commands.evals import print_preview

            print_preview(out, name, text)
            return

        async def change() -> InstallResult:
            async with Runtime.open(out.config) as runtime:
                return await runtime.manager.edit_description(name, text, expected_sha256=if_match)

        done = anyio.run(change)
        print_change(out, done, "edited" if done.has_changed else "edit_unchanged")


@app.command()
def enable(context: typer.Context, name: Name, json: Json = False, quiet: Quiet = False) -> None:
    """Enable a disabled skill."""
    with command_output(context, json=json, quiet=quiet) as out:
        _set_enabled(out, name, is_on=True)


@app.command()
def disable(context: typer.Context, name: Name, json: Json = False, quiet: Quiet = False) -> None:
    """Disable a skill: it is not listed, found or run."""
    with command_output(context, json=json, quiet=quiet) as out:
        _set_enabled(out, name, is_on=False)


@app.command()
def export(
    context: typer.Context,
    name: Name,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The zip file to write [NAME.zip].")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Export a skill as an installable zip; no file is overwritten."""
    with command_output(context, json=json, quiet=quiet) as out:

        async def packed() -> bytes:
            async with Runtime.open(out.config) as runtime:
                return await runtime.manager.export(name)

        data = anyio.run(packed)
        path = output or Path(f"{name}.zip")
        create_bytes(path, data)
        line = out.text("exported", path=path, size=len(data))
        out.finish({"path": path, "bytes": len(data)}, lambda: out.line(line))


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallOptions:
    """Options of `add`."""

    path: Path
    renames: bool
    allow_findings: bool
    yes: bool


def _add(out: Output, options: InstallOptions) -> None:
    """Print contents and findings of a skill, ask for confirmation, and install it."""
    if not options.path.exists():
        raise StorageError(code="path_missing", path=options.path)
    limits = archive_limits(out.config.settings.install)
    inspection = inspect_skill(options.path, renames=options.renames, limits=limits)
    print_inspection(out, inspection)
    if not options.yes and not out.confirm("add_ask", name=inspection.skill.name):
        raise PermissionDeniedError(code="not_agreed")
    done = anyio.run(_install, out, options)
    print_change(out, done, "added")


async def _install(out: Output, options: InstallOptions) -> InstallResult:
    async with Runtime.open(out.config) as runtime:
        blocks_at = None if options.allow_findings else "policy"
        return await runtime.manager.install(
            options.path, renames=options.renames, blocks_at=blocks_at
        )


def print_inspection(out: Output, inspection: Inspection) -> None:
    """Print everything relevant to the decision to install a skill."""
    skill = inspection.skill
    out.line(sanitize(skill.name))
    out.line(f"  {sanitize(skill.description)}")
    scripts = (f"{s.path} ({s.runner})" if s.runner else s.path for s in inspection.scripts)
    facts = {
        "version": skill.manifest.version or "",
        "field_files": str(len(inspection.files)),
        "field_size": out.text("bytes", count=inspection.size),
        "trust_tools": ", ".join(inspection.tools),
        "trust_hooks": ", ".join(inspection.hooks),
        "inspect_commands": "; ".join(inspection.commands),
        "trust_scripts": ", ".join(scripts),
        "field_sha256": inspection.sha256,
    }
    for key, value in facts.items():
        if value:
            out.line(f"  {out.text(key)}: {sanitize(value)}")
    for problem in inspection.problems:
        out.print_problem(problem)
    if inspection.report.findings:
        print_findings(out, skill.name, inspection.report)


def print_change(out: Output, done: InstallResult, word: str, **facts: str) -> None:
    """Finish a command that changed a skill, with its result."""
    skill = done.skill

    def render() -> None:
        out.line(out.text(word, name=skill.name, **facts))
        if done.index_error is not None:
            message = done.index_error.localized(out.language).message
            out.note(out.text("keyword_search_only", message=message))

    data = {
        "name": skill.name,
        "description": skill.description,
        "path": skill.root,
        "sha256": skill.fingerprint.sha256 if skill.fingerprint else None,
        "changed": done.has_changed,
        "indexed": done.index_error is None,
        "problems": [out.problem_to_json(problem) for problem in done.problems],
        "findings": [f"{f.rule} {f.level} {f.path}:{f.line}" for f in done.findings],
    }
    out.finish(data, render)


async def _remove(out: Output, name: str, yes: bool) -> None:
    async with Runtime.open(out.config) as runtime:
        skill = runtime.catalog.get(name)
        if not yes and not out.confirm("rm_ask", name=skill.name):
            raise PermissionDeniedError(code="not_agreed")
        gone = await runtime.manager.uninstall(skill.name)
        days = out.config.settings.skills.undo_days
        line = out.text("removed", name=gone.name, days=f"{days:g}")
        out.finish({"name": gone.name, "undo_days": days}, lambda: out.line(line))


def _set_enabled(out: Output, name: str, *, is_on: bool) -> None:
    """Enable or disable a skill."""

    async def turn() -> bool:
        async with Runtime.open(out.config) as runtime:
            return await runtime.manager.set_enabled(name, enabled=is_on)

    has_changed = anyio.run(turn)
    line = out.text("enabled" if is_on else "disabled", name=name)
    out.finish({"name": name, "changed": has_changed, "enabled": is_on}, lambda: out.line(line))
