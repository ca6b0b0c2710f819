"""`migrate`: install skills from other clients' and older versions' folders."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from apexbridge.cli.commands.scan import print_findings
from apexbridge.cli.output import ExitCode, Output, sanitize
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
"""Skill folders of older versions, relative to the project."""
_READ_IN_PLACE = frozenset({Origin.USER, Origin.PROJECT, Origin.ADDITIONAL})
_OWN_FOLDER = ".apexbridge"
_NAMES_SHOWN = 5
_EXITS: dict[MigrationOutcome, ExitCode] = {
    "taken": ExitCode.CONFLICT,
    "dangerous": ExitCode.DENIED,
    "invalid": ExitCode.INVALID,
    "failed": ExitCode.FAILURE,
}


def migrate(
    out: Output, *, places: list[Path] | None, dry_run: bool, allow_findings: bool, yes: bool
) -> None:
    """Evaluate the skills found in the folders, ask for confirmation, and install them."""
    options = MigrateOptions(
        places=tuple(places or ()), dry_run=dry_run, allow_findings=allow_findings, yes=yes
    )
    for place in options.places:
        if not place.exists():
            raise StorageError(code="path_missing", path=place)
    anyio.run(_migrate, out, options)


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrateOptions:
    """Options of `migrate`."""

    places: tuple[Path, ...]
    dry_run: bool
    allow_findings: bool
    yes: bool


async def _migrate(out: Output, options: MigrateOptions) -> None:
    async with Runtime.open(out.config) as runtime:
        places = options.places or default_folders(runtime)
        results = await _evaluate_candidates(out, runtime, options, places)
        will_install = (
            any(result.outcome in INSTALLABLE for result in results) and not options.dry_run
        )
        if will_install and not options.yes:
            _print_report(out, results)
            count = sum(result.outcome in INSTALLABLE for result in results)
            if not out.confirm("migrate_ask", count=count):
                raise PermissionDeniedError(code="not_agreed")
        if will_install:
            with progress_bar(out, "migrating") as watch:
                bound = _block_level(runtime, options)
                install = partial(runtime.manager.install, renames=True, blocks_at=bound)
                results = await run_migration(results, install, watch)
        _finish(out, options, results, runtime, places)


async def _evaluate_candidates(
    out: Output, runtime: Runtime, options: MigrateOptions, places: Sequence[Path]
) -> tuple[MigrationResult, ...]:
    chosen = out.config.settings.skills
    limits = ScanLimits(max_depth=chosen.max_depth, max_folders=chosen.max_folders)
    terms = MigrationRules(
        store=runtime.store,
        known={skill.name: skill.summary for skill in runtime.catalog.skills},
        blocks_at=_block_level(runtime, options),
        limits=runtime.manager.policy.limits,
    )
    with progress_bar(out, "migrate_scanning") as watch:
        found = await anyio.to_thread.run_sync(partial(discover_skills, places, limits=limits))
        return await anyio.to_thread.run_sync(evaluate_candidates, found, terms, watch)


def default_folders(runtime: Runtime) -> tuple[Path, ...]:
    """Existing skill folders of other clients and of older versions."""
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
    options: MigrateOptions,
    results: Sequence[MigrationResult],
    runtime: Runtime,
    places: Sequence[Path],
) -> None:
    shadowed = list(dict.fromkeys(_shadowed_names(runtime, results)))

    def render() -> None:
        if not results:
            key = "migrate_none" if places else "migrate_no_folders"
            out.line(out.text(key, places=", ".join(map(str, places))))
            return
        _print_report(out, results)
        if shadowed:
            names = ", ".join(shadowed[:_NAMES_SHOWN]) + (
                " …" if len(shadowed) > _NAMES_SHOWN else ""
            )
            out.note(out.text("migrate_shadowed", count=len(shadowed), names=names))
        out.line(out.text("migrate_dry_run" if options.dry_run else "migrate_originals_unchanged"))

    data = {
        "dry_run": options.dry_run,
        "places": list(places),
        "counts": {fate: sum(v.outcome == fate for v in results) for fate in OUTCOMES},
        "hidden": shadowed,
        "skills": [_to_json(out, result) for result in results],
    }
    out.finish(data, render, _exit(results))


def _exit(results: Sequence[MigrationResult]) -> ExitCode:
    """Exit code shared by all refused skills; FAILURE if they differ."""
    codes = {_EXITS[result.outcome] for result in results if result.outcome in REFUSED}
    if not codes:
        return ExitCode.OK
    return codes.pop() if len(codes) == 1 else ExitCode.FAILURE


def _block_level(runtime: Runtime, options: MigrateOptions) -> RiskLevel | None:
    return None if options.allow_findings else runtime.manager.policy.blocks_at


def _shadowed_names(runtime: Runtime, results: Sequence[MigrationResult]) -> Iterator[str]:
    """Names whose installed skill is shadowed by a source of higher precedence."""
    rank = runtime.config.settings.skills.precedence.index
    for result in results:
        winner = runtime.catalog.snapshot.winner(result.name)
        is_there = result.outcome in INSTALLABLE or (result.outcome == "same" and result.other)
        if is_there and winner and rank(winner.provenance.origin) < rank(Origin.INSTALLED):
            yield result.name


def _print_report(out: Output, results: Sequence[MigrationResult]) -> None:
    """Print a row for each skill, the problems of refused ones, and totals."""
    heads = [out.text(key) for key in ("name", "state", "where", "remark")]
    rows = [
        (v.name, out.text(_state(v)), str(v.candidate.path), ", ".join(_remarks(out, v)))
        for v in results
    ]
    out.table(heads, rows)
    for result in results:
        if result.outcome in {"invalid", "failed"}:
            out.line(f"{sanitize(result.candidate.path)}:")
            for problem in result.problems:
                out.print_problem(problem)
        elif result.outcome == "dangerous" and result.report is not None:
            out.line(f"{sanitize(result.candidate.path)}:")
            print_findings(out, result.name, result.report)
    counts = Counter(_state(result) for result in results)
    out.line("; ".join(f"{out.text(state)}: {count}" for state, count in counts.items()))


def _state(result: MigrationResult) -> str:
    is_planned = result.outcome in INSTALLABLE and result.done is None
    return f"coming_{result.outcome}" if is_planned else f"fate_{result.outcome}"


def _remarks(out: Output, result: MigrationResult) -> Iterator[str]:
    path = result.candidate.path
    if result.outcome == "renamed":
        yield out.text("migrate_from_name", name=path.name)
    if result.other and result.other != result.name:
        key = "migrate_same_as" if result.outcome == "same" else "migrate_other"
        yield out.text(key, other=result.other)
    if result.outcome in INSTALLABLE:
        yield from (out.text(f"trust_{held}") for held in result.capabilities)
    if result.report is not None and (worst := result.report.worst()):
        count, level = len(result.report.findings), out.text(f"level_{worst}")
        yield out.text("migrate_findings", count=count, level=level)
    if result.done is not None and result.done.index_error is not None:
        yield out.text("migrate_keyword_only")
    problems = [problem for problem in result.problems if problem.severity != "advice"]
    if problems:
        yield out.text("migrate_problems", count=len(problems))


def _to_json(out: Output, result: MigrationResult) -> dict[str, object]:
    done, report = result.done, result.report
    return {
        "name": result.name,
        "path": result.candidate.path,
        "place": result.candidate.root,
        "fate": result.outcome,
        "changed": done is not None,
        "indexed": done is not None and done.index_error is None,
        "other": result.other or None,
        "sha256": result.sha256 or None,
        "holds": list(result.capabilities),
        "problems": [out.problem_to_json(problem) for problem in result.problems],
        "findings": [f"{f.rule} {f.level} {f.path}:{f.line}" for f in report.findings]
        if report
        else [],
    }
