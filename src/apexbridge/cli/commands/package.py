"""`init`, `validate` and `pack`: author, check and package a skill."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from apexbridge import locales
from apexbridge.cli.commands.signing import read_secret_key, write_signature
from apexbridge.cli.output import ExitCode, Output, sanitize
from apexbridge.errors import ArchiveError, SkillInvalidError, StorageError
from apexbridge.lifecycle.zip import archive
from apexbridge.locales import Language
from apexbridge.paths import commit_dir, create_bytes, replace_bytes
from apexbridge.skills import names
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.editor import edit_description, quote
from apexbridge.skills.model import Problem
from apexbridge.skills.validator import PLACEHOLDER, Level, Package, open_folder
from apexbridge.skills.validator import validate as check

_SCRIPTS = {
    "python": (
        "scripts/main.py",
        '#!/usr/bin/env python3\n"""{title}."""\n\nimport sys\n\n\n'
        "def main(arguments: list[str]) -> int:\n"
        '    """Print what was asked for."""\n'
        '    print("{name}:", *arguments)\n    return 0\n\n\n'
        'if __name__ == "__main__":\n    sys.exit(main(sys.argv[1:]))\n',
    ),
    "bash": (
        "scripts/main.sh",
        '#!/usr/bin/env bash\n# {title}.\nset -euo pipefail\n\necho "{name}: $*"\n',
    ),
    "node": (
        "scripts/main.mjs",
        '#!/usr/bin/env node\n// {title}.\n\nconsole.log("{name}:", ...process.argv.slice(2));\n',
    ),
}


def init(
    out: Output, *, name: str, into: Path, description: str, script: str, dry_run: bool
) -> None:
    """Create the skill folder atomically, by rename."""
    name = names.normalise(name)
    broken = names.name_problems(name, SKILL_MD)
    if names.is_device(name) or names.is_of_vendor(name):
        broken.append(Problem(code="name_reserved", where=SKILL_MD, details={"name": name}))
    if broken:
        raise SkillInvalidError(name or "?", broken)
    target = into / name
    if target.exists() or target.is_symlink():
        raise StorageError(code="path_exists", path=target)
    made = _scaffold_files(name, script, out.language)
    contents = {path: (text.encode(), mode) for path, (text, mode) in made.items()}
    if description:
        data, mode = contents[SKILL_MD]
        contents[SKILL_MD] = (edit_description(data, description), mode)
    if not dry_run:
        _write(target, contents)
    verb = "would_create" if dry_run else "created"

    def render() -> None:
        for path in contents:
            out.line(out.text(verb, path=target / path))
        if not dry_run:
            out.line(out.text("next_steps", path=target))

    out.finish({"path": target, "files": list(contents), "dry_run": dry_run}, render)


def _scaffold_files(name: str, script: str, language: Language) -> dict[str, tuple[str, int]]:
    """Files of a new skill: text and permission bits by path."""
    title = name.replace("-", " ").capitalize()
    made = dict[str, tuple[str, int]]()
    run = ""
    if script in _SCRIPTS:
        path, source = _SCRIPTS[script]
        made[path] = (source.format(title=title, name=name), 0o755)
        run = locales.text("scaffold", "run_step", language, path=path)
    description = locales.text("scaffold", "description", language, placeholder=PLACEHOLDER)
    fields = {"name": name, "title": title, "description": quote(description), "script": run}
    text = locales.text("scaffold", "skill_md", language, **fields)
    return {"SKILL.md": (text, 0o644), **made}


def _write(target: Path, contents: dict[str, tuple[bytes, int]]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".apexbridge-", dir=target.parent) as place:
        built = Path(place, target.name)
        for path, (data, mode) in contents.items():
            (built / path).parent.mkdir(parents=True, exist_ok=True)
            create_bytes(built / path, data, mode=mode)
        commit_dir(built, target)


def validate(out: Output, *, paths: Sequence[Path], level: Level) -> None:
    """Validate every skill found at the paths."""
    reports = [
        (str(place), _problems(place, level)) for path in paths for place in _skills_at(path)
    ]
    failed = any(problem.severity == "error" for _, found in reports for problem in found)

    def render() -> None:
        for place, found in reports:
            errors = sum(problem.severity == "error" for problem in found)
            warnings = sum(problem.severity == "warning" for problem in found)
            key = "problems_found" if errors or warnings else "valid"
            out.line(out.text(key, name=place, errors=errors, warnings=warnings))
            for problem in found:
                out.print_problem(problem)

    data = [
        {
            "path": place,
            "ok": not any(problem.severity == "error" for problem in found),
            "problems": [out.problem_to_json(problem) for problem in found],
        }
        for place, found in reports
    ]
    out.finish(
        {"level": level, "skills": data}, render, ExitCode.INVALID if failed else ExitCode.OK
    )


def _skills_at(path: Path) -> Iterator[Path]:
    """The skill at a path, or the skills directly below a folder."""
    if not path.exists():
        raise StorageError(code="path_missing", path=path)
    if path.name.lower() == SKILL_MD.lower() and path.is_file():
        path = path.parent
    is_one = not path.is_dir() or _is_skill(path)
    inner = [] if is_one else sorted(filter(_is_skill, path.iterdir()))
    yield from inner or [path]


def _is_skill(path: Path) -> bool:
    """True for a folder with a SKILL.md; an unreadable one too, so that validation reports it."""
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


def pack(
    out: Output,
    *,
    path: Path,
    output: Path | None,
    with_evals: bool,
    sign: Path | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Validate, then pack; a skill with errors is refused."""
    if not path.is_dir():
        raise StorageError(code="path_missing", path=path)
    found = _problems(path, "compat")
    broken = [problem for problem in found if problem.severity == "error"]
    if broken:
        raise SkillInvalidError(sanitize(path), broken)
    name = path.resolve().name
    files = archive.files_to_pack(path, with_evals=with_evals)
    target = output or Path(f"{name}.zip")
    data = archive.pack_skill(path, name, with_evals=with_evals)
    secret = read_secret_key(sign) if sign else None
    if not dry_run:
        (replace_bytes if yes else create_bytes)(target, data)
        if secret is not None:
            write_signature(secret, data, target, overwrites=yes)
    key = "would_pack" if dry_run else "packed"

    def render() -> None:
        out.line(out.text(key, count=len(files), path=target, size=len(data)))
        for problem in found:
            out.print_problem(problem)

    report = {
        "path": target,
        "bytes": len(data),
        "files": [str(entry.path) for entry in files],
        "problems": [out.problem_to_json(problem) for problem in found],
        "dry_run": dry_run,
        "signed_by": secret.public.name if secret else None,
    }
    out.finish(report, render)
