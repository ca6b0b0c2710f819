"""Agent folders: where the profiles of subagents lie, for the user, the project and its plugins."""

from collections.abc import Iterable, Iterator

from apexbridge.activation.agent_profiles import AgentFolder
from apexbridge.runtime.source_factory import project_dirs
from apexbridge.settings import Config
from apexbridge.skills.model import Origin
from apexbridge.sources.base import SkillSource
from apexbridge.sources.plugins.source import PluginSource

_AGENTS = (".apexbridge/agents", ".claude/agents")
"""Below home, and in each project directory."""
_PLUGIN_AGENTS = "agents"


def agent_folders(config: Config, sources: Iterable[SkillSource]) -> Iterator[AgentFolder]:
    """Yield the folders of agent profiles: the user's, the project's (nearest first), plugins'."""
    for place in _AGENTS:
        yield AgentFolder(path=config.home / place, origin=Origin.USER)
    for folder in project_dirs(config):
        for place in _AGENTS:
            yield AgentFolder(path=folder / place, origin=Origin.PROJECT, inside=folder)
    for source in sources:
        if isinstance(source, PluginSource):
            plugin = source.plugin
            yield AgentFolder(
                path=plugin.root / _PLUGIN_AGENTS,
                origin=Origin.PLUGIN,
                namespace=plugin.name,
                inside=plugin.root,
            )
