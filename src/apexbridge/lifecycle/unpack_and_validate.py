"""Unpack and validate: stage an archive or folder as a skill, or inspect it without installing."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Literal

from apexbridge.errors import ApexBridgeError, SkillInvalidError, StorageError
from apexbridge.lifecycle.signature_check import (
    UNSIGNED,
    SignatureCheck,
    SignaturePolicy,
    check_signature,
    copy_archive,
    find_signature,
)
from apexbridge.lifecycle.source_records import UNKNOWN_ORIGIN, InstallOrigin
from apexbridge.lifecycle.zip.archive import (
    DEFAULT_LIMITS,
    ArchiveLimits,
    extract_archive,
    files_to_pack,
    inspect_archive,
)
from apexbridge.lifecycle.zip.limits import limit_exceeded
from apexbridge.regular_files import open_regular
from apexbridge.skills import links, names, tree
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.model import Origin, Problem, Provenance, Skill
from apexbridge.skills.parser import parse_skill, read_skill
from apexbridge.skills.validator import Package, open_folder, validate

Renames = bool | Literal["titles"]
"""Whether a folder is renamed after its skill, and whether the skill's name may be a title."""
_STAGED_NAME = "new"
_LFS_START = b"version https://git-lfs.github.com/spec/"
_LFS_BYTES = 1024
_PROVENANCE = Provenance(
    origin=Origin.INSTALLED,
    source_id="installed:staging",
    needs_trust=False,
    may_run_shell=True,
    writable=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedSkill:
    """A valid skill in a staging folder of its name, with validation warnings."""

    skill: Skill
    root: Path
    problems: tuple[Problem, ...]
    signature: SignatureCheck = UNSIGNED


def stage_skill(
    path: Path,
    staging: Path,
    *,
    renames: Renames = False,
    limits: ArchiveLimits = DEFAULT_LIMITS,
    signatures: SignaturePolicy | None = None,
    origin: InstallOrigin = UNKNOWN_ORIGIN,
) -> StagedSkill:
    """Unpack an archive or copy a folder below `staging`, and validate it.

    With `renames`, a folder that is not named like its skill is renamed; with `titles` it also gets
    a valid name where the declared one is a title ("SQL Injection Testing"). With `signatures`, the
    signature is verified: that of the origin, or else the file beside the archive or folder.

    Raises:
        SignatureError: If the signature is wrong, or one is required and missing.
        ArchiveError: If the archive is unsafe, malformed or not a skill.
        SkillInvalidError: If validation rules fail; every one is listed.
        StorageError: If the disk refuses.
    """
    try:
        if signatures is None:
            return _stage(path, staging, renames=renames, limits=limits)
        text = origin.signature or find_signature(path)
        is_archive = bool(text) and not path.is_dir()
        copy = copy_archive(path, staging, limits) if is_archive else None
        staged = _stage(copy or path, staging, renames=renames, limits=limits)
        mark = staged.skill.fingerprint
        sha256 = mark.sha256 if mark else ""
        check = check_signature(text, copy or origin.archive, sha256, signatures, path.name)
        return replace(staged, signature=check)
    except OSError as error:
        detail = error.strerror or str(error)
        if not Path(str(error.filename)).is_relative_to(path):
            raise StorageError(detail, path=staging) from error
        problem = Problem(code="folder_unreadable", where=path.name, details={"detail": detail})
        raise SkillInvalidError(path.name, [problem]) from error


def _stage(path: Path, staging: Path, *, renames: Renames, limits: ArchiveLimits) -> StagedSkill:
    built = staging / _STAGED_NAME
    built.mkdir(mode=0o755)
    if path.is_dir():
        folder = path.resolve().name
        _check_folder_limits(path, limits)
        _copy_folder(path, built)
        warnings: tuple[Problem, ...] = ()
    else:
        plan = extract_archive(path, built, limits)
        folder, warnings = plan.folder, plan.problems
    package = _open_package(built, _declared_name(built, folder) if renames else folder)
    problems = (*warnings, *_broken_rules(package, renames))
    errors = [problem for problem in problems if problem.severity == "error"]
    if errors:
        raise SkillInvalidError(package.folder, errors)
    root = staging / package.folder
    built.rename(root)
    problems = (*problems, *_lfs_pointers(root))
    reading = read_skill(root, _PROVENANCE)
    if reading.skill is None or reading.skill.name != package.folder:
        raise SkillInvalidError(package.folder, reading.problems)
    replaced = tuple(problem for problem in reading.problems if problem.code == "name_replaced")
    return StagedSkill(skill=reading.skill, root=root, problems=(*problems, *replaced))


def _broken_rules(package: Package, renames: Renames) -> Iterator[Problem]:
    """Validate; with `titles` the declared name need neither be valid nor that of the folder."""
    for problem in validate(package):
        if renames != "titles" or problem.code not in names.NAME_PROBLEMS | {"name_mismatch"}:
            yield problem
    if renames == "titles" and names.is_device(package.folder):  # what becomes of "AUX"
        yield Problem.error("name_reserved", SKILL_MD, name=package.folder)


def _lfs_pointers(root: Path) -> Iterator[Problem]:
    """Report files that Git LFS keeps elsewhere: no archive and no `git archive` has them."""
    for entry in tree.entries(root):
        if entry.kind == "file" and entry.size <= _LFS_BYTES:
            with (root / entry.path).open("rb") as file:
                start = file.read(len(_LFS_START))
            if start == _LFS_START:
                path = entry.path.as_posix()
                yield Problem.warning("lfs_pointer", path, path=path)


def _check_folder_limits(path: Path, limits: ArchiveLimits) -> None:
    """Check number and size of files before copying any."""
    files = size = 0
    for entry in links.copied_entries(path):
        # Folders count too: links to folders can multiply them without any file.
        files, size = files + 1, size + (entry.size if entry.kind == "file" else 0)
        if files > limits.files:
            raise limit_exceeded(f"more than {limits.files} files")
        if size > limits.unpacked_bytes:
            raise limit_exceeded(f"more than {limits.unpacked_bytes} bytes unpacked")


def _copy_folder(source: Path, target: Path) -> None:
    """Copy the files that packing would include; links that lead out and devices are refused."""
    for entry in files_to_pack(source, with_evals=True):
        place = target / entry.path
        place.parent.mkdir(parents=True, exist_ok=True)
        with open_regular((source / entry.path).resolve()) as old, place.open("xb") as new:
            shutil.copyfileobj(old, new)
            os.fchmod(new.fileno(), 0o755 if entry.executable else 0o644)


def _declared_name(root: Path, folder: str) -> str:
    opened = open_folder(root)
    if isinstance(opened, Problem):
        return folder
    skill = parse_skill(opened.skill_md, folder=folder, provenance=_PROVENANCE).skill
    return names.normalise(skill.name) if skill is not None else folder


def archived_name(archive: Path) -> tuple[str, str]:
    """Return name and description of the skill in a zip; the file's name if it cannot be read."""
    try:
        plan = inspect_archive(archive)
    except ApexBridgeError:  # the installation says what is wrong
        return archive.stem, ""
    skill = parse_skill(plan.skill_md, folder=plan.folder, provenance=_PROVENANCE).skill
    return (skill.name, skill.description) if skill else (plan.folder, "")


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
