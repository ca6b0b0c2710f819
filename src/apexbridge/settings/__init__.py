"""Settings: what can be chosen (`choices`), and how the layers come together (`layers`)."""

from apexbridge.settings.choices import (
    AgentSettings,
    IndexSettings,
    InstallSettings,
    ModelSettings,
    PermissionSettings,
    SandboxSettings,
    Settings,
    SkillSettings,
)
from apexbridge.settings.layers import (
    ENVIRONMENT,
    PROJECT_FILES,
    Loaded,
    flatten,
    language_of_place,
    load,
    user_file,
)
from apexbridge.settings.outside import (
    McpServer,
    McpSettings,
    PluginSettings,
    RemoteSettings,
)
from apexbridge.settings.serving import ServerSettings

__all__ = [
    "ENVIRONMENT",
    "PROJECT_FILES",
    "AgentSettings",
    "IndexSettings",
    "InstallSettings",
    "Loaded",
    "McpServer",
    "McpSettings",
    "ModelSettings",
    "PermissionSettings",
    "PluginSettings",
    "RemoteSettings",
    "SandboxSettings",
    "ServerSettings",
    "Settings",
    "SkillSettings",
    "flatten",
    "language_of_place",
    "load",
    "user_file",
]
