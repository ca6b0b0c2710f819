"""`migrate`: skills that lie in other layouts become installed ones."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from apexbridge.cli.output import Exit, Out, visible
from apexbridge.cli.progress import watching
from apexbridge.cli.vetting import say_findings
from apexbridge.errors import PermissionDeniedError, StorageError
from apexbridge.lifecycle.migrate import (
    COMING,
    FATES,
    REFUSED,
    Fate,
    Terms,
    Verdict,
    carry_out,
    judge,
)
from apexbridge.lifecycle.survey import survey
from apexbridge.runtime import Runtime
from apexbridge.skills.model import Origin
from apexbridge.sources.folders import FolderSource
from apexbridge.sources.walking import ScanLimits, is_folder, really
from apexbridge.vetting.rulebook import Level

OLD_PLACES = ("skills", "data/skills")
"""Where older versions kept skills, in the project."""
_READ_IN_PLACE = frozenset({Origin.USER, Origin.PROJECT, Origin.ADDITIONAL})
_OURS = ".apexbridge"
_NAMED = 5
_EXITS: dict[Fate, Exit] = {
    "taken": Exit.CONFLICT,
    "dangerous": Exit.DENIED,
    "invalid": Exit.INVALID,
    "failed": Exit.FAILURE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrateOrder:
    """Where to look, and how readily to install what is found."""

    places: tuple[Path, ...]
    dry_run: bool
    despite_findings: bool
    yes: bool


def migrate(out: Out, order: MigrateOrder) -> None:
    """Say what would become of each skill, ask, and install those that can be."""
    for place in order.places:
        if not place.exists():
            raise StorageError(code="path_missing", path=place)
    anyio.run(_migrate, out, order)


async def _migrate(out: Out, order: MigrateOrder) -> None:
    async with Runtime.open(out.loaded) as runtime:
        places = order.places or usual_places(runtime)
        verdicts = await _judged(out, runtime, order, places)
        is_to_do = any(verdict.fate in COMING for verdict in verdicts) and not order.dry_run
        if is_to_do and not order.yes:
            _say(out, verdicts)
            count = sum(verdict.fate in COMING for verdict in verdicts)
            if not out.asks("migrate_ask", count=count):
                raise PermissionDeniedError(code="not_agreed")
        if is_to_do:
            with watching(out, "migrating") as watch:
                bound = _bound(runtime, order)
                install = partial(runtime.manager.install, renames=True, blocks_at=bound)
                verdicts = await carry_out(verdicts, install, watch)
        _finish(out, order, verdicts, runtime, places)


async def _judged(
    out: Out, runtime: Runtime, order: MigrateOrder, places: Sequence[Path]
) -> tuple[Verdict, ...]:
    chosen = out.loaded.settings.skills
    limits = ScanLimits(max_depth=chosen.max_depth, max_folders=chosen.max_folders)
    terms = Terms(
        store=runtime.store,
        known={skill.name: skill.summary for skill in runtime.catalog.skills},
        blocks_at=_bound(runtime, order),
        limits=runtime.manager.policy.limits,
    )
    with watching(out, "migrate_looking") as watch:
        found = await anyio.to_thread.run_sync(partial(survey, places, limits=limits))
        return await anyio.to_thread.run_sync(judge, found, terms, watch)


def usual_places(runtime: Runtime) -> tuple[Path, ...]:
    """The folders of other clients that are read in place, and where older versions had theirs."""
    sources = (state.source for state in runtime.catalog.states)
    read = [
        source.root
        for source in sources
        if isinstance(source, FolderSource)
        and source.provenance.origin in _READ_IN_PLACE
        and source.root.parent.name != _OURS
    ]
    old = [runtime.loaded.project / place for place in OLD_PLACES]
    own = really(runtime.store.root)
    return tuple(path for path in (*read, *old) if is_folder(path) and really(path) != own)


def _finish(
    out: Out,
    order: MigrateOrder,
    verdicts: Sequence[Verdict],
    runtime: Runtime,
    places: Sequence[Path],
) -> None:
    hidden = list(dict.fromkeys(_hidden(runtime, verdicts)))

    def render() -> None:
        if not verdicts:
            key = "migrate_none" if places else "migrate_nowhere"
            out.line(out.word(key, places=", ".join(map(str, places))))
            return
        _say(out, verdicts)
        if hidden:
            names = ", ".join(hidden[:_NAMED]) + (" …" if len(hidden) > _NAMED else "")
            out.note(out.word("migrate_hidden", count=len(hidden), names=names))
        out.line(out.word("migrate_dry" if order.dry_run else "migrate_kept"))

    data = {
        "dry_run": order.dry_run,
        "places": list(places),
        "counts": {fate: sum(v.fate == fate for v in verdicts) for fate in FATES},
        "hidden": hidden,
        "skills": [_as_data(out, verdict) for verdict in verdicts],
    }
    out.finish(data, render, _exit(verdicts))


def _exit(verdicts: Sequence[Verdict]) -> Exit:
    """What all that were refused have in common; a plain failure if that is nothing."""
    codes = {_EXITS[verdict.fate] for verdict in verdicts if verdict.fate in REFUSED}
    if not codes:
        return Exit.OK
    return codes.pop() if len(codes) == 1 else Exit.FAILURE


def _bound(runtime: Runtime, order: MigrateOrder) -> Level | None:
    return None if order.despite_findings else runtime.manager.policy.blocks_at


def _hidden(runtime: Runtime, verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Names that another source has before what is, or would be, installed under them."""
    rank = runtime.loaded.settings.skills.precedence.index
    for verdict in verdicts:
        winner = runtime.catalog.snapshot.winner(verdict.name)
        is_there = verdict.fate in COMING or (verdict.fate == "same" and verdict.other)
        if is_there and winner and rank(winner.provenance.origin) < rank(Origin.INSTALLED):
            yield verdict.name


