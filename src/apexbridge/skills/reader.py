"""From a folder to a skill: forgiving, and every liberty taken is a problem beside it."""

import os
import re
import stat
from dataclasses import dataclass, replace
from pathlib import Path

from apexbridge.skills import document, frontmatter, names, tree
from apexbridge.skills.document import SKILL_MD, Document
from apexbridge.skills.interpret import Declared, interpret
from apexbridge.skills.model import Fingerprint, Problem, Provenance, Skill

MAX_SKILL_MD_BYTES = 1024 * 1024
MAX_DESCRIPTION = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A skill, or the reason why there is none; and what the author should mend."""

    skill: Skill | None = None
    problems: tuple[Problem, ...] = ()
    data: bytes = b""
    """The bytes of SKILL.md, where a skill folder was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillFile:
    """The bytes of SKILL.md; a name in other letter case is a problem, not an obstacle."""

    data: bytes
    problems: tuple[Problem, ...] = ()


def read_skill(root: Path, provenance: Provenance) -> Reading:
    """Read one skill folder, its fingerprint included. Never raises for what lies in it."""
    file = read_skill_file(root)
    if isinstance(file, Problem):
        return Reading(problems=(file,))
    reading = parse_skill(file.data, folder=root.name, provenance=provenance)
    problems = (*file.problems, *reading.problems)
    if reading.skill is None:
        return Reading(problems=problems)
    # Our marker is no part of a skill that we keep; in a stranger's it is a file like any other.
    mark = tree.fingerprint(root, is_ours=not provenance.needs_trust)
    if isinstance(mark, Fingerprint):
        skill = replace(reading.skill, root=root, fingerprint=mark)
        return Reading(skill=skill, problems=problems, data=file.data)
    unmarked = replace(mark, severity="warning")
    return Reading(skill=replace(reading.skill, root=root), problems=(*problems, unmarked))


def read_skill_file(root: Path) -> SkillFile | Problem:
    """Read SKILL.md itself: a regular file of sane size, whatever the case of its name."""
    try:
        present = [path.name for path in root.iterdir()]
    except OSError as error:
        return _unreadable("folder_unreadable", root.name, error)
    variants = sorted(name for name in present if name.lower() == SKILL_MD.lower())
    if not variants:
        return Problem(code="skill_md_missing", where=root.name)
    name = SKILL_MD if SKILL_MD in variants else variants[0]
    data = _read_regular(root / name)
    if isinstance(data, Problem) or name == SKILL_MD:
        return data if isinstance(data, Problem) else SkillFile(data=data)
    odd = Problem(code="skill_md_case", where=name, severity="warning", details={"name": name})
    return SkillFile(data=data, problems=(odd,))


def _read_regular(path: Path) -> bytes | Problem:
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            kind = tree.kind_of(status.st_mode)
            return Problem(code="skill_md_not_a_file", where=path.name, details={"kind": kind})
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(MAX_SKILL_MD_BYTES + 1)
    except OSError as error:
        return _unreadable("skill_md_unreadable", path.name, error)
    if len(data) > MAX_SKILL_MD_BYTES:
        details = {"limit": MAX_SKILL_MD_BYTES}
        return Problem(code="skill_md_too_large", where=path.name, details=details)
    return data


def _unreadable(code: str, where: str, error: OSError) -> Problem:
    return Problem(code=code, where=where, details={"detail": error.strerror or str(error)})


Opened = tuple[Document, frontmatter.Frontmatter]
"""A SKILL.md cut into its parts, with the values of its frontmatter."""
_readable = set[int]()
"""Hashes of frontmatters that could be read; who scans a library and then indexes it asks twice."""
_MOST_READABLE = 65_536


def open_document(data: bytes) -> Opened | Problem:
    """Decode, cut and read; the first obstacle ends it."""
    cut = _cut(data)
    if isinstance(cut, Problem):
        return cut
    values = frontmatter.read(cut.frontmatter)
    if isinstance(values, Problem):
        return values
    if len(_readable) >= _MOST_READABLE:
        _readable.clear()
    _readable.add(hash(cut.frontmatter))
    return cut, values


def open_body(data: bytes) -> str | Problem:
    """What stands below the frontmatter, if that can be read; what could be is not read again."""
    cut = _cut(data)
    if isinstance(cut, Problem):
        return cut
    if hash(cut.frontmatter) in _readable:
        return cut.body
    opened = open_document(data)
    return opened if isinstance(opened, Problem) else opened[0].body


def _cut(data: bytes) -> Document | Problem:
    text = document.decode(data)
    return text if isinstance(text, Problem) else document.split(text)


def parse_skill(data: bytes, *, folder: str, provenance: Provenance) -> Reading:
    """Make a skill of the bytes of a SKILL.md that stands in `folder`. Pure."""
    opened = open_document(data)
    if isinstance(opened, Problem):
        return Reading(problems=(opened,))
    cut, values = opened
    declared = interpret(values)
    name, about_name = _name(declared, folder)
    if not name:
        return Reading(problems=(*declared.problems, *about_name))
    description, about_description = _description(declared, cut.body, name)
    skill = Skill(
        name=name,
        description=description,
        manifest=declared.manifest,
        provenance=provenance,
        tools=declared.tools,
        hooks=declared.hooks,
        is_trusted=not provenance.needs_trust,
    )
    return Reading(skill=skill, problems=(*declared.problems, *about_name, *about_description))


def _name(declared: Declared, folder: str) -> tuple[str, list[Problem]]:
    """The declared name if it is sound, else the folder's, else what can be made of either."""
    written = names.normalise(declared.manifest.name or "")
    home = names.normalise(folder)
    sound = [name for name in (written, home) if name and not names.name_problems(name, SKILL_MD)]
    used = sound[0] if sound else names.slug(written) or names.slug(home)
    if not used:
        return "", names.name_problems(written or home, SKILL_MD)
    problems = list[Problem]()
    if written and used != written:
        problems.append(_warning("name_replaced", name=written, used=used))
    elif used != home:
        problems.append(_warning("name_mismatch", name=used, folder=folder))
    return used, problems


def _description(declared: Declared, body: str, name: str) -> tuple[str, list[Problem]]:
    written = (declared.manifest.description or "").strip()
    if not written:
        derived = first_words(body) or name
        return derived, [_warning("description_derived", text=derived[:80])]
    if len(written) > MAX_DESCRIPTION:
        details = {"length": len(written), "limit": MAX_DESCRIPTION}
        return written, [_warning("description_too_long", **details)]
    return written, []


def first_words(body: str) -> str:
    """The first heading or paragraph of a text, as one line."""
    for block in re.split(r"\n\s*\n", body.replace("\r\n", "\n"), maxsplit=20):
        line = " ".join(block.split()) if not block.startswith("#") else block.split("\n", 1)[0]
        words = line.strip("# \t")
        if words and not words.startswith(("<!--", "```", "---")):
            return words[:MAX_DESCRIPTION]
    return ""


def _warning(code: str, **details: object) -> Problem:
    return Problem(code=code, where=SKILL_MD, severity="warning", details=details)
