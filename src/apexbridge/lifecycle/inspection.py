"""Inspection of a skill before an install: contents, capabilities and findings."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from anyio import to_thread

from apexbridge.environments.declarations import skill_needs
from apexbridge.environments.needs import SkillNeeds
from apexbridge.lifecycle.index_updates import parse_body, read_skill_md
from apexbridge.lifecycle.scan_results import ScanGate
from apexbridge.lifecycle.signature_check import UNSIGNED, SignatureCheck
from apexbridge.lifecycle.source_records import UNKNOWN_ORIGIN, InstallOrigin
from apexbridge.lifecycle.transactions import InstallPolicy, enter_in_thread
from apexbridge.lifecycle.unpack_and_validate import Renames, StagedSkill, stage_skill
from apexbridge.lifecycle.zip.limits import ArchiveFile
from apexbridge.regular_files import open_regular
from apexbridge.scanner.report import Report
from apexbridge.skills import tree
from apexbridge.skills.document import inline_commands
from apexbridge.skills.model import Problem, Skill
from apexbridge.skills.shebang import SHEBANG_BYTES, script_interpreter


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptFile:
    """An executable file, and its interpreter if known."""

    path: str
    runner: str
    executable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """Contents, capabilities and findings of a skill, for review before an install."""

    skill: Skill
    files: tuple[ArchiveFile, ...]
    size: int
    sha256: str
    tools: tuple[str, ...]
    """Tools it requests."""
    hooks: tuple[str, ...]
    """Events that run its commands."""
    commands: tuple[str, ...]
    """Inline commands that run when its body is loaded."""
    scripts: tuple[ScriptFile, ...]
    needs: SkillNeeds
    """Packages of its scripts."""
    problems: tuple[Problem, ...]
    report: Report
    signature: SignatureCheck = UNSIGNED


async def inspect_skill(
    path: Path,
    scans: ScanGate,
    policy: InstallPolicy,
    *,
    renames: Renames = False,
    origin: InstallOrigin = UNKNOWN_ORIGIN,
) -> Inspection:
    """Dry run of an install, in a temporary folder.

    Raises:
        ArchiveError: If the archive is unsafe, malformed or not a skill.
        SkillInvalidError: If a validation rule fails.
    """
    temporary = TemporaryDirectory(prefix="apexbridge-", ignore_cleanup_errors=True)
    async with enter_in_thread(temporary) as folder:
        stage = partial(
            stage_skill,
            path,
            Path(folder),
            renames=renames,
            limits=policy.limits,
            signatures=policy.signatures,
            origin=origin,
        )
        staged = await to_thread.run_sync(stage)
        report = await scans.scan(staged.skill, staged.root)
        return await to_thread.run_sync(_describe, staged, report)


def _describe(staged: StagedSkill, report: Report) -> Inspection:
    """Describe a staged skill and its scan report. Blocking."""
    skill, root = staged.skill, staged.root
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
        needs=skill_needs(root),
        problems=staged.problems,
        report=report,
        signature=staged.signature,
    )


def _find_scripts(root: Path, files: tuple[ArchiveFile, ...]) -> Iterator[ScriptFile]:
    for file in files:
        with open_regular(root / file.path) as opened:
            runner, *_ = script_interpreter(opened.readline(SHEBANG_BYTES), file.path.suffix)
        if runner or file.executable:
            yield ScriptFile(path=str(file.path), runner=runner, executable=file.executable)
