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
from apexbridge.lifecycle.changes import Done
from apexbridge.lifecycle.intake import Intake, take_in
from apexbridge.lifecycle.plan import DEFAULT_LIMITS, ArchiveLimits
from apexbridge.lifecycle.store import SkillStore, folded
from apexbridge.lifecycle.survey import Candidate
from apexbridge.lifecycle.vet import vet
from apexbridge.retrieval.report import UNWATCHED, Progress, Watch
from apexbridge.skills import tree
from apexbridge.skills.model import Problem, Skill
from apexbridge.vetting.report import Report
from apexbridge.vetting.rulebook import LEVELS, Level

Fate = Literal["new", "renamed", "same", "taken", "invalid", "dangerous", "failed"]
"""What becomes of a skill.

`new` and `renamed` (its folder has another name than it) are installed, `same` is there already.
The others stay where they are: `taken` (another skill has the name), `invalid` (rules are broken),
`dangerous` (what was found in it refuses it), `failed` (the disk or the record did).
"""
FATES: tuple[Fate, ...] = ("new", "renamed", "same", "taken", "invalid", "dangerous", "failed")
COMING: frozenset[Fate] = frozenset({"new", "renamed"})
REFUSED: frozenset[Fate] = frozenset({"taken", "invalid", "dangerous", "failed"})

