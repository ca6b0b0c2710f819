"""ApexBridge: a skills and tools runtime for language-model agents.

Public API, imported lazily (PEP 562): importing the package, and with it `apexbridge --help`, stays
cheap. `__init__.pyi` declares the same names for type checkers.
"""

import importlib

_HOMES = {
    "ApexBridgeError": "errors",
    "Extensions": "extensions",
    "Origin": "skills.model",
    "Package": "skills.validator",
    "Problem": "skills.model",
    "Runtime": "runtime",
    "Settings": "settings",
    "Skill": "skills.model",
    "SkillInvalidError": "errors",
    "SkillManifest": "skills.model",
    "SkillNotFoundError": "errors",
    "SkillSource": "sources.base",
    "ToolContext": "tools.base",
    "ToolResult": "tools.base",
    "edit_description": "skills.editor",
    "load_settings": "settings:load",
    "open_archive": "lifecycle.zip.archive",
    "open_folder": "skills.validator",
    "pack": "lifecycle.zip.archive:pack_skill",
    "read_skill": "skills.parser",
    "tool": "tools.function",
    "validate": "skills.validator",
}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, inner = _HOMES[name].partition(":")
    value: object = getattr(importlib.import_module(f"{__name__}.{module}"), inner or name)
    globals()[name] = value
    return value
