"""What a skill holds and could do, told before it may stay."""

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from apexbridge.lifecycle.archive import DEFAULT_LIMITS, ArchiveLimits
from apexbridge.lifecycle.changes import body_of, skill_md
from apexbridge.lifecycle.intake import take_in
from apexbridge.lifecycle.plan import PlannedFile
from apexbridge.lifecycle.vet import vet
from apexbridge.skills import tree
from apexbridge.skills.inline import inline_commands
from apexbridge.skills.model import Problem, Skill
from apexbridge.skills.runners import FIRST_LINE_BYTES, runner_of
from apexbridge.vetting.report import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A file that can be run, and what with; an empty name if nothing says."""

    path: str
    runner: str
    executable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """Everything a person should know of a skill before it may stay."""

    skill: Skill
    files: tuple[PlannedFile, ...]
    size: int
    sha256: str
    tools: tuple[str, ...]
    """What it asks to be allowed."""
    hooks: tuple[str, ...]
    """The events it wants commands run at."""
    commands: tuple[str, ...]
    """What is run when its text is read."""
    scripts: tuple[Script, ...]
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
        intake = take_in(path, Path(place), renames=renames, limits=limits)
        skill, root = intake.skill, intake.root
        files = tuple(
            PlannedFile(path=entry.path, size=entry.size, executable=entry.executable)
            for entry in tree.entries(root)
            if entry.kind == "file"
        )
        body = body_of(skill_md(root), skill.name)
        return Inspection(
            skill=skill,
            files=files,
            size=sum(file.size for file in files),
            sha256=skill.fingerprint.sha256 if skill.fingerprint else "",
            tools=tuple(map(str, skill.tools)),
            hooks=tuple(skill.manifest.hooks),
            commands=tuple(found.command for found in inline_commands(body)),
            scripts=tuple(_scripts(root, files)),
            problems=intake.problems,
            report=vet(root, others),
        )


def _scripts(root: Path, files: tuple[PlannedFile, ...]) -> Iterator[Script]:
    for file in files:
        with (root / file.path).open("rb") as opened:
            runner, *_ = runner_of(opened.readline(FIRST_LINE_BYTES), file.path.suffix)
        if runner or file.executable:
            yield Script(path=str(file.path), runner=runner, executable=file.executable)
