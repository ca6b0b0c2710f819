"""`migrate`: install skills from other clients' and older versions' folders."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import anyio
import anyio.to_thread
import typer

from apexbridge.cli.commands.scan import print_findings
from apexbridge.cli.options import AllowFindings, DryRun, Json, Quiet, Yes
from apexbridge.cli.output import ExitCode, Output, command_output, sanitize
from apexbridge.cli.progress import progress_bar
from apexbridge.errors import PermissionDeniedError, StorageError
from apexbridge.lifecycle.migration import (
    INSTALLABLE,
    OUTCOMES,
    REFUSED,
    MigrationOutcome,
    MigrationResult,
    MigrationRules,
    evaluate_candidates,
    run_migration,
)
from apexbridge.lifecycle.skill_discovery import discover_skills
from apexbridge.runtime import Runtime
from apexbridge.scanner.rules import RiskLevel
from apexbridge.skills.model import Origin
from apexbridge.sources.directory_scanner import ScanLimits, is_folder, resolve_leniently
from apexbridge.sources.folders import FolderSource

LEGACY_FOLDERS = ("skills", "data/skills")
"""Where older versions kept skills, in the project."""
_READ_IN_PLACE = frozenset({Origin.USER, Origin.PROJECT, Origin.ADDITIONAL})
_OWN_FOLDER = ".apexbridge"
_NAMES_SHOWN = 5
_EXITS: dict[MigrationOutcome, ExitCode] = {
    "taken": ExitCode.CONFLICT,
    "dangerous": ExitCode.DENIED,
    "invalid": ExitCode.INVALID,
    "failed": ExitCode.FAILURE,
}


app = typer.Typer()


@app.command()
def migrate(
    context: typer.Context,
    places: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FOLDER]...", help="Folders of skills, skills, or zips [the default folders]."
        ),
    ] = None,
    dry_run: DryRun = False,
    allow_findings: AllowFindings = False,
    yes: Yes = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Install skills from other layouts; the originals are not changed."""
    with command_output(context, json=json, quiet=quiet) as out:
        options = MigrateOptions(
            places=tuple(places or ()), dry_run=dry_run, allow_findings=allow_findings, yes=yes
        )
        for place in options.places:
            if not place.exists():
                raise StorageError(code="path_missing", path=place)
        anyio.run(_migrate, out, options)


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrateOptions:
    """Where to look, and how readily to install what is found."""

    places: tuple[Path, ...]
    dry_run: bool
    allow_findings: bool
    yes: bool


async def _migrate(out: Output, order: MigrateOptions) -> None:
    async with Runtime.open(out.config) as runtime:
        places = order.places or default_folders(runtime)
        verdicts = await _evaluate_candidates(out, runtime, order, places)
        is_to_do = any(verdict.outcome in INSTALLABLE for verdict in verdicts) and not order.dry_run
        if is_to_do and not order.yes:
            _print_report(out, verdicts)
            count = sum(verdict.outcome in INSTALLABLE for verdict in verdicts)
            if not out.confirm("migrate_ask", count=count):
                raise PermissionDeniedError(code="not_agreed")
        if is_to_do:
            with progress_bar(out, "migrating") as watch:
                bound = _block_level(runtime, order)
                install = partial(runtime.manager.install, renames=True, blocks_at=bound)
                verdicts = await run_migration(verdicts, install, watch)
        _finish(out, order, verdicts, runtime, places)


async def _evaluate_candidates(
    out: Output, runtime: Runtime, order: MigrateOptions, places: Sequence[Path]
) -> tuple[MigrationResult, ...]:
    chosen = out.config.settings.skills
    limits = ScanLimits(max_depth=chosen.max_depth, max_folders=chosen.max_folders)
    terms = MigrationRules(
        store=runtime.store,
        known={skill.name: skill.summary for skill in runtime.catalog.skills},
        blocks_at=_block_level(runtime, order),
        limits=runtime.manager.policy.limits,
    )
    with progress_bar(out, "migrate_looking") as watch:
        found = await anyio.to_thread.run_sync(partial(discover_skills, places, limits=limits))
        return await anyio.to_thread.run_sync(evaluate_candidates, found, terms, watch)


def default_folders(runtime: Runtime) -> tuple[Path, ...]:
    """The folders of other clients that are read in place, and where older versions had theirs."""
    sources = (state.source for state in runtime.catalog.states)
    read = [
        source.root
        for source in sources
        if isinstance(source, FolderSource)
        and source.provenance.origin in _READ_IN_PLACE
        and source.root.parent.name != _OWN_FOLDER
    ]
    old = [runtime.config.project / place for place in LEGACY_FOLDERS]
    own = resolve_leniently(runtime.store.root)
    return tuple(
        path for path in (*read, *old) if is_folder(path) and resolve_leniently(path) != own
    )


