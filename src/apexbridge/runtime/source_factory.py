"""Where skills are looked for: what settings and place point to."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from apexbridge.settings import PROJECT_FILES, Config, SkillSettings
from apexbridge.skills.model import Origin, Problem
from apexbridge.sources.base import SkillSource
from apexbridge.sources.bundled import bundled_source
from apexbridge.sources.directory_scanner import (
    NestedRoot,
    ScanLimits,
    is_folder,
    resolve_leniently,
)
from apexbridge.sources.folders import TRUSTED_ORIGINS, FolderSource
from apexbridge.sources.legacy_commands import LegacySource
from apexbridge.sources.plugins.finder import find_plugins
from apexbridge.sources.plugins.source import PluginSource
from apexbridge.sources.scan_cache import ScanCache

_MAX_INSTALLED_DIRS = 100_000
"""Folders of our own are not cut short: whoever installed so many wants them."""


LEGACY_COMMANDS_DIR = ".claude/commands"
"""Where older clients keep commands, below home and in each folder of a project."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRoot:
    """A folder to look into, and on whose behalf."""

    origin: Origin
    path: Path
    needs_trust: bool
    home: Path | None = None


@dataclass(frozen=True, slots=True)
class SourceFactory:
    """Makes the sources of one project."""

    config: Config
    memory: ScanCache
    changed: Callable[[str], None]
    """Takes the id of a source that says it has other skills now."""

    def sources(self) -> tuple[list[SkillSource], list[Problem]]:
        """All sources; folders that may not be scanned are problems."""
        places, problems = self._folders()
        sources: list[SkillSource] = [self.folder(place) for place in _deduplicate(places)]
        plugins, unusable = self._plugins()
        sources += [bundled_source(self.config.data / "bundled"), *plugins, *self._mcp()]
        sources += [*self._remote(), *self._legacy()]
        return sources, [*problems, *unusable]

    def folder(self, place: SourceRoot) -> FolderSource:
        """The source of one folder."""
        limits = self._limits()
        if place.origin is Origin.INSTALLED:
            # What lies outside is not ours to mark, to change or to vouch for.
            follow = self.config.settings.skills.allow_external_paths
            limits = replace(self._limits(_MAX_INSTALLED_DIRS), follow_external_symlinks=follow)
        return FolderSource(
            place.path,
            place.origin,
            limits,
            cache=self.memory,
            needs_trust=place.needs_trust,
            home=place.home,
        )

    def nested(self, root: NestedRoot) -> FolderSource:
        """The source of a skill folder that was found deeper in the project."""
        return self.folder(
            SourceRoot(origin=Origin.PROJECT, path=root.path, needs_trust=True, home=root.home)
        )

    def _plugins(self) -> tuple[list[PluginSource], list[Problem]]:
        chosen = self.config.settings.plugins
        return find_plugins(
            [_resolve_path(path, self.config.project, self.config) for path in chosen.paths],
            data=self.config.data,
            config=chosen.config,
            disabled=chosen.disabled,
            limits=self._limits(),
        )

    def _legacy(self) -> Iterator[LegacySource]:
        """Commands of older clients: the user's, and those of each folder of the project."""
        yield LegacySource(
            self.config.home / LEGACY_COMMANDS_DIR, self._limits(), needs_trust=False
        )
        for folder in _project_dirs(self.config):
            yield LegacySource(folder / LEGACY_COMMANDS_DIR, self._limits())

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
            yield McpSource(name, address, changed=self.changed)

    def _remote(self) -> Sequence[SkillSource]:
        chosen = self.config.settings.remote
        if not (chosen.skills or chosen.indexes):
            return ()
        from apexbridge.sources.remote.download_cache import PinStore
        from apexbridge.sources.remote.http_client import FetchLimits
        from apexbridge.sources.remote.source import RemoteLocations, remote_sources

        limits = FetchLimits.from_cidr(
            seconds=chosen.timeout_seconds,
            max_bytes=chosen.max_kib * 1024,
            allow_networks=chosen.allow_networks,
        )
        places = RemoteLocations(skills=chosen.skills, indexes=chosen.indexes)
        return remote_sources(places, limits, PinStore(pins_dir(self.config)))

    def _limits(self, room: int = 0) -> ScanLimits:
        chosen = self.config.settings.skills
        return ScanLimits(max_depth=chosen.max_depth, max_folders=max(room, chosen.max_folders))

    def _folders(self) -> tuple[list[SourceRoot], list[Problem]]:
        config, chosen = self.config, self.config.settings.skills
        written = [(Origin.MANAGED, chosen.managed_path)] if chosen.managed_path else []
        written += [(Origin.USER, path) for path in chosen.user_paths]
        # Never counted from the project: a clone could bring a folder of that name.
        own = [(origin, _resolve_path(path, config.home, config)) for origin, path in written]
        places = [_user_root(origin, path) for origin, path in own]
        places += _project_roots(config, chosen)
        places.append(_user_root(Origin.INSTALLED, config.data / "skills"))
        outside = list[Problem]()
        by_project = config.origins["skills.paths"] in PROJECT_FILES
        for written in chosen.paths:
            path = _inner_skills_dir(_resolve_path(written, config.project, config))
            is_inside = resolve_leniently(path).is_relative_to(config.project)
            # A link that a clone brings may lead anywhere, and is nobody's word but its own.
            is_named_inside = Path(os.path.normpath(path)).is_relative_to(config.project)
            if is_inside or chosen.allow_external_paths:
                places.append(
                    SourceRoot(
                        origin=Origin.ADDITIONAL,
                        path=path,
                        needs_trust=is_inside or is_named_inside or by_project,
                    )
                )
            else:
                outside.append(_external_path_problem(path))
        return places, outside


