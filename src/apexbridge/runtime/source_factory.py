"""Source factory: create the skill sources that settings and project layout define."""

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import anyio

from apexbridge import bundled
from apexbridge.runtime.policies import archive_limits
from apexbridge.settings import PROJECT_FILES, Config
from apexbridge.skills.model import Origin, Problem
from apexbridge.sources.base import SkillSource
from apexbridge.sources.bundled import BundledSource
from apexbridge.sources.directory_scanner import (
    NestedRoot,
    ScanLimits,
    is_folder,
    published_folders,
    resolve_leniently,
)
from apexbridge.sources.folders import TRUSTED_ORIGINS, FolderSource
from apexbridge.sources.legacy_commands import LegacySource
from apexbridge.sources.plugins.finder import find_plugins
from apexbridge.sources.plugins.source import PluginSource
from apexbridge.sources.scan_cache import ScanCache

_MAX_INSTALLED_DIRS = 100_000
"""Bound for installed skills, where `max_folders` would hide what a user installed on purpose."""
CLAUDE_SKILLS_DIR = ".claude/skills"
LEGACY_COMMANDS_DIR = ".claude/commands"
"""Slash commands of older clients, below home and in each project directory."""
WORKFLOWS_DIR = ".claude/workflows"
"""Workflow commands: Markdown files whose steps the model follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRoot:
    """A directory to scan, its origin, and whether its skills need trust."""

    origin: Origin
    path: Path
    needs_trust: bool
    home: Path | None = None


class SourceChanges:
    """Ids of sources that have notified of changes, for example MCP servers."""

    def __init__(self) -> None:
        self._pending: set[str] = set()
        self._notified = anyio.Event()

    def notify(self, source_id: str) -> None:
        """Add a source to scan again."""
        self._pending.add(source_id)
        self._notified.set()

    async def wait(self, seconds: float) -> None:
        """Wait for a notification, or for the timeout."""
        with anyio.move_on_after(seconds):
            await self._notified.wait()
        self._notified = anyio.Event()

    def take(self, extra: Collection[str], *, except_for: Collection[str]) -> set[str]:
        """Remove and return the pending ids and `extra`, except for those being scanned now."""
        taken = self._pending.union(extra).difference(except_for)
        self._pending -= taken
        return taken


@dataclass(frozen=True, slots=True)
class SourceFactory:
    """Create the sources of one project."""

    config: Config
    cache: ScanCache
    changes: SourceChanges

    def create_all(self) -> tuple[list[SkillSource], list[Problem]]:
        """Create all sources; directories that may not be scanned are returned as problems."""
        roots, problems = self._roots()
        sources: list[SkillSource] = [self._folder(root) for root in _deduplicate(roots)]
        plugins, unusable = self._plugins()
        sources += [BundledSource(self.config.data / "bundled"), *plugins, *self._mcp()]
        sources += [*self._remote(), *self._legacy()]
        return sources, [*problems, *unusable]

    def _folder(self, root: SourceRoot) -> FolderSource:
        limits = self._limits()
        if root.origin is Origin.INSTALLED:
            # A symlink out of the data directory leads to what this program must not change.
            follow = self.config.settings.skills.allow_external_paths
            limits = replace(self._limits(_MAX_INSTALLED_DIRS), follow_external_symlinks=follow)
        elif root.origin is Origin.ADDITIONAL:
            # It may be a clone of a published repository, with skills in `.curated` or `.github`.
            limits = replace(limits, hidden_catalogs=True)
        return FolderSource(
            root.path,
            root.origin,
            limits,
            cache=self.cache,
            needs_trust=root.needs_trust,
            home=root.home,
        )

    def create_nested(self, root: NestedRoot) -> FolderSource:
        """Create the source of a skill directory that was discovered deeper in the project."""
        return self._folder(
            SourceRoot(origin=Origin.PROJECT, path=root.path, needs_trust=True, home=root.home)
        )

    def _plugins(self) -> tuple[list[PluginSource], list[Problem]]:
        chosen = self.config.settings.plugins
        find = partial(
            find_plugins,
            data=self.config.data,
            config=chosen.config,
            disabled=chosen.disabled,
            limits=self._limits(),
        )
        builtin, unknown = find(
            [builtin_plugins_dir() / name for name in chosen.builtin], is_builtin=True
        )
        paths = [_resolve_path(path, self.config.project, self.config) for path in chosen.paths]
        others, problems = find(paths)
        return [*builtin, *others], [*unknown, *problems]

    def _legacy(self) -> Iterator[LegacySource]:
        """Create the sources of single-file commands: the user's and the project's."""
        homes = [(self.config.home, False), *((f, True) for f in project_dirs(self.config))]
        for place in (LEGACY_COMMANDS_DIR, WORKFLOWS_DIR):
            for folder, needs_trust in homes:
                yield LegacySource(folder / place, self._limits(), needs_trust=needs_trust)

    def _mcp(self) -> Iterator[SkillSource]:
        servers = self.config.settings.mcp.servers
        if not servers:
            return
        from apexbridge.sources.mcp.source import McpSource, ServerAddress

        for name, server in servers.items():
            address = ServerAddress(
                command=server.command,
                args=server.args,
                env={key: value.get_secret_value() for key, value in server.env.items()},
                url=server.url,
                headers={key: value.get_secret_value() for key, value in server.headers.items()},
                seconds=server.timeout_seconds,
            )
            yield McpSource(name, address, changed=self.changes.notify)

    def _remote(self) -> Sequence[SkillSource]:
        chosen = self.config.settings.remote
        if not (chosen.skills or chosen.indexes):
            return ()
        from apexbridge.lifecycle.zip.contents import read_skill_archive
        from apexbridge.sources.remote.download_cache import PinStore
        from apexbridge.sources.remote.http_client import FetchLimits
        from apexbridge.sources.remote.source import RemoteLocations, remote_sources

        limits = FetchLimits.from_cidr(
            seconds=chosen.timeout_seconds,
            max_bytes=chosen.max_kib * 1024,
            archive_bytes=int(chosen.archive_mb * 1_000_000),
            allow_networks=chosen.allow_networks,
        )
        places = RemoteLocations(skills=chosen.skills, indexes=chosen.indexes)
        unpack = partial(read_skill_archive, limits=archive_limits(self.config.settings.install))
        pins = PinStore(pins_dir(self.config))
        return remote_sources(places, limits, pins, read_archive=unpack)

    @staticmethod
    def _add_published(roots: list[SourceRoot], path: Path) -> Iterator[Problem]:
        """Add the other folders of a repository of which `path/skills` is searched.

        Yields a problem for each folder with skills that is not searched.
        """
        given = roots[-1]
        if path == given.path:
            return
        folders, unsearched = published_folders(path)
        roots += (replace(given, path=folder) for folder in folders)
        for name in unsearched:
            yield Problem.warning("folder_not_searched", str(path / name), path=path / name)

    def _skill_places(self, folder: Path) -> list[SourceRoot]:
        """List the skill folders of another project; like the project's own they need trust."""
        places = self.config.settings.skills.project_paths
        return [
            SourceRoot(origin=Origin.ADDITIONAL, path=folder / place, needs_trust=True, home=folder)
            for place in places
        ]

    def _limits(self, min_folders: int = 0) -> ScanLimits:
        chosen = self.config.settings.skills
        return ScanLimits(
            max_depth=chosen.max_depth, max_folders=max(min_folders, chosen.max_folders)
        )

    def _roots(self) -> tuple[list[SourceRoot], list[Problem]]:
        config, chosen = self.config, self.config.settings.skills
        managed = chosen.managed_path
        # The folder itself, and the place in it where other clients look.
        places = (managed, f"{managed}/{CLAUDE_SKILLS_DIR}") if managed else ()
        written = [(Origin.MANAGED, path) for path in places]
        written += [(Origin.USER, path) for path in chosen.user_paths]
        # Relative to home, never to the project: a cloned repository could bring such a directory.
        own = [(origin, _resolve_path(path, config.home, config)) for origin, path in written]
        roots = [_user_root(origin, path) for origin, path in own]
        roots += [
            SourceRoot(origin=Origin.PROJECT, path=folder / path, needs_trust=True, home=folder)
            for folder in project_dirs(config)
            for path in chosen.project_paths
        ]
        roots.append(_user_root(Origin.INSTALLED, config.data / "skills"))
        outside = list[Problem]()
        for folder in config.additional_dirs:
            outside += [] if is_folder(folder) else [_missing_dir_problem(folder)]
            roots += self._skill_places(folder)
        by_project = config.origins["skills.paths"] in PROJECT_FILES
        for written in chosen.paths:
            folder = _resolve_path(written, config.project, config)
            path = _inner_skills_dir(folder)
            is_inside = resolve_leniently(path).is_relative_to(config.project)
            # A symlink of a cloned repository may lead anywhere: it needs trust by its name.
            is_named_inside = Path(os.path.normpath(path)).is_relative_to(config.project)
            if is_inside or chosen.allow_external_paths:
                roots.append(
                    SourceRoot(
                        origin=Origin.ADDITIONAL,
                        path=path,
                        needs_trust=is_inside or is_named_inside or by_project,
                    )
                )
                # A project that is named as a folder of skills has them where projects have them.
                found = [roots[-1]]
                outside += self._add_published(found, folder)
                roots += (root for root in self._skill_places(folder) if is_folder(root.path))
                roots += found[1:]
            else:
                outside.append(_external_path_problem(path))
        return roots, outside


