"""Where skills are looked for: what settings and place point to."""

from collections.abc import Iterator
from pathlib import Path

from apexbridge.settings import Loaded, SkillSettings
from apexbridge.skills.model import Origin, Problem
from apexbridge.sources.bundled import bundled_source
from apexbridge.sources.folders import FolderSource, ScanLimits


def find_sources(loaded: Loaded) -> tuple[list[FolderSource], list[Problem]]:
    """The folders that settings and place point to; those that may not be scanned are problems."""
    chosen = loaded.settings.skills
    limits = ScanLimits(max_depth=chosen.max_depth, max_folders=chosen.max_folders)
    places = [(Origin.MANAGED, Path(chosen.managed_path))] if chosen.managed_path else []
    places += [(Origin.USER, _place(path, loaded.home, loaded)) for path in chosen.user_paths]
    places += [(Origin.PROJECT, path) for path in _project_places(loaded, chosen)]
    places.append((Origin.INSTALLED, loaded.data / "skills"))
    outside = list[Problem]()
    for written in chosen.paths:
        path = _inner_skills(_place(written, loaded.project, loaded))
        if chosen.allow_external_paths or path.resolve().is_relative_to(loaded.project):
            places.append((Origin.ADDITIONAL, path))
        else:
            outside.append(_external(path))
    sources = [FolderSource(path, origin, limits) for origin, path in _once(places)]
    return [*sources, bundled_source()], outside


def _place(written: str, base: Path, loaded: Loaded) -> Path:
    """`~` is home, anything relative starts at `base`."""
    if written == "~" or written.startswith("~/"):
        return loaded.home / written[2:]
    return base / written


def _project_places(loaded: Loaded, chosen: SkillSettings) -> Iterator[Path]:
    """From the project folder up to the repository's root, or to home: the nearest first."""
    for folder in (loaded.project, *loaded.project.parents):
        if folder == loaded.home:
            return
        yield from (folder / path for path in chosen.project_paths)
        if (folder / ".git").exists():
            return


def _inner_skills(path: Path) -> Path:
    """A root that is not called `skills` but has one inside means the inner one."""
    inner = path / "skills"
    return inner if path.name != "skills" and inner.is_dir() else path


def _external(path: Path) -> Problem:
    return Problem(
        code="path_external", where=str(path), severity="warning", details={"path": path}
    )


def _once(places: list[tuple[Origin, Path]]) -> Iterator[tuple[Origin, Path]]:
    """The same real folder is scanned once, for its strongest origin; missing ones are skipped."""
    seen = set[Path]()
    for origin, path in places:
        real = path.resolve()
        if real not in seen and path.is_dir():
            seen.add(real)
            yield origin, path
