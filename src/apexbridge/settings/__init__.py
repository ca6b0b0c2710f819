"""Settings: what can be chosen (`choices`), and how the layers come together (`layers`)."""

from apexbridge.settings.choices import (
    IndexSettings,
    ModelSettings,
    SandboxSettings,
    Settings,
    SkillSettings,
)
from apexbridge.settings.layers import (
    ENVIRONMENT,
    Loaded,
    flatten,
    language_of_place,
    load,
    user_file,
)

__all__ = [
    "ENVIRONMENT",
    "IndexSettings",
    "Loaded",
    "ModelSettings",
    "SandboxSettings",
    "Settings",
    "SkillSettings",
    "flatten",
    "language_of_place",
    "load",
    "user_file",
]