def _missing_dir_problem(path: Path) -> Problem:
    return Problem.warning("path_missing", str(path), path=path)


def builtin_plugins_dir() -> Path:
    """Return the directory of the plugins that come with this package."""
    return Path(bundled.__file__).parent / "plugins"


def pins_dir(config: Config) -> Path:
    """Return the directory of pinned content hashes of remote skills."""
    return config.data / "remote"


def _user_root(origin: Origin, path: Path) -> SourceRoot:
    return SourceRoot(origin=origin, path=path, needs_trust=origin not in TRUSTED_ORIGINS)


def _resolve_path(written: str, base: Path, config: Config) -> Path:
    """Expand `~` to the configured home; a relative path starts at `base`."""
    if written == "~" or written.startswith("~/"):
        return config.home / written[2:]
    return base / written


def project_dirs(config: Config) -> Iterator[Path]:
    """Yield the project directory and its parents up to the repository root or home."""
    home = resolve_leniently(config.home)
    for folder in (config.project, *config.project.parents):
        if folder in {home, config.home}:
            return
        yield folder
        if (folder / ".git").exists():
            return


def _inner_skills_dir(path: Path) -> Path:
    """Return `path/skills` where that exists, unless the path itself has that name."""
    inner = path / "skills"
    return inner if path.name != "skills" and is_folder(inner) else path


def _external_path_problem(path: Path) -> Problem:
    return Problem(
        code="path_external", where=str(path), severity="warning", details={"path": path}
    )


def _deduplicate(roots: list[SourceRoot]) -> Iterator[SourceRoot]:
    """Yield each real directory once, for its strongest origin.

    A user's directory stays trusted even if a project's symlink points to it. Missing directories
    are kept: they may be created while the watcher runs.
    """
    real = [resolve_leniently(root.path) for root in roots]
    own = {path for path, root in zip(real, roots, strict=True) if not root.needs_trust}
    seen = set[Path]()
    for path, root in zip(real, roots, strict=True):
        if path not in seen and not (root.needs_trust and path in own):
            seen.add(path)
            yield root
