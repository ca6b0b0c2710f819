"""`deps`: show, lock, build and remove the packages of skills."""

from apexbridge.cli.output import Output, sanitize
from apexbridge.cli.runtime_call import with_runtime
from apexbridge.environments.lookup import ECOSYSTEMS, SkillDependencies
from apexbridge.environments.needs import Package, Refusal, SkillNeeds
from apexbridge.environments.store import Environment
from apexbridge.errors import DependencyError, PermissionDeniedError
from apexbridge.runtime import Runtime
from apexbridge.runtime.dependency_service import BuildReport
from apexbridge.skills.model import Skill

_MIB = 1024 * 1024


def deps_show(out: Output, *, name: str) -> None:
    """Show a skill's packages; without a name, every environment."""
    if name:
        found = with_runtime(
            out,
            lambda runtime: runtime.dependencies.show(runtime.catalog.find(name), verifies=True),
        )
        out.finish(dependencies_to_json(found), lambda: print_dependencies(out, found))
        return

    async def environments(runtime: Runtime) -> list[Environment]:
        return runtime.dependencies.store.all()

    built = with_runtime(out, environments)
    out.finish([environment_to_json(one) for one in built], lambda: _print_environments(out, built))


def deps_lock(out: Output, *, name: str, upgrade: bool) -> None:
    """Resolve without building."""
    locks = with_runtime(
        out,
        lambda runtime: runtime.dependencies.lock(runtime.catalog.find(name), upgrades=upgrade),
    )
    data = [
        {
            "ecosystem": lock.ecosystem,
            "requirements": lock.requirements,
            "packages": lock.packages,
            "builds_sources": lock.builds_sources,
            "dropped": lock.dropped,
            "lock": lock.text,
        }
        for lock in locks.values()
    ]

    def render() -> None:
        for lock in locks.values():
            for package in lock.packages:
                out.line(sanitize(package))
            if lock.builds_sources:
                out.note(out.text("deps_sources"))
            if lock.dropped:
                out.note(out.text("deps_dropped", packages=", ".join(lock.dropped)))
        if not locks:
            out.line(out.text("deps_nothing", name=name))

    out.finish(data, render)


def deps_build(out: Output, *, name: str, upgrade: bool, yes: bool) -> None:
    """Show what will be installed, ask, and build."""

    async def build(runtime: Runtime) -> BuildReport | None:
        skill = runtime.catalog.find(name)
        found = await runtime.dependencies.show(skill)
        if not found.missing and not upgrade:
            return None
        print_needs(out, found.needs)
        if not yes and not out.confirm("deps_ask", name=skill.name):
            raise PermissionDeniedError(code="not_agreed")
        return await runtime.dependencies.build(skill, upgrades=upgrade)

    print_build(out, name, with_runtime(out, build))


def print_build(out: Output, name: str, report: BuildReport | None) -> None:
    """Finish a command that built packages."""
    if report is None:
        out.finish_line({"skill": name, "environments": []}, "deps_nothing", name=name)
        return
    data = {
        "skill": report.skill,
        "environments": [environment_to_json(one) for one in report.environments.values()],
        "dropped": report.dropped,
    }

    def render() -> None:
        for one in report.environments.values():
            count, size = len(one.packages), one.size // _MIB
            out.line(out.text("deps_built", name=report.skill, count=count, size=size))
        if report.dropped:
            out.note(out.text("deps_dropped", packages=", ".join(report.dropped)))

    out.finish(data, render)


def agrees_to_build(out: Output, needs: SkillNeeds, name: str, *, yes: bool) -> bool:
    """Ask whether packages may be built; `yes` agrees to declared ones, a guess is asked for."""
    certainties = {one.certainty for one in needs.packages} - {"optional"}
    if not certainties or out.config.settings.dependencies.build == "never":
        return False
    if yes:
        return certainties == {"declared"}
    return out.confirm("deps_ask", name=name)