def pins_dir(config: Config) -> Path:
    """Where it is remembered what remote addresses gave."""
    return config.data / "remote"


def _user_root(origin: Origin, path: Path) -> SourceRoot:
    return SourceRoot(origin=origin, path=path, needs_trust=origin not in TRUSTED_ORIGINS)


def _resolve_path(written: str, base: Path, config: Config) -> Path:
    """`~` is home, anything relative starts at `base`."""
    if written == "~" or written.startswith("~/"):
        return config.home / written[2:]
    return base / written


def _project_roots(config: Config, chosen: SkillSettings) -> Iterator[SourceRoot]:
    for folder in _project_dirs(config):
        for path in chosen.project_paths:
            yield SourceRoot(
                origin=Origin.PROJECT, path=folder / path, needs_trust=True, home=folder
            )


def _project_dirs(config: Config) -> Iterator[Path]:
    """From the project folder up to the repository's root, or to home: the nearest first."""
    home = resolve_leniently(config.home)
    for folder in (config.project, *config.project.parents):
        if folder in {home, config.home}:
            return
        yield folder
        if (folder / ".git").exists():
            return


def _inner_skills_dir(path: Path) -> Path:
    """A root that is not called `skills` but has one inside means the inner one."""
    inner = path / "skills"
    return inner if path.name != "skills" and is_folder(inner) else path


def _external_path_problem(path: Path) -> Problem:
    return Problem(
        code="path_external", where=str(path), severity="warning", details={"path": path}
    )


def _deduplicate(places: list[SourceRoot]) -> Iterator[SourceRoot]:
    """The same real folder is scanned once, for its strongest origin.

    What is the user's own stays so, even if a project points to it. Folders that are not there
    yet are kept: skills may come to lie in them.
    """
    real = [resolve_leniently(place.path) for place in places]
    own = {path for path, place in zip(real, places, strict=True) if not place.needs_trust}
    seen = set[Path]()
    for path, place in zip(real, places, strict=True):
        if path not in seen and not (place.needs_trust and path in own):
            seen.add(path)
            yield place
