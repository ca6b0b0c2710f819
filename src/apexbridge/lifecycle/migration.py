"""Bring skills from other layouts to the installed ones: say what would happen, then do it.

The originals are read and never changed. Each skill is installed by itself, as `add` would do it:
one that is refused keeps nothing from the others, and who is interrupted simply begins again.
"""

import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from apexbridge.errors import (
    ApexBridgeError,
    ArchiveError,
    PermissionDeniedError,
    SkillExistsError,
    SkillInvalidError,
    SkillNotFoundError,
    StorageError,
)
from apexbridge.lifecycle.scan_results import scan_folder
from apexbridge.lifecycle.skill_discovery import Candidate
from apexbridge.lifecycle.store import SkillStore, fold_name
from apexbridge.lifecycle.transactions import InstallResult
from apexbridge.lifecycle.unpack_and_validate import StagedSkill, stage_skill
from apexbridge.lifecycle.zip.limits import DEFAULT_LIMITS, ArchiveLimits
from apexbridge.retrieval.results import NO_CALLBACKS, SyncCallbacks, SyncProgress
from apexbridge.scanner.report import Report
from apexbridge.scanner.rules import RISK_LEVELS, RiskLevel
from apexbridge.skills import tree
from apexbridge.skills.model import Problem, Skill

MigrationOutcome = Literal["new", "renamed", "same", "taken", "invalid", "dangerous", "failed"]
"""What becomes of a skill.

`new` and `renamed` (its folder has another name than it) are installed, `same` is there already.
The others stay where they are: `taken` (another skill has the name), `invalid` (rules are broken),
`dangerous` (what was found in it refuses it), `failed` (the disk or the record did).
"""
OUTCOMES: tuple[MigrationOutcome, ...] = (
    "new",
    "renamed",
    "same",
    "taken",
    "invalid",
    "dangerous",
    "failed",
)
INSTALLABLE: frozenset[MigrationOutcome] = frozenset({"new", "renamed"})
REFUSED: frozenset[MigrationOutcome] = frozenset({"taken", "invalid", "dangerous", "failed"})

