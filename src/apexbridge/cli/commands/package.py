"""`init`, `validate` and `pack`: what skill authors do."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from apexbridge.cli import scaffold
from apexbridge.cli.output import ExitCode, Output, sanitize
from apexbridge.errors import ArchiveError, SkillInvalidError, StorageError
from apexbridge.lifecycle.zip import archive
from apexbridge.paths import commit_dir, create_bytes, replace_bytes
from apexbridge.skills import names
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.editor import edit_description
from apexbridge.skills.model import Problem
from apexbridge.skills.validator import Level, Package, open_folder
from apexbridge.skills.validator import validate as check


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSkill:
    """What `init` was asked for."""

    name: str
    into: Path
    description: str
    script: str


def init(out: Output, request: NewSkill, *, dry_run: bool) -> None:
    """Make a new skill folder, whole or not at all."""
    name = names.normalise(request.name)
    broken = names.name_problems(name, SKILL_MD)
    if names.is_reserved(name):
        broken.append(Problem(code="name_reserved", where=SKILL_MD, details={"name": name}))
    if broken:
        raise SkillInvalidError(name or "?", broken)
    target = request.into / name
    if target.exists() or target.is_symlink():
        raise StorageError(code="path_exists", path=target)
    made = scaffold.files(name, request.script, out.language)
    contents = {path: (text.encode(), mode) for path, (text, mode) in made.items()}
    if request.description:
        data, mode = contents[SKILL_MD]
        contents[SKILL_MD] = (edit_description(data, request.description), mode)
    if not dry_run:
        _write(target, contents)
    verb = "would_make" if dry_run else "made"

    def render() -> None:
        for path in contents:
            out.line(out.text(verb, path=target / path))
        if not dry_run:
            out.line(out.text("next_steps", path=target))

    out.finish({"path": target, "files": list(contents), "dry_run": dry_run}, render)


def _write(target: Path, contents: dict[str, tuple[bytes, int]]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".apexbridge-", dir=target.parent) as place:
        built = Path(place, target.name)
        for path, (data, mode) in contents.items():
            (built / path).parent.mkdir(parents=True, exist_ok=True)
            create_bytes(built / path, data, mode=mode)
        commit_dir(built, target)


def validate(out: Output, paths: Sequence[Path], level: Level) -> None:
    """Check every skill that the paths lead to."""
    reports = [
        (str(place), _problems(place, level)) for path in paths for place in _skills_at(path)
    ]
    failed = any(problem.severity == "error" for _, found in reports for problem in found)

    def render() -> None:
        for place, found in reports:
            errors = sum(problem.severity == "error" for problem in found)
            key = "not_sound" if found else "sound"
            warnings = len(found) - errors
            out.line(out.text(key, name=place, errors=errors, warnings=warnings))
            for problem in found:
                out.problem_lines(problem)

    data = [
        {
            "path": place,
            "ok": not any(problem.severity == "error" for problem in found),
            "problems": [out.problem(problem) for problem in found],
        }
        for place, found in reports
    ]
    out.finish(
        {"level": level, "skills": data}, render, ExitCode.INVALID if failed else ExitCode.OK
    )


def _skills_at(path: Path) -> Iterator[Path]:
    """The skill itself; or, for a folder that is none but holds some, each of those."""
    if not path.exists():
        raise StorageError(code="path_missing", path=path)
    if path.name.lower() == SKILL_MD.lower() and path.is_file():
        path = path.parent
    is_one = not path.is_dir() or _is_skill(path)
    inner = [] if is_one else sorted(filter(_is_skill, path.iterdir()))
    yield from inner or [path]


def _is_skill(path: Path) -> bool:
    """A folder that cannot be looked into counts as one: checking it will say why."""
    try:
        return path.is_dir() and any(i.name.lower() == SKILL_MD.lower() for i in path.iterdir())
    except OSError:
        return True


def _problems(path: Path, level: Level) -> tuple[Problem, ...]:
    package = _open(path)
    return (package,) if isinstance(package, Problem) else check(package, level)


def _open(path: Path) -> Package | Problem:
    if path.is_dir():
        return open_folder(path)
    try:
        return archive.open_archive(path)
    except ArchiveError as error:
        return Problem(code=error.code, where=path.name, details=error.details)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackOptions:
    """What `pack` was asked for."""

    root: Path
    output: Path | None
    with_evals: bool
    dry_run: bool
    replace: bool


def pack(out: Output, order: PackOptions) -> None:
    """Validate, then pack; a skill with errors is not packed."""
    if not order.root.is_dir():
        raise StorageError(code="path_missing", path=order.root)
    found = _problems(order.root, "compat")
    broken = [problem for problem in found if problem.severity == "error"]
    if broken:
        raise SkillInvalidError(sanitize(order.root), broken)
    name = order.root.resolve().name
    files = archive.files_to_pack(order.root, with_evals=order.with_evals)
    target = order.output or Path(f"{name}.zip")
    data = archive.pack_skill(order.root, name, with_evals=order.with_evals)
    if not order.dry_run:
        (replace_bytes if order.replace else create_bytes)(target, data)
    key = "would_pack" if order.dry_run else "packed"

    def render() -> None:
        out.line(out.text(key, count=len(files), path=target, size=len(data)))
        for problem in found:
            out.problem_lines(problem)

    report = {
        "path": target,
        "bytes": len(data),
        "files": [str(entry.path) for entry in files],
        "problems": [out.problem(problem) for problem in found],
        "dry_run": order.dry_run,
    }
    out.finish(report, render)
