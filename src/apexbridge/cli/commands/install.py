"""`rm`, `undo`, `edit-description`, `enable`, `disable` and `export`."""

from pathlib import Path

from apexbridge.cli.capabilities import print_capabilities
from apexbridge.cli.commands.deps import print_needs
from apexbridge.cli.commands.lock import lock_choice, write_lock
from apexbridge.cli.commands.scan import print_findings
from apexbridge.cli.commands.signing import format_signature
from apexbridge.cli.output import Output, sanitize
from apexbridge.cli.runtime_call import with_runtime
from apexbridge.errors import PermissionDeniedError
from apexbridge.lifecycle.inspection import Inspection
from apexbridge.lifecycle.transactions import InstallResult
from apexbridge.lifecycle.trash import TrashedSkill
from apexbridge.paths import create_bytes
from apexbridge.runtime import Runtime


def rm(out: Output, *, name: str, lock: Path | None, no_lock: bool, yes: bool) -> None:
    """Ask for confirmation, and uninstall a skill."""
    locked = lock_choice(out, lock, no_lock=no_lock)

    async def remove(runtime: Runtime) -> TrashedSkill:
        skill = runtime.catalog.find(name)
        if not yes and not out.confirm("rm_ask", name=skill.name):
            raise PermissionDeniedError(code="not_agreed")
        gone = await runtime.manager.uninstall(skill.name)
        await write_lock(runtime, runtime.installer(), locked, [gone.name], adds=False)
        return gone

    gone, days = with_runtime(out, remove), out.config.settings.skills.undo_days
    data = {"name": gone.name, "undo_days": days}
    out.finish_line(data, "removed", name=gone.name, days=f"{days:g}")


def undo(out: Output, *, name: str) -> None:
    """Restore an uninstalled skill."""
    done = with_runtime(out, lambda runtime: runtime.manager.restore(name))
    print_change(out, done, "restored")


def edit_description(out: Output, *, name: str, text: str, if_match: str, dry_run: bool) -> None:
    """Edit the description, or preview its effect on the ranks."""
    if dry_run:
        # Imported late: the evaluation package is needed for a preview only.
        from apexbridge.cli.commands.evals import eval_preview

        eval_preview(out, skill=name, description=text)
        return
    done = with_runtime(
        out, lambda runtime: runtime.manager.edit_description(name, text, expected_sha256=if_match)
    )
    print_change(out, done, "edited" if done.has_changed else "edit_unchanged")


def enable(out: Output, *, name: str) -> None:
    """Enable a skill."""
    _set_enabled(out, name, is_on=True)


def disable(out: Output, *, name: str) -> None:
    """Disable a skill."""
    _set_enabled(out, name, is_on=False)


def export(out: Output, *, name: str, output: Path | None) -> None:
    """Write the skill as a zip."""
    data = with_runtime(out, lambda runtime: runtime.manager.export(name))
    path = output or Path(f"{name}.zip")
    create_bytes(path, data)
    out.finish_line({"path": path, "bytes": len(data)}, "exported", path=path, size=len(data))


def print_inspection(out: Output, inspection: Inspection) -> None:
    """Print everything relevant to the decision to install a skill."""
    skill = inspection.skill
    out.line(sanitize(skill.name))
    out.line(f"  {sanitize(skill.description)}")
    scripts = (f"{s.path} ({s.runner})" if s.runner else s.path for s in inspection.scripts)
    _print_facts(
        out,
        version=skill.manifest.version or "",
        field_files=str(len(inspection.files)),
        field_size=out.text("bytes", count=inspection.size),
    )
    print_capabilities(out, skill, commands=inspection.commands, scripts=scripts)
    _print_facts(
        out,
        field_sha256=inspection.sha256,
        field_signature=format_signature(out, inspection.signature),
    )
    if inspection.needs.packages or inspection.needs.refused:
        out.line(f"  {out.text('deps_needs')}:")
        print_needs(out, inspection.needs, indent=4)
    for problem in inspection.problems:
        out.print_problem(problem)
    if inspection.report.findings:
        print_findings(out, skill.name, inspection.report)


def _print_facts(out: Output, **facts: str) -> None:
    for key, value in facts.items():
        if value:
            out.line(f"  {out.text(key)}: {sanitize(value)}")


def print_change(out: Output, done: InstallResult, word: str, **facts: str) -> None:
    """Finish a command that changed a skill, with its result."""
    skill = done.skill

    def render() -> None:
        for problem in done.problems:
            out.print_problem(problem)
        out.line(out.text(word, name=skill.name, **facts))
        if done.index_error is not None:
            message = done.index_error.localized(out.language).message
            out.note(out.text("keyword_search_only", message=message))

    out.finish(change_to_json(out, done), render)


def change_to_json(out: Output, done: InstallResult) -> dict[str, object]:
    """Serialize the result of a change of a skill."""
    skill = done.skill
    return {
        "name": skill.name,
        "description": skill.description,
        "path": skill.root,
        "sha256": skill.fingerprint.sha256 if skill.fingerprint else None,
        "changed": done.has_changed,
        "indexed": done.index_error is None,
        "signature": done.signature.model_dump(),
        "problems": [out.problem_to_json(problem) for problem in done.problems],
        "findings": [f"{f.rule} {f.level} {f.path}:{f.line}" for f in done.findings],
    }


def _set_enabled(out: Output, name: str, *, is_on: bool) -> None:
    has_changed = with_runtime(
        out, lambda runtime: runtime.manager.set_enabled(name, enabled=is_on)
    )
    data = {"name": name, "changed": has_changed, "enabled": is_on}
    out.finish_line(data, "enabled" if is_on else "disabled", name=name)
