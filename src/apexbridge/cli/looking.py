"""`ls` and `show`: which skills there are, and what one of them is."""

import contextlib
from collections.abc import Iterator, Sequence

import anyio

from apexbridge.catalog.markup import available_skills
from apexbridge.catalog.merge import Merged
from apexbridge.cli.output import Out, visible
from apexbridge.runtime import Runtime
from apexbridge.skills import tree
from apexbridge.skills.model import Problem, Skill


def ls(out: Out, *, origin: str, problems: bool, xml: bool) -> None:
    """List the skills, or what is wrong with them."""
    catalog = anyio.run(_catalog, out)
    skills = [skill for skill in catalog.skills if origin in ("", skill.provenance.origin)]

    def render() -> None:
        if xml:
            out.line(available_skills(skills))
        elif problems:
            _problem_list(out, catalog.problems)
        else:
            _table(out, skills, catalog.problems)

    data = {
        "skills": [_as_json(skill) for skill in skills],
        "shadowed": [_as_json(skill) for skill in catalog.shadowed],
        "problems": [out.problem(problem) for problem in catalog.problems],
    }
    out.finish(data, render)


async def _catalog(out: Out) -> Merged:
    async with Runtime.open(out.loaded) as runtime:
        return runtime.catalog


def _table(out: Out, skills: Sequence[Skill], problems: Sequence[Problem]) -> None:
    if not skills:
        out.line(out.word("no_skills"))
    else:
        heads = [out.word("name"), out.word("origin"), out.word("description")]
        rows = [(skill.name, skill.provenance.origin, skill.summary) for skill in skills]
        out.table(heads, rows)
        out.line(out.word("skill_count", count=len(skills)))
    if problems:
        out.line(out.word("problem_count", count=len(problems)))


def _problem_list(out: Out, problems: Sequence[Problem]) -> None:
    if not problems:
        out.line(out.word("no_problems"))
    for problem in problems:
        out.problem_lines(problem)


def _as_json(skill: Skill) -> dict[str, object]:
    return {
        "name": skill.name,
        "description": skill.description,
        "origin": skill.provenance.origin,
        "source": skill.provenance.source_id,
        "path": skill.root,
        "conditional": skill.is_conditional,
        "sha256": skill.fingerprint.sha256 if skill.fingerprint else None,
    }


def show(out: Out, name: str, *, body: bool) -> None:
    """Everything that is known of one skill."""
    skill, text, problems = anyio.run(_one, out, name, body)
    files = list(_files(skill))
    fields = skill.manifest.model_dump(by_alias=True, exclude_defaults=True)

    def render() -> None:
        _heading(out, skill)
        for key, value in fields.items():
            if key not in {"name", "description"}:
                out.line(f"  {visible(key)}: {visible(value)}")
        for entry in files:
            out.line(f"    {visible(entry.path)}  {entry.size}")
        for problem in problems:
            out.problem_lines(problem)
        if text is not None:
            out.line("\n" + "\n".join(visible(line) for line in text.splitlines()))

    data = {
        **_as_json(skill),
        "manifest": fields,
        "files": [{"path": e.path, "bytes": e.size, "executable": e.executable} for e in files],
        "problems": [out.problem(problem) for problem in problems],
        "body": text,
    }
    out.finish(data, render)


def _files(skill: Skill) -> Iterator[tree.Entry]:
    """What can be seen of the skill's files; a locked folder ends the list, not the command."""
    if skill.root is not None:
        with contextlib.suppress(OSError):
            yield from (entry for entry in tree.entries(skill.root) if entry.kind != "folder")


def _heading(out: Out, skill: Skill) -> None:
    out.line(f"{visible(skill.name)}")
    out.line(f"  {visible(skill.description)}")
    facts = {"field_origin": skill.provenance.origin, "field_folder": skill.root or "-"}
    if skill.is_conditional:
        facts["field_state"] = out.word("asleep", paths=", ".join(skill.manifest.paths))
    if skill.fingerprint:
        facts["field_files"] = str(skill.fingerprint.files)
        facts["field_size"] = out.word("bytes", count=skill.fingerprint.size)
        facts["field_sha256"] = skill.fingerprint.sha256
    for key, value in facts.items():
        out.line(f"  {out.word(key)}: {visible(value)}")


async def _one(out: Out, name: str, body: bool) -> tuple[Skill, str | None, list[Problem]]:
    async with Runtime.open(out.loaded) as runtime:
        skill = runtime.skill(name)
        text = (await runtime.content(skill)).body if body else None
        return skill, text, [p for p in runtime.problems_of(skill) if _is_about(p, skill)]


def _is_about(problem: Problem, skill: Skill) -> bool:
    """Problems are named by the skill's folder below its root, then the file and line."""
    folder = problem.where.partition("/SKILL.md")[0].partition("/skill.md")[0]
    return skill.root is not None and f"/{skill.root}".endswith(f"/{folder}")