def _finish(
    out: Output,
    order: MigrateOptions,
    verdicts: Sequence[MigrationResult],
    runtime: Runtime,
    places: Sequence[Path],
) -> None:
    hidden = list(dict.fromkeys(_hidden(runtime, verdicts)))

    def render() -> None:
        if not verdicts:
            key = "migrate_none" if places else "migrate_nowhere"
            out.line(out.text(key, places=", ".join(map(str, places))))
            return
        _print_report(out, verdicts)
        if hidden:
            names = ", ".join(hidden[:_NAMES_SHOWN]) + (" …" if len(hidden) > _NAMES_SHOWN else "")
            out.note(out.text("migrate_hidden", count=len(hidden), names=names))
        out.line(out.text("migrate_dry" if order.dry_run else "migrate_kept"))

    data = {
        "dry_run": order.dry_run,
        "places": list(places),
        "counts": {fate: sum(v.outcome == fate for v in verdicts) for fate in OUTCOMES},
        "hidden": hidden,
        "skills": [_to_json(out, verdict) for verdict in verdicts],
    }
    out.finish(data, render, _exit(verdicts))


def _exit(verdicts: Sequence[MigrationResult]) -> ExitCode:
    """What all that were refused have in common; a plain failure if that is nothing."""
    codes = {_EXITS[verdict.outcome] for verdict in verdicts if verdict.outcome in REFUSED}
    if not codes:
        return ExitCode.OK
    return codes.pop() if len(codes) == 1 else ExitCode.FAILURE


def _block_level(runtime: Runtime, order: MigrateOptions) -> RiskLevel | None:
    return None if order.allow_findings else runtime.manager.policy.blocks_at


def _hidden(runtime: Runtime, verdicts: Sequence[MigrationResult]) -> Iterator[str]:
    """Names that another source has before what is, or would be, installed under them."""
    rank = runtime.config.settings.skills.precedence.index
    for verdict in verdicts:
        winner = runtime.catalog.snapshot.winner(verdict.name)
        is_there = verdict.outcome in INSTALLABLE or (verdict.outcome == "same" and verdict.other)
        if is_there and winner and rank(winner.provenance.origin) < rank(Origin.INSTALLED):
            yield verdict.name


def _print_report(out: Output, verdicts: Sequence[MigrationResult]) -> None:
    """A line for each, why those that cannot come cannot, and how many there are of each kind."""
    heads = [out.text(key) for key in ("name", "state", "where", "remark")]
    rows = [
        (v.name, out.text(_state(v)), str(v.candidate.path), ", ".join(_remarks(out, v)))
        for v in verdicts
    ]
    out.table(heads, rows)
    for verdict in verdicts:
        if verdict.outcome in {"invalid", "failed"}:
            out.line(f"{sanitize(verdict.candidate.path)}:")
            for problem in verdict.problems:
                out.print_problem(problem)
        elif verdict.outcome == "dangerous" and verdict.report is not None:
            out.line(f"{sanitize(verdict.candidate.path)}:")
            print_findings(out, verdict.name, verdict.report)
    counts = Counter(_state(verdict) for verdict in verdicts)
    out.line("; ".join(f"{out.text(state)}: {count}" for state, count in counts.items()))


def _state(verdict: MigrationResult) -> str:
    is_coming = verdict.outcome in INSTALLABLE and verdict.done is None
    return f"coming_{verdict.outcome}" if is_coming else f"fate_{verdict.outcome}"


def _remarks(out: Output, verdict: MigrationResult) -> Iterator[str]:
    path = verdict.candidate.path
    if verdict.outcome == "renamed":
        yield out.text("migrate_from_name", name=path.name)
    if verdict.other and verdict.other != verdict.name:
        key = "migrate_like" if verdict.outcome == "same" else "migrate_other"
        yield out.text(key, other=verdict.other)
    if verdict.outcome in INSTALLABLE:
        yield from (out.text(f"trust_{held}") for held in verdict.capabilities)
    if verdict.report is not None and (worst := verdict.report.worst()):
        count, level = len(verdict.report.findings), out.text(f"level_{worst}")
        yield out.text("migrate_findings", count=count, level=level)
    if verdict.done is not None and verdict.done.index_error is not None:
        yield out.text("migrate_by_words")
    if verdict.problems:
        yield out.text("migrate_problems", count=len(verdict.problems))


def _to_json(out: Output, verdict: MigrationResult) -> dict[str, object]:
    done, report = verdict.done, verdict.report
    return {
        "name": verdict.name,
        "path": verdict.candidate.path,
        "place": verdict.candidate.root,
        "fate": verdict.outcome,
        "changed": done is not None,
        "indexed": done is not None and done.index_error is None,
        "other": verdict.other or None,
        "sha256": verdict.sha256 or None,
        "holds": list(verdict.capabilities),
        "problems": [out.problem_to_json(problem) for problem in verdict.problems],
        "findings": [f"{f.rule} {f.level} {f.path}:{f.line}" for f in report.findings]
        if report
        else [],
    }
