"""Migration: install skills from other layouts, after a dry run that reports each outcome.

Originals are never changed. Each skill is installed on its own, as `add` does it: a refused one
does not affect the others, and an interrupted migration can be repeated.
"""

import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from apexbridge.errors import (
    ApexBridgeError,
    ArchiveError,
    PermissionDeniedError,
    SkillExistsError,
    SkillInvalidError,
    SkillNotFoundError,
    StorageError,
)
from apexbridge.lifecycle.scan_folder import scan_folder
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
"""Outcome of a migrated skill.

`new` and `renamed` (its folder has another name) are installed, `same` is installed already. The
others are refused: `taken` (another skill has the name), `invalid` (validation), `dangerous`
(scanner findings), `failed` (disk or audit log).
"""
OUTCOMES: tuple[MigrationOutcome, ...] = get_args(MigrationOutcome)
INSTALLABLE: frozenset[MigrationOutcome] = frozenset({"new", "renamed"})
REFUSED: frozenset[MigrationOutcome] = frozenset({"taken", "invalid", "dangerous", "failed"})

Capability = Literal["tools", "hooks", "scripts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationResult:
    """Expected outcome of a candidate or, with `done` or `error`, the actual one."""

    candidate: Candidate
    outcome: MigrationOutcome
    name: str
    """Name of the skill, or of its path if it cannot be parsed."""
    problems: tuple[Problem, ...] = ()
    report: Report | None = None
    """Scanner report; None if it was not scanned."""
    capabilities: tuple[Capability, ...] = ()
    """Kinds of actions it can take."""
    sha256: str = ""
    other: str = ""
    """Owner of the name: an installed skill, or the path of an earlier candidate."""
    done: InstallResult | None = None
    error: ApexBridgeError | None = None


InstallFunction = Callable[[Path], Awaitable[InstallResult]]
"""Installs from a path, renaming the folder to the skill's name if needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationRules:
    """Store, known skills and limits to evaluate candidates against."""

    store: SkillStore
    known: Mapping[str, str]
    """Name to description of all skills, to detect typosquatting."""
    blocks_at: RiskLevel | None = "block"
    limits: ArchiveLimits = DEFAULT_LIMITS


def evaluate_candidates(
    candidates: Sequence[Candidate], rules: MigrationRules, watch: SyncCallbacks = NO_CALLBACKS
) -> tuple[MigrationResult, ...]:
    """Dry run: determine the outcome of each candidate. Blocking: call it from a worker thread.

    Of several with one name the first is installed, and the others are compared with it.
    """
    known, accepted = dict(rules.known), dict[str, MigrationResult]()
    results = list[MigrationResult]()
    for number, candidate in enumerate(candidates, 1):
        with tempfile.TemporaryDirectory(prefix="apexbridge-") as folder:
            result, skill = _evaluate_candidate(
                candidate, Path(folder), replace(rules, known=known), accepted
            )
        if skill is not None and result.outcome in INSTALLABLE:
            accepted[fold_name(result.name)] = result
            known[result.name] = skill.summary
        results.append(result)
        watch.progress(SyncProgress(done=number, total=len(candidates)))
    return tuple(results)


def _evaluate_candidate(
    candidate: Candidate,
    staging: Path,
    rules: MigrationRules,
    accepted: Mapping[str, MigrationResult],
) -> tuple[MigrationResult, Skill | None]:
    name = candidate.path.name if candidate.path.is_dir() else candidate.path.stem
    invalid = MigrationResult(candidate=candidate, outcome="invalid", name=name)
    if candidate.problems:
        return replace(invalid, problems=candidate.problems), None
    try:
        staged, is_renamed = _stage_candidate(candidate.path, staging, rules.limits)
    except ApexBridgeError as error:
        return replace(invalid, problems=tuple(_problems_from_error(error, candidate.path))), None
    skill = staged.skill
    result = replace(
        invalid,
        outcome="renamed" if is_renamed else "new",
        name=skill.name,
        problems=staged.problems,
        capabilities=tuple(_capabilities(staged)),
        sha256=skill.fingerprint.sha256 if skill.fingerprint else "",
    )
    result = _compare_with_installed(result, rules.store, accepted.get(fold_name(skill.name)))
    if result.outcome not in INSTALLABLE:
        return result, skill
    report = scan_folder(staged.root, rules.known)
    worst, bound = report.worst(), rules.blocks_at
    if bound and worst and RISK_LEVELS.index(worst) >= RISK_LEVELS.index(bound):
        result = replace(result, outcome="dangerous")
    return replace(result, report=report), skill


def _stage_candidate(path: Path, staging: Path, limits: ArchiveLimits) -> tuple[StagedSkill, bool]:
    """Stage under the folder's name or, if that is invalid, under the skill's own name."""
    for name in ("as-is", "renamed"):
        (staging / name).mkdir()
    try:
        return stage_skill(path, staging / "as-is", limits=limits), False
    except SkillInvalidError:
        return stage_skill(path, staging / "renamed", renames=True, limits=limits), True


def _compare_with_installed(
    result: MigrationResult, store: SkillStore, first: MigrationResult | None
) -> MigrationResult:
    """Compare with the installed skill of the name, or an earlier candidate."""
    if first is not None:
        is_same = (first.name, first.sha256) == (result.name, result.sha256)
        other = str(first.candidate.path)
        return replace(result, outcome="same" if is_same else "taken", other=other)
    try:
        store.check_name_free(result.name)
    except SkillExistsError as error:
        name = str(error.details["name"])
        outcome: MigrationOutcome = (
            "same" if _installed_hash(store, name) == result.sha256 else "taken"
        )
        return replace(result, outcome=outcome if name == result.name else "taken", other=name)
    return result


def _installed_hash(store: SkillStore, name: str) -> str | None:
    try:
        mark = store.read(name).fingerprint
    except SkillNotFoundError:  # it cannot be parsed
        return None
    return mark.sha256 if mark else None


def _capabilities(staged: StagedSkill) -> Iterator[Capability]:
    if staged.skill.manifest.allowed_tools:
        yield "tools"
    if staged.skill.manifest.hooks:
        yield "hooks"
    if any(entry.kind == "file" and entry.executable for entry in tree.entries(staged.root)):
        yield "scripts"


async def run_migration(
    results: Sequence[MigrationResult],
    install: InstallFunction,
    watch: SyncCallbacks = NO_CALLBACKS,
) -> tuple[MigrationResult, ...]:
    """Install the accepted candidates one after the other, and return every outcome."""
    total = sum(result.outcome in INSTALLABLE for result in results)
    outcomes = list[MigrationResult]()
    done = 0
    for result in results:
        if result.outcome not in INSTALLABLE:
            outcomes.append(result)
            continue
        outcomes.append(await _install_candidate(result, install))
        done += 1
        watch.progress(SyncProgress(done=done, total=total))
    return tuple(outcomes)


async def _install_candidate(result: MigrationResult, install: InstallFunction) -> MigrationResult:
    path = result.candidate.path
    try:
        return replace(result, done=await install(path))
    except ApexBridgeError as error:
        problems = tuple(_problems_from_error(error, path))
        return replace(result, outcome=_outcome_from_error(error), error=error, problems=problems)
    except OSError as error:  # the original was removed, or is no longer readable
        ours = StorageError(error.strerror or str(error), code="path_unreadable", path=path)
        problems = tuple(_problems_from_error(ours, path))
        return replace(result, outcome="failed", error=ours, problems=problems)


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
    """Yield the failed validation rules of an error, or the error itself."""
    if isinstance(error, SkillInvalidError) and error.problems:
        yield from (rule for rule in error.problems if isinstance(rule, Problem))
    else:
        yield Problem(code=error.code, where=path.name, details=error.details)