async def build_installed(out: Output, runtime: Runtime, skill: Skill, *, agreed: bool) -> None:
    """Build what the person agreed to; the skill stays installed if that fails."""
    dependencies = runtime.dependencies
    if not (await dependencies.show(skill)).missing:
        return
    if not dependencies.is_allowed(agreed=agreed):
        out.note(out.text("deps_later", name=skill.name))
        return
    try:
        await dependencies.build(skill)
    except DependencyError as error:
        said = error.localized(out.language)
        out.note(out.text("deps_not_built", message=said.message))
        out.note(said.hint)


def deps_gc(out: Output, *, dry_run: bool) -> None:
    """Remove what nobody uses."""
    removed = with_runtime(
        out, lambda runtime: runtime.dependencies.collect_garbage(dry_run=dry_run)
    )
    size = sum(one.size for one in removed)
    data = {"removed": [one.key for one in removed], "bytes": size, "dry_run": dry_run}
    key = "deps_gc_would" if dry_run else "deps_gc"
    out.finish_line(data, key, count=len(removed), size=size // _MIB)


def print_needs(out: Output, needs: SkillNeeds, *, indent: int = 2) -> None:
    """Print the packages that a build would install, guesses apart, and what is not followed."""
    margin = " " * indent
    for certainty in ("declared", "guess", "optional"):
        names = [one.text for one in needs.packages if one.certainty == certainty]
        if names:
            out.line(f"{margin}{out.text(f'deps_{certainty}')}: {sanitize(', '.join(names))}")
    for refused in needs.refused:
        reason = out.text(f"deps_refused_{refused.reason}")
        out.line(f"{margin}{sanitize(refused.where)}: {sanitize(refused.text)} ({reason})")


def print_dependencies(out: Output, found: SkillDependencies) -> None:
    """Print packages, states and environments of a skill."""
    rows = [
        (one.text, one.ecosystem, out.text(f"deps_{one.certainty}"), one.where)
        for one in found.needs.packages
    ]
    if rows:
        out.table([out.text(h) for h in ("deps_package", "deps_kind", "deps_how", "where")], rows)
    print_needs(out, SkillNeeds(refused=found.needs.refused))
    for ecosystem in ECOSYSTEMS:
        state = found.states[ecosystem]
        if state != "none":
            text = out.text(f"deps_state_{state}", name=found.skill)
            out.line(f"{ecosystem}: {text}")
    for one in found.environments.values():
        out.line(f"  {one.key}  {len(one.packages)}  {one.size // _MIB} MiB")
    for key in found.changed:
        out.note(out.text("deps_changed", key=key))
    if not rows and not found.needs.refused:
        out.line(out.text("deps_nothing", name=found.skill))


def _print_environments(out: Output, built: list[Environment]) -> None:
    if not built:
        out.line(out.text("deps_no_environments"))
        return
    rows = [
        (one.key[:12], one.ecosystem, one.interpreter, f"{one.size // _MIB} MiB",
         ", ".join(one.packages))
        for one in built
    ]  # fmt: skip
    heads = ("deps_key", "deps_kind", "deps_interpreter", "field_size", "deps_package")
    out.table([out.text(head) for head in heads], rows)


def dependencies_to_json(found: SkillDependencies) -> dict[str, object]:
    """Serialize a skill's packages."""
    return {
        "skill": found.skill,
        "packages": [package_to_json(one) for one in found.needs.packages],
        "refused": [refusal_to_json(one) for one in found.needs.refused],
        "states": found.states,
        "missing": found.missing,
        "environments": [environment_to_json(one) for one in found.environments.values()],
        "changed": found.changed,
    }


def package_to_json(package: Package) -> dict[str, str]:
    """Serialize a needed package."""
    return {
        "ecosystem": package.ecosystem,
        "name": package.name,
        "requirement": package.text,
        "where": package.where,
        "certainty": package.certainty,
    }


def refusal_to_json(refused: Refusal) -> dict[str, str]:
    """Serialize a declaration that is not followed."""
    return {"text": refused.text, "where": refused.where, "reason": refused.reason}


def environment_to_json(one: Environment) -> dict[str, object]:
    """Serialize an environment."""
    return {
        "key": one.key,
        "path": one.path,
        "ecosystem": one.ecosystem,
        "interpreter": one.interpreter,
        "packages": one.packages,
        "bytes": one.size,
    }
