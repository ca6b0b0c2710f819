"""Settings: their schema (`schema`), and the layers they are loaded from (`loader`)."""

from apexbridge.settings.deprecated import RENAMED, RENAMED_VALUES, current_name
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
    "RENAMED",
    "RENAMED_VALUES",
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
    "current_name",
    "default_language",
    "flatten",
    "load",
    "user_config_file",
]
