"""`ls` and `show`: list the catalog, and show one skill with its precedence."""

import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import anyio

from apexbridge.catalog.prompt_formats import available_skills_xml
from apexbridge.catalog.snapshot import Snapshot, matches_text
from apexbridge.cli.commands.signing import format_signature
from apexbridge.cli.output import Output, sanitize
from apexbridge.lifecycle.signature_check import SignatureCheck
from apexbridge.lifecycle.source_records import SourceRecord, display_source
from apexbridge.runtime import Runtime
from apexbridge.skills import tree
from apexbridge.skills.model import Problem, Skill

_NOT_CALLABLE = frozenset({"asleep", "users_only"})
"""States in which the model cannot invoke a skill; an unapproved one it can."""


def ls(
    out: Output,
    *,
    origin: str | None,
    every: bool,
    text: str,
    long: bool,
    limit: int,
    after: str,
    problems: bool,
    xml: bool,
    budget: bool,
    window: int,
    request: str,
) -> None:
    """Print the skills, their problems, the prompt block, a page of details, or the budget."""
    # Imported late: the plain list needs neither, and is the command used most.
    if budget:
        from apexbridge.cli.commands.listing import ls_budget

        ls_budget(out, window=window, request=request)
    elif long:
        from apexbridge.cli.commands.listing import ls_long

        ls_long(out, text=text, origin=origin or "", after=after, limit=limit)
    else:
        query = SkillQuery(origin=origin or "", text=text, every=every, problems=problems, xml=xml)
        _list_skills(out, query)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillQuery:
    """Filter and format of `ls`."""

    origin: str
    text: str
    """Case-insensitive substring of the name or description."""
    every: bool
    problems: bool
    xml: bool

    def shows(self, skill: Skill) -> bool:
        """True for a skill that matches the filter."""
        return self.origin in ("", skill.provenance.origin) and matches_text(skill, self.text)


def _list_skills(out: Output, look: SkillQuery) -> None:
    catalog = anyio.run(_load_snapshot, out)
    skills = [s for s in catalog.skills if look.shows(s)]
    hidden = [s for s in catalog.shadowed if look.shows(s)]
    off = [s for s in catalog.disabled if look.shows(s)]

    def render() -> None:
        if look.xml:
            out.line("\n".join(map(sanitize, available_skills_xml(skills).splitlines())))
        elif look.problems:
            _print_problems(out, catalog.problems)
        else:
            _print_table(
                out, _rows(out, skills, hidden if look.every else [], off if look.every else [])
            )
            _print_totals(out, catalog, skills, hidden)

    data = {
        "skills": [_as_json(skill) for skill in skills],
        "shadowed": [_as_json(skill, is_shadowed=True) for skill in hidden],
        "disabled": [_as_json(skill) for skill in off],
        "problems": [out.problem_to_json(problem) for problem in catalog.problems],
    }
    out.finish(data, render)


async def _load_snapshot(out: Output) -> Snapshot:
    async with Runtime.open(out.config) as runtime:
        return runtime.catalog.snapshot


def skill_states(skill: Skill, *, is_shadowed: bool = False) -> list[str]:
    """States that prevent model invocation, or scripts, hooks and tool grants."""
    said = {
        "shadowed": is_shadowed,
        "asleep": skill.is_conditional,
        "untrusted": not skill.is_trusted,
        "users_only": skill.manifest.disable_model_invocation,
    }
    return [state for state, holds in said.items() if holds]


def _rows(
    out: Output, skills: Sequence[Skill], hidden: Sequence[Skill], off: Sequence[Skill]
) -> Iterator[tuple[str, str, str, str]]:
    groups = {"": skills, "shadowed": hidden, "disabled": off}
    for kind, group in groups.items():
        for skill in group:
            held = skill_states(skill, is_shadowed=kind == "shadowed")
            held = ["disabled", *held] if kind == "disabled" else held
            said = ", ".join(out.text(f"state_{state}") for state in held)
            yield skill.name, skill.provenance.origin, said, skill.summary


def _print_table(out: Output, rows: Iterable[tuple[str, str, str, str]]) -> None:
    lines = list(rows)
    if not lines:
        out.line(out.text("no_skills"))
        return
    out.table([out.text(key) for key in ("name", "origin", "state", "description")], lines)


def _print_totals(
    out: Output, catalog: Snapshot, skills: Sequence[Skill], hidden: Sequence[Skill]
) -> None:
    counts = {
        "skill_count": len(skills),
        "shadowed_count": len(hidden),
        "disabled_count": len(catalog.disabled),
        "untrusted_count": sum(not skill.is_trusted for skill in skills),
        "problem_count": len(catalog.problems),
    }
    for word, count in counts.items():
        if count:
            out.line(out.text(word, count=count))


def _print_problems(out: Output, problems: Sequence[Problem]) -> None:
    if not problems:
        out.line(out.text("no_problems"))
    for problem in problems:
        out.print_problem(problem)


def _as_json(skill: Skill, *, is_shadowed: bool = False) -> dict[str, object]:
    return {
        "name": skill.name,
        "description": skill.description,
        "origin": skill.provenance.origin,
        "source": skill.provenance.source_id,
        "path": skill.root,
        "conditional": skill.is_conditional,
        "trusted": skill.is_trusted,
        "states": skill_states(skill, is_shadowed=is_shadowed),
        "sha256": skill.fingerprint.sha256 if skill.fingerprint else None,
    }


