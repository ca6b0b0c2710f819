"""From an archive or a folder to a skill that may be installed: built in staging, and judged."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from apexbridge.errors import SkillInvalidError, StorageError
from apexbridge.lifecycle.archive import DEFAULT_LIMITS, ArchiveLimits, contents, extract
from apexbridge.lifecycle.plan import too_large
from apexbridge.skills import names, tree
from apexbridge.skills.model import Origin, Problem, Provenance, Skill
from apexbridge.skills.package import Package, open_folder
from apexbridge.skills.reader import parse_skill, read_skill
from apexbridge.skills.validate import validate

_NEW = "new"
_MINE = Provenance(
    origin=Origin.INSTALLED,
    source_id="installed:staging",
    needs_trust=False,
    may_run_shell=True,
    writable=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """A skill that is complete and sound, in a folder of its own name; and what is odd about it."""

    skill: Skill
    root: Path
    problems: tuple[Problem, ...]


def take_in(
    path: Path, staging: Path, *, renames: bool = False, limits: ArchiveLimits = DEFAULT_LIMITS
) -> Intake:
    """Build the skill of an archive or folder below `staging`, and hold it to every rule.

    With `renames`, a folder of another name than the skill's gets the skill's name.

    Raises:
        ArchiveError: If the archive is unsafe, broken or no skill's.
        SkillInvalidError: If a rule is broken; every one is named.
        StorageError: If the disk refuses.
    """
    try:
        return _take_in(path, staging, renames=renames, limits=limits)
    except OSError as error:
        detail = error.strerror or str(error)
        if not Path(str(error.filename)).is_relative_to(path):
            raise StorageError(detail, path=staging) from error
        told = Problem(code="folder_unreadable", where=path.name, details={"detail": detail})
        raise SkillInvalidError(path.name, [told]) from error


def _take_in(path: Path, staging: Path, *, renames: bool, limits: ArchiveLimits) -> Intake:
    built = staging / _NEW
    built.mkdir(mode=0o755)
    if path.is_dir():
        folder = path.resolve().name
        _refuse_large(path, limits)
        _copy(path, built)
        told: tuple[Problem, ...] = ()
    else:
        plan = extract(path, built, limits)
        folder, told = plan.folder, plan.problems
    package = _package(built, _declared_name(built, folder) if renames else folder)
    problems = (*told, *validate(package))
    broken = [problem for problem in problems if problem.severity == "error"]
    if broken:
        raise SkillInvalidError(package.folder, broken)
    root = staging / package.folder
    built.rename(root)
    reading = read_skill(root, _MINE)
    if reading.skill is None or reading.skill.name != package.folder:
        raise SkillInvalidError(package.folder, reading.problems)
    return Intake(skill=reading.skill, root=root, problems=problems)


def _refuse_large(path: Path, limits: ArchiveLimits) -> None:
    """Before anything is copied: a folder may hold anything."""
    files = size = 0
    for entry in tree.entries(path):
        if entry.kind == "file" and not tree.is_litter(entry.path):
            files, size = files + 1, size + entry.size
        if files > limits.files:
            raise too_large(f"more than {limits.files} files")
        if size > limits.unpacked_bytes:
            raise too_large(f"more than {limits.unpacked_bytes} bytes unpacked")


def _copy(source: Path, target: Path) -> None:
    """Copy what packing would take; links and devices are refused there."""
    for entry in contents(source, with_evals=True):
        place = target / entry.path
        place.parent.mkdir(parents=True, exist_ok=True)
        with (source / entry.path).open("rb") as old, place.open("xb") as new:
            shutil.copyfileobj(old, new)
            os.fchmod(new.fileno(), 0o755 if entry.executable else 0o644)


def _declared_name(root: Path, folder: str) -> str:
    opened = open_folder(root)
    if isinstance(opened, Problem):
        return folder
    skill = parse_skill(opened.skill_md, folder=folder, provenance=_MINE).skill
    return names.normalise(skill.name) if skill is not None else folder


def _package(root: Path, folder: str) -> Package:
    opened = open_folder(root)
    if isinstance(opened, Problem):
        raise SkillInvalidError(folder, [opened])
    return Package(
        folder=folder,
        skill_md=opened.skill_md,
        files=frozenset(map(PurePosixPath, opened.files)),
        problems=opened.problems,
    )
