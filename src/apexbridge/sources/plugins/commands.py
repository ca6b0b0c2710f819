"""Commands of a plugin: Markdown files that are invoked as `/plugin:command`.

A file of the folder `commands`, or of a path that the manifest lists, is a skill without a folder.
Folders between are namespaces: `commands/git/push.md` is `plugin:git:push`.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from apexbridge.skills.model import Problem
from apexbridge.sources.base import NamespacedSource
from apexbridge.sources.directory_scanner import ScanLimits, is_folder
from apexbridge.sources.legacy_commands import LegacySource

COMMANDS_FOLDER = "commands"
_SUFFIX = ".md"


def command_paths(
    default: Path | None, declared: Iterable[Path | None], where: str
) -> Iterator[Path | Problem]:
    """Yield the folder `commands`, if there is one, and the declared files and folders.

    None is a path that leads out of the plugin and its marketplace.
    """
    if default is not None and is_folder(default):
        yield default
    for path in declared:
        if path is None:
            yield Problem.error("path_unsafe", where, path=COMMANDS_FOLDER)
        elif is_folder(path) or (path.suffix.lower() == _SUFFIX and path.is_file()):
            if path != default:
                yield path
        else:
            yield Problem.warning("path_missing", where, path=path)


def command_source(path: Path, plugin: str, limits: ScanLimits) -> tuple[Path, NamespacedSource]:
    """Create the source of a folder of commands, or of a single file; return its folder with it."""
    if is_folder(path):
        return path, NamespacedSource(LegacySource(path, limits), plugin)
    one = LegacySource(path.parent, limits, only=path.name)
    return path.parent, NamespacedSource(one, plugin)
