"""`add`, `rm`, `undo`, `edit-description`, `enable`, `disable` and `export`."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import anyio

from apexbridge.cli.output import Exit, Out, visible
from apexbridge.cli.vetting import say_findings
from apexbridge.errors import PermissionDeniedError, StorageError
from apexbridge.lifecycle.intake import Intake, take_in
from apexbridge.lifecycle.manager import Done
from apexbridge.lifecycle.vet import vet
from apexbridge.paths import create_bytes
from apexbridge.runtime import Runtime
from apexbridge.skills import tree


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOrder:
    """What to install, and how readily."""

    path: Path
    renames: bool
    despite_findings: bool
    yes: bool


def add(out: Out, order: AddOrder) -> None:
    """Show what a skill holds and what looks dangerous in it, ask, and install it."""
    if not order.path.exists():
        raise StorageError(code="path_missing", path=order.path)
    with tempfile.TemporaryDirectory(prefix="apexbridge-") as place:
        intake = take_in(order.path, Path(place), renames=order.renames)
        _say_intake(out, intake)
        report = vet(intake.root)
        if report.findings:
            say_findings(out, intake.skill.name, report)
    if not order.yes and not out.asks("add_ask", name=intake.skill.name):
        raise PermissionDeniedError(code="not_agreed")
    done = anyio.run(_install, out, order)
    _finish(out, done, "added")


async def _install(out: Out, order: AddOrder) -> Done:
    async with Runtime.open(out.loaded) as runtime:
        blocks_at = None if order.despite_findings else "block"
        return await runtime.manager.install(order.path, renames=order.renames, blocks_at=blocks_at)


def _say_intake(out: Out, intake: Intake) -> None:
    """Everything a person should know of a skill before it may stay."""
    skill = intake.skill
    out.line(visible(skill.name))
    out.line(f"  {visible(skill.description)}")
    files = [entry for entry in tree.entries(intake.root) if entry.kind == "file"]
    facts = {
        "field_files": str(len(files)),
        "field_size": out.word("bytes", count=sum(entry.size for entry in files)),
        "trust_tools": ", ".join(skill.manifest.allowed_tools),
        "trust_hooks": ", ".join(skill.manifest.hooks),
        "trust_scripts": ", ".join(str(entry.path) for entry in files if entry.executable),
        "field_sha256": skill.fingerprint.sha256 if skill.fingerprint else "",
    }
    for key, value in facts.items():
        if value:
            out.line(f"  {out.word(key)}: {visible(value)}")
    for problem in intake.problems:
        out.problem_lines(problem)


def _finish(out: Out, done: Done, word: str) -> None:
    skill = done.skill

    def render() -> None:
        out.line(out.word(word, name=skill.name))
        if done.not_indexed is not None:
            message = done.not_indexed.said(out.language).message
            out.note(out.word("search_by_words", message=message))

    data = {
        "name": skill.name,
        "description": skill.description,
        "path": skill.root,
        "sha256": skill.fingerprint.sha256 if skill.fingerprint else None,
        "changed": done.has_changed,
        "indexed": done.not_indexed is None,
        "problems": [out.problem(problem) for problem in done.problems],
        "findings": [f"{f.rule} {f.level} {f.path}:{f.line}" for f in done.findings],
    }
    out.finish(data, render)


def rm(out: Out, name: str, *, yes: bool) -> None:
    """Ask, and take a skill away."""

    async def remove() -> None:
        async with Runtime.open(out.loaded) as runtime:
            skill = runtime.catalog.get(name)
            if not yes and not out.asks("rm_ask", name=skill.name):
                raise PermissionDeniedError(code="not_agreed")
            gone = await runtime.manager.uninstall(skill.name)
            days = out.loaded.settings.skills.undo_days
            line = out.word("removed", name=gone.name, days=f"{days:g}")
            out.finish({"name": gone.name, "undo_days": days}, lambda: out.line(line))

    anyio.run(remove)


def undo(out: Out, name: str) -> None:
    """Bring a skill back."""

    async def bring_back() -> Done:
        async with Runtime.open(out.loaded) as runtime:
            return await runtime.manager.undo(name)

    _finish(out, anyio.run(bring_back), "brought_back")


def edit(out: Out, name: str, text: str, *, seen: str) -> None:
    """Change a description."""

    async def change() -> Done:
        async with Runtime.open(out.loaded) as runtime:
            return await runtime.manager.edit_description(name, text, seen=seen)

    done = anyio.run(change)
    _finish(out, done, "edited" if done.has_changed else "edited_not")


def switch(out: Out, name: str, *, is_on: bool) -> None:
    """Switch a skill on or off."""

    async def turn() -> bool:
        async with Runtime.open(out.loaded) as runtime:
            return await runtime.manager.switch(name, is_on=is_on)

    has_changed = anyio.run(turn)
    line = out.word("enabled" if is_on else "disabled", name=name)
    out.finish({"name": name, "changed": has_changed, "enabled": is_on}, lambda: out.line(line))


def export(out: Out, name: str, output: Path | None) -> None:
    """Write a skill as a zip; nothing is replaced."""

    async def packed() -> bytes:
        async with Runtime.open(out.loaded) as runtime:
            return await runtime.manager.export(name)

    data = anyio.run(packed)
    path = output or Path(f"{name}.zip")
    create_bytes(path, data)
    line = out.word("exported", path=path, size=len(data))
    out.finish({"path": path, "bytes": len(data)}, lambda: out.line(line), Exit.OK)