def show(out: Output, *, name: str, body: bool, why: bool) -> None:
    """Print manifest, files, problems and precedence of a skill."""
    found = anyio.run(_load_details, out, name, body)
    skill, files = found.skill, list(_list_files(found.skill))
    fields = skill.manifest.model_dump(by_alias=True, exclude_defaults=True)

    def render() -> None:
        _print_heading(out, skill, found.record)
        for key, value in fields.items():
            if key not in {"name", "description"}:
                out.line(f"  {sanitize(key)}: {sanitize(_as_text(value))}")
        for entry in files:
            out.line(f"    {sanitize(entry.path)}  {entry.size}")
        if found.signature.status != "absent":
            said = format_signature(out, found.signature)
            out.line(f"  {out.text('field_signature')}: {sanitize(said)}")
        for problem in found.problems:
            out.print_problem(problem)
        if why:
            _print_precedence(out, found)
        if found.body is not None:
            out.line("\n" + "\n".join(sanitize(line) for line in found.body.splitlines()))

    data = {
        **_as_json(skill),
        "installed_from": found.record.model_dump() if found.record else None,
        "manifest": fields,
        "files": [{"path": e.path, "bytes": e.size, "executable": e.executable} for e in files],
        "problems": [out.problem_to_json(problem) for problem in found.problems],
        "body": found.body,
        "signature": found.signature.model_dump(),
        "why": {
            "wins_over": [_as_json(other, is_shadowed=True) for other in found.rivals],
            "precedence": list(out.config.settings.skills.precedence),
            "model_may_call": _NOT_CALLABLE.isdisjoint(skill_states(skill)),
        },
    }
    out.finish(data, render)


def _as_text(value: object) -> str:
    """Format the value of a field: a list by its entries, a mapping as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    is_list = isinstance(value, list | tuple) and text.startswith('["')
    return ", ".join(map(str, json.loads(text))) if is_list else text


def _print_precedence(out: Output, found: "SkillDetails") -> None:
    skill = found.skill
    source = skill.provenance.source_id
    out.line(out.text("why_wins" if found.rivals else "why_alone", source=source))
    for rival in found.rivals:
        is_same = rival.provenance.origin == skill.provenance.origin
        reason = out.text("why_nearer" if is_same else "why_stronger", **_origins(skill, rival))
        out.line(f"  {sanitize(rival.provenance.source_id)}: {reason}")
    for state in skill_states(skill):
        paths = ", ".join(skill.manifest.paths)
        out.line(f"  {out.text(f'why_{state}', paths=paths, name=skill.name)}")
    if not skill_states(skill):
        out.line(f"  {out.text('why_callable')}")


def _origins(winner: Skill, rival: Skill) -> dict[str, str]:
    return {"winner": winner.provenance.origin, "rival": rival.provenance.origin}


def _list_files(skill: Skill) -> Iterator[tree.TreeEntry]:
    """List the skill's files; an unreadable folder ends the list, not the command."""
    if skill.root is not None:
        is_ours = not skill.provenance.needs_trust
        with contextlib.suppress(OSError):
            found = tree.entries(skill.root, is_ours=is_ours)
            yield from (entry for entry in found if entry.kind != "folder")


def _print_heading(out: Output, skill: Skill, record: SourceRecord | None) -> None:
    out.line(f"{sanitize(skill.name)}")
    out.line(f"  {sanitize(skill.description)}")
    facts = {"field_origin": skill.provenance.origin, "field_folder": skill.root or "-"}
    if skill.is_conditional:
        facts["field_state"] = out.text("asleep", paths=", ".join(skill.manifest.paths))
    if not skill.is_trusted:
        facts["field_trust"] = out.text("state_untrusted")
    if skill.fingerprint:
        facts["field_files"] = str(skill.fingerprint.files)
        facts["field_size"] = out.text("bytes", count=skill.fingerprint.size)
        facts["field_sha256"] = skill.fingerprint.sha256
    if record is not None:
        at = f"@{record.ref}" if record.ref else ""
        revision = f" ({record.revision})" if record.revision else ""
        path = f" {record.path}" if record.path else ""
        facts["field_source"] = f"{display_source(record.source)}{at}{path}{revision}"
    for key, value in facts.items():
        out.line(f"  {out.text(key)}: {sanitize(value)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillDetails:
    """A skill with its body (if requested), its problems and the skills it shadows."""

    skill: Skill
    body: str | None
    problems: tuple[Problem, ...]
    rivals: tuple[Skill, ...]
    signature: SignatureCheck
    record: SourceRecord | None
    """Where it was installed from, if that is known."""


async def _load_details(out: Output, name: str, body: bool) -> SkillDetails:
    async with Runtime.open(out.config) as runtime:
        skill = runtime.catalog.find(name)
        text = (await runtime.catalog.content(skill)).body if body else None
        folded = skill.name.casefold()
        hidden = runtime.catalog.snapshot.shadowed
        is_own = skill.provenance.writable
        record = runtime.manager.sources.get(skill.name) if is_own else None
        return SkillDetails(
            skill=skill,
            body=text,
            problems=tuple(p for p in runtime.problems_of(skill) if _is_about(p, skill)),
            rivals=tuple(other for other in hidden if other.name.casefold() == folded),
            signature=runtime.manager.signature_of(skill),
            record=record,
        )


def _is_about(problem: Problem, skill: Skill) -> bool:
    """Match a problem to a skill: `where` starts with the skill's folder below its root."""
    folder = problem.where.partition("/SKILL.md")[0].partition("/skill.md")[0]
    return skill.root is not None and f"/{skill.root}".endswith(f"/{folder}")