def _say(out: Out, verdicts: Sequence[Verdict]) -> None:
    """A line for each, why those that cannot come cannot, and how many there are of each kind."""
    heads = [out.word(key) for key in ("name", "state", "where", "remark")]
    rows = [
        (v.name, out.word(_state(v)), str(v.candidate.path), ", ".join(_remarks(out, v)))
        for v in verdicts
    ]
    out.table(heads, rows)
    for verdict in verdicts:
        if verdict.fate in {"invalid", "failed"}:
            out.line(f"{visible(verdict.candidate.path)}:")
            for problem in verdict.problems:
                out.problem_lines(problem)
        elif verdict.fate == "dangerous" and verdict.report is not None:
            out.line(f"{visible(verdict.candidate.path)}:")
            say_findings(out, verdict.name, verdict.report)
    counts = Counter(_state(verdict) for verdict in verdicts)
    out.line("; ".join(f"{out.word(state)}: {count}" for state, count in counts.items()))


def _state(verdict: Verdict) -> str:
    is_coming = verdict.fate in COMING and verdict.done is None
    return f"coming_{verdict.fate}" if is_coming else f"fate_{verdict.fate}"


def _remarks(out: Out, verdict: Verdict) -> Iterator[str]:
    path = verdict.candidate.path
    if verdict.fate == "renamed":
        yield out.word("migrate_from_name", name=path.name)
    if verdict.other and verdict.other != verdict.name:
        key = "migrate_like" if verdict.fate == "same" else "migrate_other"
        yield out.word(key, other=verdict.other)
    if verdict.fate in COMING:
        yield from (out.word(f"trust_{held}") for held in verdict.holds)
    if verdict.report is not None and (worst := verdict.report.worst()):
        count, level = len(verdict.report.findings), out.word(f"level_{worst}")
        yield out.word("migrate_findings", count=count, level=level)
    if verdict.done is not None and verdict.done.not_indexed is not None:
        yield out.word("migrate_by_words")
    if verdict.problems:
        yield out.word("migrate_problems", count=len(verdict.problems))


def _as_data(out: Out, verdict: Verdict) -> dict[str, object]:
    done, report = verdict.done, verdict.report
    return {
        "name": verdict.name,
        "path": verdict.candidate.path,
        "place": verdict.candidate.place,
        "fate": verdict.fate,
        "changed": done is not None,
        "indexed": done is not None and done.not_indexed is None,
        "other": verdict.other or None,
        "sha256": verdict.sha256 or None,
        "holds": list(verdict.holds),
        "problems": [out.problem(problem) for problem in verdict.problems],
        "findings": [f"{f.rule} {f.level} {f.path}:{f.line}" for f in report.findings]
        if report
        else [],
    }
