"""`add`, `rm`, `undo`, `edit-description`, `enable`, `disable` and `export`."""

from dataclasses import dataclass
from pathlib import Path

import anyio

from apexbridge.cli.commands.scan import print_findings
from apexbridge.cli.output import ExitCode, Output, sanitize
from apexbridge.errors import PermissionDeniedError, StorageError
from apexbridge.lifecycle.transactions import InstallResult
from apexbridge.lifecycle.unpack_and_validate import Inspection, inspect_skill
from apexbridge.paths import create_bytes
from apexbridge.runtime import Runtime
from apexbridge.runtime.policies import archive_limits


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallOptions:
    """What to install, and how readily."""

    path: Path
    renames: bool
    despite_findings: bool
    yes: bool


def add(out: Output, order: InstallOptions) -> None:
    """Show what a skill holds and what looks dangerous in it, ask, and install it."""
    if not order.path.exists():
        raise StorageError(code="path_missing", path=order.path)
    limits = archive_limits(out.loaded.settings.install)
    inspection = inspect_skill(order.path, renames=order.renames, limits=limits)
    print_inspection(out, inspection)
    if not order.yes and not out.asks("add_ask", name=inspection.skill.name):
        raise PermissionDeniedError(code="not_agreed")
    done = anyio.run(_install, out, order)
    print_change(out, done, "added")


async def _install(out: Output, order: InstallOptions) -> InstallResult:
    async with Runtime.open(out.loaded) as runtime:
        blocks_at = None if order.despite_findings else "policy"
        return await runtime.manager.install(order.path, renames=order.renames, blocks_at=blocks_at)


def print_inspection(out: Output, inspection: Inspection) -> None:
    """Everything a person should know of a skill before it may stay."""
    skill = inspection.skill
    out.line(sanitize(skill.name))
    out.line(f"  {sanitize(skill.description)}")
    scripts = (f"{s.path} ({s.runner})" if s.runner else s.path for s in inspection.scripts)
    facts = {
        "version": skill.manifest.version or "",
        "field_files": str(len(inspection.files)),
        "field_size": out.text("bytes", count=inspection.size),
        "trust_tools": ", ".join(inspection.tools),
        "trust_hooks": ", ".join(inspection.hooks),
        "inspect_commands": "; ".join(inspection.commands),
        "trust_scripts": ", ".join(scripts),
        "field_sha256": inspection.sha256,
    }
    for key, value in facts.items():
        if value:
            out.line(f"  {out.text(key)}: {sanitize(value)}")
    for problem in inspection.problems:
        out.problem_lines(problem)
    if inspection.report.findings:
        print_findings(out, skill.name, inspection.report)


def print_change(out: Output, done: InstallResult, word: str, **facts: str) -> None:
    """Say what became of a skill."""
    skill = done.skill

    def render() -> None:
        out.line(out.text(word, name=skill.name, **facts))
        if done.index_error is not None:
            message = done.index_error.localized(out.language).message
            out.note(out.text("search_by_words", message=message))

    data = {
        "name": skill.name,
        "description": skill.description,
        "path": skill.root,
        "sha256": skill.fingerprint.sha256 if skill.fingerprint else None,
        "changed": done.has_changed,
        "indexed": done.index_error is None,
        "problems": [out.problem(problem) for problem in done.problems],
        "findings": [f"{f.rule} {f.level} {f.path}:{f.line}" for f in done.findings],
    }
    out.finish(data, render)


def rm(out: Output, name: str, *, yes: bool) -> None:
    """Ask, and take a skill away."""

    async def remove() -> None:
        async with Runtime.open(out.loaded) as runtime:
            skill = runtime.catalog.get(name)
            if not yes and not out.asks("rm_ask", name=skill.name):
                raise PermissionDeniedError(code="not_agreed")
            gone = await runtime.manager.uninstall(skill.name)
            days = out.loaded.settings.skills.undo_days
            line = out.text("removed", name=gone.name, days=f"{days:g}")
            out.finish({"name": gone.name, "undo_days": days}, lambda: out.line(line))

    anyio.run(remove)


def undo(out: Output, name: str) -> None:
    """Bring a skill back."""

    async def bring_back() -> InstallResult:
        async with Runtime.open(out.loaded) as runtime:
            return await runtime.manager.restore(name)

    print_change(out, anyio.run(bring_back), "brought_back")


def change_description(out: Output, name: str, text: str, *, seen: str) -> None:
    """Change a description."""

    async def change() -> InstallResult:
        async with Runtime.open(out.loaded) as runtime:
            return await runtime.manager.edit_description(name, text, expected_sha256=seen)

    done = anyio.run(change)
    print_change(out, done, "edited" if done.has_changed else "edited_not")


def set_enabled(out: Output, name: str, *, is_on: bool) -> None:
    """Switch a skill on or off."""

    async def turn() -> bool:
        async with Runtime.open(out.loaded) as runtime:
            return await runtime.manager.set_enabled(name, enabled=is_on)

    has_changed = anyio.run(turn)
    line = out.text("enabled" if is_on else "disabled", name=name)
    out.finish({"name": name, "changed": has_changed, "enabled": is_on}, lambda: out.line(line))


def export(out: Output, name: str, output: Path | None) -> None:
    """Write a skill as a zip; nothing is replaced."""

    async def packed() -> bytes:
        async with Runtime.open(out.loaded) as runtime:
            return await runtime.manager.export(name)

    data = anyio.run(packed)
    path = output or Path(f"{name}.zip")
    create_bytes(path, data)
    line = out.text("exported", path=path, size=len(data))
    out.finish({"path": path, "bytes": len(data)}, lambda: out.line(line), ExitCode.OK)
