"""Extension points: everything a Python package can add to ApexBridge, on one screen.

A package names its module under the entry-point group `apexbridge`:

    [project.entry-points.apexbridge]
    my_extension = "my_package.apexbridge_extension"

and implements any of these functions there, each marked with `@extensions.hook`:

    apexbridge_sources(project)      more places skills come from
    apexbridge_event_sinks()         listeners for everything that happens
    apexbridge_tools(project)        more tools for the model
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
        """Give more sources of skills for a project; their skills carry the origin they say."""

    @_spec
    def apexbridge_event_sinks(self) -> Sequence[EventSink]:  # pyright: ignore[reportReturnType]
        """Give functions that are called with every event, in the thread it happens in."""

    @_spec
    def apexbridge_tools(self, project: Path) -> Sequence[Tool]:  # pyright: ignore[reportReturnType]
        """Give more tools for the model; each needs a name of its own."""


class Extensions:
    """The extensions that are loaded."""

    def __init__(self) -> None:
        self._plugins = pluggy.PluginManager(GROUP)
        self._plugins.add_hookspecs(_HookSpecs)

    @classmethod
    def installed(cls) -> "Extensions":
        """Load every extension that is installed beside us.

        Raises:
            ConfigError: If one cannot be loaded; its name and the reason are said.
        """
        extensions = cls()
        try:
            for point in _find_entry_points(tuple(sys.path)):
                if not extensions._plugins.has_plugin(point.name):
                    extensions._plugins.register(point.load(), point.name)
        except Exception as error:  # a stranger's module may raise anything when it is imported
            raise ConfigError(str(error), code="extension_failed", name=GROUP) from error
        return extensions

    def add(self, module: object, name: str | None = None) -> None:
        """Add an extension by hand: a module, or any object with the hooks."""
        self._plugins.register(module, name)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of what is loaded."""
        return tuple(name for name, _ in self._plugins.list_name_plugin())

    def sources(self, project: Path) -> tuple[SkillSource, ...]:
        """All sources that extensions give."""
        given: list[Sequence[SkillSource]] = self._plugins.hook.apexbridge_sources(project=project)
        return tuple(source for sources in given for source in sources)

    def event_sinks(self) -> tuple[EventSink, ...]:
        """All listeners that extensions give."""
        given: list[Sequence[EventSink]] = self._plugins.hook.apexbridge_event_sinks()
        return tuple(sink for sinks in given for sink in sinks)

    def tools(self, project: Path) -> tuple[Tool, ...]:
        """All tools that extensions give."""
        given: list[Sequence[Tool]] = self._plugins.hook.apexbridge_tools(project=project)
        return tuple(tool for tools in given for tool in tools)


@functools.cache
def _find_entry_points(_: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """What is installed in these places: it stays so while a process runs, and is slow to find."""
    return tuple(entry_points(group=GROUP))
