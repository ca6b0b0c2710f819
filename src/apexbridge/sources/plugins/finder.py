"""Find plugins on disk, directly or through a marketplace.json."""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from apexbridge.errors import UnsafePathError
from apexbridge.paths import safe_join
from apexbridge.skills import tree
from apexbridge.skills.model import Problem, Severity
from apexbridge.sources.base import name_part
from apexbridge.sources.directory_scanner import is_folder, resolve_leniently
from apexbridge.sources.folders import DEFAULT_LIMITS, ScanLimits
from apexbridge.sources.plugins.commands import command_paths
from apexbridge.sources.plugins.manifest import (
    MAX_BYTES,
    Marketplace,
    MarketplaceEntry,
    PluginManifest,
    manifest_problem,
    parse_marketplace,
    parse_plugin,
)
from apexbridge.sources.plugins.source import Plugin, PluginSource, has_skill_md

PLUGIN_FOLDER = ".claude-plugin"
PLUGIN_JSON = f"{PLUGIN_FOLDER}/plugin.json"
MARKETPLACE_JSON = f"{PLUGIN_FOLDER}/marketplace.json"


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
            ),
            limits,
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
        marketplace = self._read(root, MARKETPLACE_JSON)
        if marketplace is not None:
            self._add_listed(root, marketplace)
        own = self._read(root, PLUGIN_JSON)
        if own is not None:
            # A marketplace that lists itself already describes this folder.
            if not any(found.root == root for found in self.found.values()):
                self._add(root, own, None)
        elif marketplace is None and len(self.problems) == count:
            self._report("plugin_missing", str(root), path=root)

    def _add_listed(self, root: Path, data: bytes) -> None:
        where = str(root / MARKETPLACE_JSON)
        marketplace, problems = parse_marketplace(data, where)
        self.problems += problems
        if marketplace is None:
            return
        limit = self.limits.max_folders
        if len(marketplace.plugins) > limit:
            self._report("folder_limit", where, "warning", limit=limit)
        for entry in marketplace.plugins[:limit]:
            place = _entry_folder(root, marketplace, entry)
            if place is None:
                details = {"name": entry.name, "source": str(entry.source)[:200]}
                self._report("plugin_source_unsupported", where, "warning", **details)
            elif not is_folder(place):
                self._report("path_missing", where, "warning", path=place)
            else:
                self._add_entry(place, entry)

    def _add_entry(self, root: Path, entry: MarketplaceEntry) -> None:
        count = len(self.problems)
        data = self._read(root, PLUGIN_JSON)
        if data is not None or not entry.strict:
            self._add(root, data, entry)
        elif len(self.problems) == count:  # no problem was reported: there is no manifest
            self._report("plugin_manifest_missing", str(root), name=entry.name or root.name)

    def _add(self, root: Path, data: bytes | None, entry: MarketplaceEntry | None) -> None:
        where = str(root / PLUGIN_JSON)
        manifest: PluginManifest | None = entry
        if data is not None:
            manifest, problems = parse_plugin(data, where)
            self.problems += problems
        if manifest is None:
            return
        name = self._name(manifest.name, entry.name if entry else "", root)
        listed = entry.skill_folders if entry and data is not None else ()
        written = (*manifest.skill_folders, *listed)
        found = _FoundPlugin(
            name=name,
            root=root,
            skill_folders=tuple(self._skill_folders(root, written)),
            commands=tuple(self._commands(root, manifest, entry)),
            secrets=manifest.secrets | (entry.secrets if entry else frozenset[str]()),
        )
        first = self.found.setdefault(_key(name), found)
        if first.root != root:
            details = {"name": name, "path": root, "winner": first.root}
            self._report("plugin_shadowed", where, "warning", **details)

    def _name(self, written: str, listed: str, root: Path) -> str:
        where = str(root / PLUGIN_JSON)
        declared = written.strip() or listed.strip()
        used = name_part(declared) or name_part(root.name) or "plugin"
        if not declared:
            self._report("plugin_name_missing", where, "warning", used=used)
        elif used != declared:
            self._report("plugin_name_replaced", where, "warning", name=declared, used=used)
        return used

    def _skill_folders(self, root: Path, written: tuple[str, ...]) -> Iterator[Path]:
        """Yield the declared skill folders; by default the root if it is a skill, else `skills`."""
        if not written:
            inside = root if has_skill_md(root) else _resolve_inside(root, "skills")
            if inside is None:
                self._report("path_unsafe", str(root), path="skills")
            else:
                yield inside
        for path in written:
            place = _resolve_inside(root, path)
            if place is None:
                self._report("path_unsafe", str(root / PLUGIN_JSON), path=path[:200])
            elif not is_folder(place):
                self._report("path_missing", str(root / PLUGIN_JSON), "warning", path=place)
            else:
                yield place

    def _commands(
        self, root: Path, manifest: PluginManifest, entry: MarketplaceEntry | None
    ) -> Iterator[Path]:
        written = dict.fromkeys((*manifest.commands, *(entry.commands if entry else ())))
        declared = [_resolve_inside(root, path) for path in written]
        for found in command_paths(root, declared, str(root / PLUGIN_JSON)):
            if isinstance(found, Path):
                yield found
            else:
                self.problems.append(found)

    def _read(self, root: Path, name: str) -> bytes | None:
        """Read a manifest; None if it is missing, or not a regular file within the size limit."""
        path = root / name
        try:
            status = path.lstat()
            kind = "link" if path.parent.is_symlink() else tree.file_kind(status.st_mode)
            detail = f"it is a {kind}, not a regular file"
            if kind == "file":
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                with os.fdopen(descriptor, "rb") as file:
                    data = file.read(MAX_BYTES + 1)
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
    if not isinstance(entry.source, str):
        return None
    plain = _resolve_inside(root, entry.source)
    if not marketplace.plugin_root or plain is None:
        return plain
    base = _resolve_inside(root, marketplace.plugin_root)
    below = base and _resolve_inside(base, entry.source)
    # Many authors write the whole path although they declare a root.
    return below if below is not None and (is_folder(below) or not is_folder(plain)) else plain


def _resolve_inside(root: Path, written: str) -> Path | None:
    """Join an untrusted path to the root; None on path traversal."""
    parts = PurePosixPath(written).parts
    if ".." in parts:
        return None
    if not parts and written:
        return root
    try:
        return safe_join(root, written)
    except (UnsafePathError, OSError, RuntimeError):  # a symlink loop is a RuntimeError
        return None
