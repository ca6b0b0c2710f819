"""Settings: what can be chosen (`choices`), and how the layers come together (`layers`)."""

from apexbridge.settings.loader import (
    ENVIRONMENT,
    PROJECT_FILES,
    Config,
    default_language,
    flatten,
    load,
    user_config_file,
)
from apexbridge.settings.schema import (
    AgentSettings,
    IndexSettings,
    InstallSettings,
    McpServer,
    McpSettings,
    ModelSettings,
    PermissionSettings,
    PluginSettings,
    RemoteSettings,
    SandboxSettings,
    ServerSettings,
    Settings,
    SkillSettings,
)

__all__ = [
    "ENVIRONMENT",
    "PROJECT_FILES",
    "AgentSettings",
    "Config",
    "IndexSettings",
    "InstallSettings",
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
    "default_language",
    "flatten",
    "load",
    "user_config_file",
]
