"""From an archive or a folder to a skill that may be installed: built in staging, and judged."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from apexbridge.errors import SkillInvalidError, StorageError
from apexbridge.lifecycle.index_updates import parse_body, read_skill_md
from apexbridge.lifecycle.scan_results import scan_folder
from apexbridge.lifecycle.zip.archive import (
    DEFAULT_LIMITS,
    ArchiveLimits,
    extract_archive,
    files_to_pack,
)
from apexbridge.lifecycle.zip.limits import ArchiveFile, limit_exceeded
from apexbridge.scanner.report import Report
from apexbridge.skills import names, tree
from apexbridge.skills.document import inline_commands
from apexbridge.skills.model import Origin, Problem, Provenance, Skill
from apexbridge.skills.parser import parse_skill, read_skill
from apexbridge.skills.tree import SHEBANG_BYTES, script_interpreter
from apexbridge.skills.validator import Package, open_folder, validate

_STAGED_NAME = "new"
_PROVENANCE = Provenance(
    origin=Origin.INSTALLED,
    source_id="installed:staging",
    needs_trust=False,
    may_run_shell=True,
    writable=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedSkill:
    """A skill that is complete and sound, in a folder of its own name; and what is odd about it."""

    skill: Skill
    root: Path
    problems: tuple[Problem, ...]


def stage_skill(
    path: Path, staging: Path, *, renames: bool = False, limits: ArchiveLimits = DEFAULT_LIMITS
) -> StagedSkill:
    """Build the skill of an archive or folder below `staging`, and hold it to every rule.

    With `renames`, a folder of another name than the skill's gets the skill's name.

    Raises:
        ArchiveError: If the archive is unsafe, broken or no skill's.
        SkillInvalidError: If a rule is broken; every one is named.
        StorageError: If the disk refuses.
    """
    try:
        return _stage(path, staging, renames=renames, limits=limits)
    except OSError as error:
        detail = error.strerror or str(error)
        if not Path(str(error.filename)).is_relative_to(path):
            raise StorageError(detail, path=staging) from error
        told = Problem(code="folder_unreadable", where=path.name, details={"detail": detail})
        raise SkillInvalidError(path.name, [told]) from error


def _stage(path: Path, staging: Path, *, renames: bool, limits: ArchiveLimits) -> StagedSkill:
    built = staging / _STAGED_NAME
    built.mkdir(mode=0o755)
    if path.is_dir():
        folder = path.resolve().name
        _check_folder_limits(path, limits)
        _copy_folder(path, built)
        told: tuple[Problem, ...] = ()
    else:
        plan = extract_archive(path, built, limits)
        folder, told = plan.folder, plan.problems
    package = _open_package(built, _declared_name(built, folder) if renames else folder)
    problems = (*told, *validate(package))
    broken = [problem for problem in problems if problem.severity == "error"]
    if broken:
        raise SkillInvalidError(package.folder, broken)
    root = staging / package.folder
    built.rename(root)
    reading = read_skill(root, _PROVENANCE)
    if reading.skill is None or reading.skill.name != package.folder:
        raise SkillInvalidError(package.folder, reading.problems)
    return StagedSkill(skill=reading.skill, root=root, problems=problems)


def _check_folder_limits(path: Path, limits: ArchiveLimits) -> None:
    """Before anything is copied: a folder may hold anything."""
    files = size = 0
    for entry in tree.entries(path):
        if entry.kind == "file" and not tree.is_junk(entry.path):
            files, size = files + 1, size + entry.size
        if files > limits.files:
            raise limit_exceeded(f"more than {limits.files} files")
        if size > limits.unpacked_bytes:
            raise limit_exceeded(f"more than {limits.unpacked_bytes} bytes unpacked")


def _copy_folder(source: Path, target: Path) -> None:
    """Copy what packing would take; links and devices are refused there."""
    for entry in files_to_pack(source, with_evals=True):
        place = target / entry.path
        place.parent.mkdir(parents=True, exist_ok=True)
        with (source / entry.path).open("rb") as old, place.open("xb") as new:
            shutil.copyfileobj(old, new)
            os.fchmod(new.fileno(), 0o755 if entry.executable else 0o644)


def _declared_name(root: Path, folder: str) -> str:
    opened = open_folder(root)
    if isinstance(opened, Problem):
        return folder
    skill = parse_skill(opened.skill_md, folder=folder, provenance=_PROVENANCE).skill
    return names.normalise(skill.name) if skill is not None else folder


def _open_package(root: Path, folder: str) -> Package:
    opened = open_folder(root)
    if isinstance(opened, Problem):
        raise SkillInvalidError(folder, [opened])
    return Package(
        folder=folder,
        skill_md=opened.skill_md,
        files=frozenset(map(PurePosixPath, opened.files)),
        problems=opened.problems,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptFile:
    """A file that can be run, and what with; an empty name if nothing says."""

    path: str
    runner: str
    executable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """Everything a person should know of a skill before it may stay."""

    skill: Skill
    files: tuple[ArchiveFile, ...]
    size: int
    sha256: str
    tools: tuple[str, ...]
    """What it asks to be allowed."""
    hooks: tuple[str, ...]
    """The events it wants commands run at."""
    commands: tuple[str, ...]
    """What is run when its text is read."""
    scripts: tuple[ScriptFile, ...]
    problems: tuple[Problem, ...]
    report: Report
    """What looks dangerous in it."""


def inspect_skill(
    path: Path,
    *,
    renames: bool = False,
    limits: ArchiveLimits = DEFAULT_LIMITS,
    others: Mapping[str, str] | None = None,
) -> Inspection:
    """Look at an archive or folder as an install would, and leave nothing behind.

    Raises:
        ArchiveError: If the archive is unsafe, broken or no skill's.
        SkillInvalidError: If a rule is broken.
    """
    with tempfile.TemporaryDirectory(prefix="apexbridge-") as place:
        intake = stage_skill(path, Path(place), renames=renames, limits=limits)
        skill, root = intake.skill, intake.root
        files = tuple(
            ArchiveFile(path=entry.path, size=entry.size, executable=entry.executable)
            for entry in tree.entries(root)
            if entry.kind == "file"
        )
        body = parse_body(read_skill_md(root), skill.name)
        return Inspection(
            skill=skill,
            files=files,
            size=sum(file.size for file in files),
            sha256=skill.fingerprint.sha256 if skill.fingerprint else "",
            tools=tuple(map(str, skill.tools)),
            hooks=tuple(skill.manifest.hooks),
            commands=tuple(found.command for found in inline_commands(body)),
            scripts=tuple(_find_scripts(root, files)),
            problems=intake.problems,
            report=scan_folder(root, others),
        )


def _find_scripts(root: Path, files: tuple[ArchiveFile, ...]) -> Iterator[ScriptFile]:
    for file in files:
        with (root / file.path).open("rb") as opened:
            runner, *_ = script_interpreter(opened.readline(SHEBANG_BYTES), file.path.suffix)
        if runner or file.executable:
            yield ScriptFile(path=str(file.path), runner=runner, executable=file.executable)
