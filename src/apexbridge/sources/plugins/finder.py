"""Find plugins on disk, directly or through a marketplace.json.

Manifests of Claude Code and of the Agent Plugins specification are read, those of other clients
where there is neither. A folder without any manifest is a plugin by its folders.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from apexbridge.errors import UnsafePathError
from apexbridge.paths import safe_join
from apexbridge.regular_files import read_regular
from apexbridge.skills import tree
from apexbridge.skills.model import Problem, Severity
from apexbridge.sources.base import name_part
from apexbridge.sources.directory_scanner import is_folder, resolve_leniently
from apexbridge.sources.folders import DEFAULT_LIMITS, ScanLimits
from apexbridge.sources.plugins.agent_plugin import (
    AGENT_PLUGIN_JSON,
    AgentPluginManifest,
    is_agent_plugin,
    parse_agent_plugin,
)
from apexbridge.sources.plugins.commands import COMMANDS_FOLDER, command_paths
from apexbridge.sources.plugins.manifest import (
    MAX_BYTES,
    Marketplace,
    MarketplaceEntry,
    PluginManifest,
    manifest_problem,
    parse_marketplace,
    parse_plugin,
)
from apexbridge.sources.plugins.marketplace_source import local_path, remote_address
from apexbridge.sources.plugins.source import Plugin, PluginSource, has_skill_md

PLUGIN_FOLDER = ".claude-plugin"
PLUGIN_JSON = f"{PLUGIN_FOLDER}/plugin.json"
MARKETPLACE_JSON = f"{PLUGIN_FOLDER}/marketplace.json"
_MANIFESTS = (
    PLUGIN_JSON,
    AGENT_PLUGIN_JSON,
    ".plugin/plugin.json",
    ".github/plugin/plugin.json",
    ".codex-plugin/plugin.json",
    ".cursor-plugin/plugin.json",
)
"""Manifests of one plugin for several clients; the first is read."""
_MARKETPLACES = (
    MARKETPLACE_JSON,
    ".agents/plugins/marketplace.json",
    ".github/plugin/marketplace.json",
    ".plugin/marketplace.json",
    ".cursor-plugin/marketplace.json",
)
_COMPONENTS = ("skills", "commands", "agents", "hooks")
"""Folders that make a folder without a manifest a plugin."""
_MAX_NAMED = 5


def find_plugins(
    paths: Sequence[Path],
    *,
    data: Path,
    config: Mapping[str, Mapping[str, str]],
    disabled: Collection[str],
    limits: ScanLimits = DEFAULT_LIMITS,
    is_builtin: bool = False,
) -> tuple[list[PluginSource], list[Problem]]:
    """Find every plugin below the paths, directly or through a marketplace.

    `data` is the parent of the plugins' data folders, `config` their user settings by name. Of two
    plugins with one name the first wins. An unusable plugin is a problem. Built-in plugins come
    with the package, and need no approval.
    """
    search = _PluginSearch(limits=limits)
    for path in paths:
        search.search_path(path)
    settings = {_key(name): values for name, values in config.items()}
    left_out = set(map(_key, disabled))
    sources = [
        PluginSource(
            Plugin(
                name=found.name,
                root=found.root,
                skill_folders=found.skill_folders,
                commands=found.commands,
                data=data / "plugins" / found.name,
                config=settings.get(key, {}),
                secrets=found.secrets,
                is_builtin=is_builtin,
                is_declared=found.is_declared,
            ),
            # The specification has skills directly below `skills`; what is deeper is reported.
            replace(
                limits,
                max_depth=1 if found.is_flat else limits.max_depth,
                hidden_catalogs=True,
            ),
        )
        for key, found in search.found.items()
        if key not in left_out
    ]
    return sources, search.problems


@dataclass(frozen=True, slots=True, kw_only=True)
class _FoundPlugin:
    name: str
    root: Path
    skill_folders: tuple[Path, ...]
    commands: tuple[Path, ...]
    secrets: frozenset[str]
    is_flat: bool = False
    is_declared: bool = True


class _ManifestFile(NamedTuple):
    """Contents of a manifest, and where it is."""

    where: str
    data: bytes


@dataclass(slots=True, kw_only=True)
class _PluginSearch:
    """One search through all paths; the first plugin of a name wins."""

    limits: ScanLimits
    found: dict[str, _FoundPlugin] = field(default_factory=dict[str, _FoundPlugin])
    problems: list[Problem] = field(default_factory=list[Problem])

    def search_path(self, path: Path) -> None:
        """Add the plugin at this path, and all that a marketplace at this path lists."""
        root = resolve_leniently(path)
        if not is_folder(root):
            self._report("path_missing", str(path), path=path)
            return
        count = len(self.problems)
        marketplace = self._read_first(root, _MARKETPLACES)
        if marketplace is not None:
            self._add_listed(root, marketplace)
        # Beside a marketplace the manifests of other clients bundle what it lists already.
        own = self._read_manifest(root, _MANIFESTS if marketplace is None else (PLUGIN_JSON,))
        if own is not None:
            # A marketplace that lists itself already describes this folder.
            if not any(found.root == root for found in self.found.values()):
                self._add(root, own, None)
        elif marketplace is None and len(self.problems) == count:
            if _has_components(root):
                self._add(root, None, None)
            else:
                self._report("plugin_missing", str(root), path=root)

    def _add_listed(self, root: Path, file: "_ManifestFile") -> None:
        where = file.where
        marketplace, problems = parse_marketplace(file.data, where)
        self.problems += problems
        if marketplace is None:
            return
        limit = self.limits.max_folders
        if len(marketplace.plugins) > limit:
            self._report("folder_limit", where, "warning", limit=limit)
        elsewhere = list[str]()
        for entry in marketplace.plugins[:limit]:
            place = _entry_folder(root, marketplace, entry)
            if place is None and (address := remote_address(entry.source)):
                elsewhere.append(f"{entry.name[:100]} ({address})")
            elif place is None:
                details = {"name": entry.name, "source": str(entry.source)[:200]}
                self._report("plugin_source_unsupported", where, "warning", **details)
            elif not is_folder(place):
                self._report("path_missing", where, "warning", path=place)
            else:
                self._add_entry(place, entry, root)
        if elsewhere:
            more = f" (+{len(elsewhere) - _MAX_NAMED})" if len(elsewhere) > _MAX_NAMED else ""
            names = ", ".join(elsewhere[:_MAX_NAMED]) + more
            self._report("plugin_elsewhere", where, "warning", count=len(elsewhere), names=names)

    def _add_entry(self, root: Path, entry: MarketplaceEntry, marketplace: Path) -> None:
        count = len(self.problems)
        file = self._read_manifest(root)
        is_described = not entry.strict or entry.skill_folders or _has_components(root)
        if file is not None or (is_described and len(self.problems) == count):
            self._add(root, file, entry, marketplace)
        elif len(self.problems) == count:  # no problem was reported: there is no manifest
            self._report("plugin_manifest_missing", str(root), name=entry.name or root.name)

    def _add(
        self,
        root: Path,
        file: "_ManifestFile | None",
        entry: MarketplaceEntry | None,
        marketplace: Path | None = None,
    ) -> None:
        where = file.where if file else str(root / PLUGIN_JSON)
        manifest = (
            self._parse(root, file) if file else entry or PluginManifest(name=name_part(root.name))
        )
        if manifest is None:
            return
        name = self._name(manifest.name, entry.name if entry else "", root)
        listed = entry.skill_folders if entry and file is not None else ()
        written = (*manifest.skill_folders, *listed)
        is_flat = isinstance(manifest, AgentPluginManifest)
        folders = list(self._skill_folders(root, written, marketplace, may_be_root=not is_flat))
        if isinstance(manifest, AgentPluginManifest):
            folders += self._shared_skills(root, manifest, marketplace)
        found = _FoundPlugin(
            name=name,
            root=root,
            skill_folders=tuple(folders),
            commands=tuple(self._commands(root, manifest, entry, marketplace)),
            is_flat=is_flat,
            is_declared=bool(file or entry),
            secrets=manifest.secrets | (entry.secrets if entry else frozenset[str]()),
        )
        first = self.found.setdefault(_key(name), found)
        if first.root != root:
            details = {"name": name, "path": root, "winner": first.root}
            self._report("plugin_shadowed", where, "warning", **details)

    def _parse(self, root: Path, file: "_ManifestFile") -> PluginManifest | None:
        if not is_agent_plugin(file.data):
            manifest, problems = parse_plugin(file.data, file.where)
            self.problems += problems
            return manifest
        manifest, problems = parse_agent_plugin(file.data, file.where)
        self.problems += problems
        # Settings that Claude Code's manifest declares as secret stay secret.
        other = self._read(root, PLUGIN_JSON) if manifest is not None else None
        claude = parse_plugin(other, file.where)[0] if other is not None else None
        if manifest is None or claude is None:
            return manifest
        return manifest.model_copy(update={"user_config": claude.user_config})

    def _shared_skills(
        self, root: Path, manifest: AgentPluginManifest, marketplace: Path | None
    ) -> Iterator[Path]:
        """Yield the skills that a plugin of Copilot's marketplace takes from its folders."""
        where = str(root / AGENT_PLUGIN_JSON)
        for path in manifest.shared_skills:
            inside = _resolve_inside(root, path)
            if inside is not None and is_folder(inside):
                continue  # it is below `skills`, where every client finds it
            shared = marketplace and _resolve_inside(marketplace, path)
            if shared is not None and is_folder(shared):
                yield shared
            else:
                self._report("path_missing", where, "warning", path=path[:200])

    def _name(self, written: str, listed: str, root: Path) -> str:
        where = str(root / PLUGIN_JSON)
        declared = written.strip() or listed.strip()
        used = name_part(declared) or name_part(root.name) or "plugin"
        if not declared:
            self._report("plugin_name_missing", where, "warning", used=used)
        elif used != declared:
            self._report("plugin_name_replaced", where, "warning", name=declared, used=used)
        return used

    def _skill_folders(
        self,
        root: Path,
        written: tuple[str, ...],
        marketplace: Path | None,
        *,
        may_be_root: bool,
    ) -> Iterator[Path]:
        """Yield the declared skill folders; by default the root if it is a skill, else `skills`."""
        if not written:
            is_skill = may_be_root and has_skill_md(root)
            inside = root if is_skill else _resolve_inside(root, "skills", marketplace)
            if inside is None:
                self._report("path_unsafe", str(root), path="skills")
            else:
                yield inside
        for path in written:
            place = _resolve_inside(root, path, marketplace)
            if place is None:
                self._report("path_unsafe", str(root / PLUGIN_JSON), path=path[:200])
            elif not is_folder(place):
                self._report("path_missing", str(root / PLUGIN_JSON), "warning", path=place)
            else:
                yield place

    def _commands(
        self,
        root: Path,
        manifest: PluginManifest,
        entry: MarketplaceEntry | None,
        marketplace: Path | None,
    ) -> Iterator[Path]:
        written = dict.fromkeys((*manifest.commands, *(entry.commands if entry else ())))
        default = _resolve_inside(root, COMMANDS_FOLDER, marketplace)
        declared = [_resolve_inside(root, path, marketplace) for path in written]
        for found in command_paths(default, declared, str(root / PLUGIN_JSON)):
            if isinstance(found, Path):
                yield found
            else:
                self.problems.append(found)

    def _read_manifest(
        self, root: Path, others: Sequence[str] = _MANIFESTS
    ) -> "_ManifestFile | None":
        """Read the manifest of the Agent Plugins specification, or else the first of the others."""
        place = root / AGENT_PLUGIN_JSON
        if not place.is_symlink() and place.is_file():
            data = self._read(root, AGENT_PLUGIN_JSON)
            if data is not None and is_agent_plugin(data):
                return _ManifestFile(str(place), data)
        return self._read_first(root, others)

    def _read_first(self, root: Path, names: Sequence[str]) -> "_ManifestFile | None":
        count = len(self.problems)
        for name in names:
            data = self._read(root, name)
            if data is not None:
                return _ManifestFile(str(root / name), data)
            if len(self.problems) > count:  # it is there, and unusable
                return None
        return None

    def _read(self, root: Path, name: str) -> bytes | None:
        """Read a manifest; None if it is missing, or not a regular file within the size limit."""
        path = root / name
        try:
            status = path.lstat()
            kind = "link" if path.parent.is_symlink() else tree.file_kind(status.st_mode)
            detail = f"it is a {kind}, not a regular file"
            if kind == "file":
                data = read_regular(path, MAX_BYTES + 1)
                if len(data) <= MAX_BYTES:
                    return data
                detail = f"it has more than {MAX_BYTES} bytes"
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            detail = error.strerror or str(error)
        self.problems.append(manifest_problem(str(path), detail))
        return None

    def _report(
        self, code: str, where: str, severity: Severity = "error", **details: object
    ) -> None:
        self.problems.append(Problem(code=code, where=where, severity=severity, details=details))