Held = Literal["tools", "hooks", "scripts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What would become of a candidate or, with `done` or `error`, what became of it."""

    candidate: Candidate
    fate: Fate
    name: str
    """The skill's; its folder's or file's where it cannot be read."""
    problems: tuple[Problem, ...] = ()
    report: Report | None = None
    """What looked dangerous in it; nothing where it was not looked at."""
    holds: tuple[Held, ...] = ()
    """What it could act with."""
    sha256: str = ""
    other: str = ""
    """Who has the name: an installed skill, or the path of one that comes before it."""
    done: Done | None = None
    error: ApexBridgeError | None = None


Install = Callable[[Path], Awaitable[Done]]
"""Installs from a path, and lets a folder take the skill's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What candidates are judged by."""

    store: SkillStore
    known: Mapping[str, str]
    """Names and descriptions of all skills there are."""
    blocks_at: Level | None = "block"
    limits: ArchiveLimits = DEFAULT_LIMITS


def judge(
    candidates: Sequence[Candidate], terms: Terms, watch: Watch = UNWATCHED
) -> tuple[Verdict, ...]:
    """Say what would become of each; nothing is changed. Blocks: call it from a thread.

    Of several with one name the first comes, and the others are judged as if it were there.
    """
    known, coming = dict(terms.known), dict[str, Verdict]()
    verdicts = list[Verdict]()
    for number, candidate in enumerate(candidates, 1):
        with tempfile.TemporaryDirectory(prefix="apexbridge-") as place:
            verdict, skill = _judge(candidate, Path(place), replace(terms, known=known), coming)
        if skill is not None and verdict.fate in COMING:
            coming[folded(verdict.name)] = verdict
            known[verdict.name] = skill.summary
        verdicts.append(verdict)
        watch.progress(Progress(done=number, total=len(candidates)))
    return tuple(verdicts)


def _judge(
    candidate: Candidate, staging: Path, terms: Terms, coming: Mapping[str, Verdict]
) -> tuple[Verdict, Skill | None]:
    invalid = Verdict(candidate=candidate, fate="invalid", name=_name_of(candidate.path))
    if candidate.problems:
        return replace(invalid, problems=candidate.problems), None
    try:
        intake, is_renamed = _take_in(candidate.path, staging, terms.limits)
    except ApexBridgeError as error:
        return replace(invalid, problems=tuple(_problems(error, candidate.path))), None
    skill = intake.skill
    verdict = replace(
        invalid,
        fate="renamed" if is_renamed else "new",
        name=skill.name,
        problems=intake.problems,
        holds=tuple(_holds(intake)),
        sha256=skill.fingerprint.sha256 if skill.fingerprint else "",
    )
    verdict = _beside_others(verdict, terms.store, coming.get(folded(skill.name)))
    if verdict.fate not in COMING:
        return verdict, skill
    report = vet(intake.root, terms.known)
    worst, bound = report.worst(), terms.blocks_at
    if bound and worst and LEVELS.index(worst) >= LEVELS.index(bound):
        verdict = replace(verdict, fate="dangerous")
    return replace(verdict, report=report), skill


def _take_in(path: Path, staging: Path, limits: ArchiveLimits) -> tuple[Intake, bool]:
    """Build it under its folder's name or, where that is all that is wrong, under its own."""
    for name in ("as-is", "renamed"):
        (staging / name).mkdir()
    try:
        return take_in(path, staging / "as-is", limits=limits), False
    except SkillInvalidError:
        return take_in(path, staging / "renamed", renames=True, limits=limits), True


def _beside_others(verdict: Verdict, store: SkillStore, first: Verdict | None) -> Verdict:
    """Compare with the skill that has the name, or will have it."""
    if first is not None:
        is_same = (first.name, first.sha256) == (verdict.name, verdict.sha256)
        other = str(first.candidate.path)
        return replace(verdict, fate="same" if is_same else "taken", other=other)
    try:
        store.refuse_taken(verdict.name)
    except SkillExistsError as error:
        name = str(error.details["name"])
        fate: Fate = "same" if _installed_hash(store, name) == verdict.sha256 else "taken"
        return replace(verdict, fate=fate if name == verdict.name else "taken", other=name)
    return verdict


def _installed_hash(store: SkillStore, name: str) -> str | None:
    try:
        mark = store.read(name).fingerprint
    except SkillNotFoundError:  # what lies there cannot be read
        return None
    return mark.sha256 if mark else None


def _holds(intake: Intake) -> Iterator[Held]:
    if intake.skill.manifest.allowed_tools:
        yield "tools"
    if intake.skill.manifest.hooks:
        yield "hooks"
    if any(entry.kind == "file" and entry.executable for entry in tree.entries(intake.root)):
        yield "scripts"


async def carry_out(
    verdicts: Sequence[Verdict], install: Install, watch: Watch = UNWATCHED
) -> tuple[Verdict, ...]:
    """Install what is to come, one after the other; what became of each."""
    total = sum(verdict.fate in COMING for verdict in verdicts)
    outcomes = list[Verdict]()
    done = 0
    for verdict in verdicts:
        if verdict.fate not in COMING:
            outcomes.append(verdict)
            continue
        outcomes.append(await _install(verdict, install))
        done += 1
        watch.progress(Progress(done=done, total=total))
    return tuple(outcomes)


async def _install(verdict: Verdict, install: Install) -> Verdict:
    path = verdict.candidate.path
    try:
        return replace(verdict, done=await install(path))
    except ApexBridgeError as error:
        told = tuple(_problems(error, path))
        return replace(verdict, fate=_fate_of(error), error=error, problems=told)
    except OSError as error:  # the original is gone, or may no longer be read
        ours = StorageError(error.strerror or str(error), code="path_unreadable", path=path)
        return replace(verdict, fate="failed", error=ours, problems=tuple(_problems(ours, path)))


def _fate_of(error: ApexBridgeError) -> Fate:
    match error:
        case SkillExistsError():
            return "taken"
        case SkillInvalidError() | ArchiveError():
            return "invalid"
        case PermissionDeniedError():
            return "dangerous"
        case _:
            return "failed"


def _problems(error: ApexBridgeError, path: Path) -> Iterator[Problem]:
    """Every rule that an error names; else the error itself."""
    if isinstance(error, SkillInvalidError) and error.problems:
        yield from (rule for rule in error.problems if isinstance(rule, Problem))
    else:
        yield Problem(code=error.code, where=path.name, details=error.details)


def _name_of(path: Path) -> str:
    return path.name if path.is_dir() else path.stem