Capability = Literal["tools", "hooks", "scripts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationResult:
    """What would become of a candidate or, with `done` or `error`, what became of it."""

    candidate: Candidate
    fate: MigrationOutcome
    name: str
    """The skill's; its folder's or file's where it cannot be read."""
    problems: tuple[Problem, ...] = ()
    report: Report | None = None
    """What looked dangerous in it; nothing where it was not looked at."""
    holds: tuple[Capability, ...] = ()
    """What it could act with."""
    sha256: str = ""
    other: str = ""
    """Who has the name: an installed skill, or the path of one that comes before it."""
    done: InstallResult | None = None
    error: ApexBridgeError | None = None


InstallFunction = Callable[[Path], Awaitable[InstallResult]]
"""Installs from a path, and lets a folder take the skill's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationRules:
    """What candidates are judged by."""

    store: SkillStore
    known: Mapping[str, str]
    """Names and descriptions of all skills there are."""
    blocks_at: RiskLevel | None = "block"
    limits: ArchiveLimits = DEFAULT_LIMITS


def evaluate_candidates(
    candidates: Sequence[Candidate], terms: MigrationRules, watch: SyncCallbacks = NO_CALLBACKS
) -> tuple[MigrationResult, ...]:
    """Say what would become of each; nothing is changed. Blocks: call it from a thread.

    Of several with one name the first comes, and the others are judged as if it were there.
    """
    known, coming = dict(terms.known), dict[str, MigrationResult]()
    verdicts = list[MigrationResult]()
    for number, candidate in enumerate(candidates, 1):
        with tempfile.TemporaryDirectory(prefix="apexbridge-") as place:
            verdict, skill = _evaluate_candidate(
                candidate, Path(place), replace(terms, known=known), coming
            )
        if skill is not None and verdict.fate in INSTALLABLE:
            coming[fold_name(verdict.name)] = verdict
            known[verdict.name] = skill.summary
        verdicts.append(verdict)
        watch.progress(SyncProgress(done=number, total=len(candidates)))
    return tuple(verdicts)


def _evaluate_candidate(
    candidate: Candidate,
    staging: Path,
    terms: MigrationRules,
    coming: Mapping[str, MigrationResult],
) -> tuple[MigrationResult, Skill | None]:
    invalid = MigrationResult(
        candidate=candidate, fate="invalid", name=_name_from_path(candidate.path)
    )
    if candidate.problems:
        return replace(invalid, problems=candidate.problems), None
    try:
        intake, is_renamed = _stage_candidate(candidate.path, staging, terms.limits)
    except ApexBridgeError as error:
        return replace(invalid, problems=tuple(_problems_from_error(error, candidate.path))), None
    skill = intake.skill
    verdict = replace(
        invalid,
        fate="renamed" if is_renamed else "new",
        name=skill.name,
        problems=intake.problems,
        holds=tuple(_capabilities(intake)),
        sha256=skill.fingerprint.sha256 if skill.fingerprint else "",
    )
    verdict = _compare_with_installed(verdict, terms.store, coming.get(fold_name(skill.name)))
    if verdict.fate not in INSTALLABLE:
        return verdict, skill
    report = scan_folder(intake.root, terms.known)
    worst, bound = report.worst(), terms.blocks_at
    if bound and worst and RISK_LEVELS.index(worst) >= RISK_LEVELS.index(bound):
        verdict = replace(verdict, fate="dangerous")
    return replace(verdict, report=report), skill


def _stage_candidate(path: Path, staging: Path, limits: ArchiveLimits) -> tuple[StagedSkill, bool]:
    """Build it under its folder's name or, where that is all that is wrong, under its own."""
    for name in ("as-is", "renamed"):
        (staging / name).mkdir()
    try:
        return stage_skill(path, staging / "as-is", limits=limits), False
    except SkillInvalidError:
        return stage_skill(path, staging / "renamed", renames=True, limits=limits), True


def _compare_with_installed(
    verdict: MigrationResult, store: SkillStore, first: MigrationResult | None
) -> MigrationResult:
    """Compare with the skill that has the name, or will have it."""
    if first is not None:
        is_same = (first.name, first.sha256) == (verdict.name, verdict.sha256)
        other = str(first.candidate.path)
        return replace(verdict, fate="same" if is_same else "taken", other=other)
    try:
        store.check_name_free(verdict.name)
    except SkillExistsError as error:
        name = str(error.details["name"])
        fate: MigrationOutcome = (
            "same" if _installed_hash(store, name) == verdict.sha256 else "taken"
        )
        return replace(verdict, fate=fate if name == verdict.name else "taken", other=name)
    return verdict


def _installed_hash(store: SkillStore, name: str) -> str | None:
    try:
        mark = store.read(name).fingerprint
    except SkillNotFoundError:  # what lies there cannot be read
        return None
    return mark.sha256 if mark else None


def _capabilities(intake: StagedSkill) -> Iterator[Capability]:
    if intake.skill.manifest.allowed_tools:
        yield "tools"
    if intake.skill.manifest.hooks:
        yield "hooks"
    if any(entry.kind == "file" and entry.executable for entry in tree.entries(intake.root)):
        yield "scripts"


async def run_migration(
    verdicts: Sequence[MigrationResult],
    install: InstallFunction,
    watch: SyncCallbacks = NO_CALLBACKS,
) -> tuple[MigrationResult, ...]:
    """Install what is to come, one after the other; what became of each."""
    total = sum(verdict.fate in INSTALLABLE for verdict in verdicts)
    outcomes = list[MigrationResult]()
    done = 0
    for verdict in verdicts:
        if verdict.fate not in INSTALLABLE:
            outcomes.append(verdict)
            continue
        outcomes.append(await _install_candidate(verdict, install))
        done += 1
        watch.progress(SyncProgress(done=done, total=total))
    return tuple(outcomes)


async def _install_candidate(verdict: MigrationResult, install: InstallFunction) -> MigrationResult:
    path = verdict.candidate.path
    try:
        return replace(verdict, done=await install(path))
    except ApexBridgeError as error:
        told = tuple(_problems_from_error(error, path))
        return replace(verdict, fate=_outcome_from_error(error), error=error, problems=told)
    except OSError as error:  # the original is gone, or may no longer be read
        ours = StorageError(error.strerror or str(error), code="path_unreadable", path=path)
        return replace(
            verdict, fate="failed", error=ours, problems=tuple(_problems_from_error(ours, path))
        )


def _outcome_from_error(error: ApexBridgeError) -> MigrationOutcome:
    match error:
        case SkillExistsError():
            return "taken"
        case SkillInvalidError() | ArchiveError():
            return "invalid"
        case PermissionDeniedError():
            return "dangerous"
        case _:
            return "failed"


def _problems_from_error(error: ApexBridgeError, path: Path) -> Iterator[Problem]:
    """Every rule that an error names; else the error itself."""
    if isinstance(error, SkillInvalidError) and error.problems:
        yield from (rule for rule in error.problems if isinstance(rule, Problem))
    else:
        yield Problem(code=error.code, where=path.name, details=error.details)


def _name_from_path(path: Path) -> str:
    return path.name if path.is_dir() else path.stem