def _key(name: str) -> str:
    return (name_part(name) or name).casefold()


def _entry_folder(root: Path, marketplace: Marketplace, entry: MarketplaceEntry) -> Path | None:
    """Resolve an entry's folder; None if it is not a path inside of the marketplace."""
    source = local_path(entry.source)
    if source is None:
        return None
    plain = _resolve_inside(root, source)
    if not marketplace.plugin_root or plain is None:
        return plain
    base = _resolve_inside(root, marketplace.plugin_root)
    below = base and _resolve_inside(base, source)
    # Many authors write the whole path although they declare a root.
    return below if below is not None and (is_folder(below) or not is_folder(plain)) else plain


def _has_components(root: Path) -> bool:
    """Return whether a folder without a manifest is a plugin: its folders are, or it is a skill."""
    return has_skill_md(root) or any(is_folder(root / name) for name in _COMPONENTS)


def _resolve_inside(root: Path, written: str, marketplace: Path | None = None) -> Path | None:
    """Join an untrusted path to the root; None on path traversal.

    A symlink may lead to another folder of the marketplace that lists the plugin, whose plugins
    share skills so.
    """
    parts = PurePosixPath(written).parts
    if ".." in parts:
        return None
    if not parts and written:
        return root
    try:
        return safe_join(root, written)
    except (UnsafePathError, OSError, RuntimeError):  # a symlink loop is a RuntimeError
        if marketplace is None or written.startswith(("/", "~")):
            return None
    return _resolve_inside(marketplace, (root.relative_to(marketplace) / written).as_posix())
