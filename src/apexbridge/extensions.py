"""Extension points (pluggy hook specifications): what a Python package can add to ApexBridge.

A package names its module under the entry-point group `apexbridge`:

    [project.entry-points.apexbridge]
    my_extension = "my_package.apexbridge_extension"

and implements any of these functions there, each marked with `@extensions.hook`:

    apexbridge_sources(project)      sources of skills
    apexbridge_event_sinks()         callbacks for every event
    apexbridge_tools(project)        tools for the model
"""

import functools
import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pluggy

from apexbridge.errors import ConfigError
from apexbridge.events import EventSink
from apexbridge.sources.base import SkillSource
from apexbridge.tools.base import Tool

GROUP = "apexbridge"

hook = pluggy.HookimplMarker(GROUP)
_spec = pluggy.HookspecMarker(GROUP)


class _HookSpecs:
    @_spec
    def apexbridge_sources(self, project: Path) -> Sequence[SkillSource]:  # pyright: ignore[reportReturnType]
        """Return sources of skills for a project; they declare the origin of their skills."""

    @_spec
    def apexbridge_event_sinks(self) -> Sequence[EventSink]:  # pyright: ignore[reportReturnType]
        """Return callbacks for every event, called in the thread that emits it."""

    @_spec
    def apexbridge_tools(self, project: Path) -> Sequence[Tool]:  # pyright: ignore[reportReturnType]
        """Return tools for the model; each needs a unique name."""


class Extensions:
    """Loaded extensions."""

    def __init__(self) -> None:
        self._plugins = pluggy.PluginManager(GROUP)
        self._plugins.add_hookspecs(_HookSpecs)

    @classmethod
    def installed(cls) -> "Extensions":
        """Load every installed extension by its entry point.

        Raises:
            ConfigError: If one cannot be loaded, with its name and the reason.
        """
        extensions = cls()
        try:
            for point in _find_entry_points(tuple(sys.path)):
                if not extensions._plugins.has_plugin(point.name):
                    extensions._plugins.register(point.load(), point.name)
        except Exception as error:  # third-party code may raise anything on import
            raise ConfigError(str(error), code="extension_failed", name=GROUP) from error
        return extensions

    def add(self, module: object, name: str | None = None) -> None:
        """Register a module or any object with hook implementations."""
        self._plugins.register(module, name)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of loaded extensions."""
        return tuple(name for name, _ in self._plugins.list_name_plugin())

    def sources(self, project: Path) -> tuple[SkillSource, ...]:
        """Return the sources of all extensions."""
        given: list[Sequence[SkillSource]] = self._plugins.hook.apexbridge_sources(project=project)
        return tuple(source for sources in given for source in sources)

    def event_sinks(self) -> tuple[EventSink, ...]:
        """Return the event callbacks of all extensions."""
        given: list[Sequence[EventSink]] = self._plugins.hook.apexbridge_event_sinks()
        return tuple(sink for sinks in given for sink in sinks)

    def tools(self, project: Path) -> tuple[Tool, ...]:
        """Return the tools of all extensions."""
        given: list[Sequence[Tool]] = self._plugins.hook.apexbridge_tools(project=project)
        return tuple(tool for tools in given for tool in tools)


@functools.cache
def _find_entry_points(_: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Find entry points, cached by `sys.path`: the scan of all distributions is slow."""
    return tuple(entry_points(group=GROUP))
