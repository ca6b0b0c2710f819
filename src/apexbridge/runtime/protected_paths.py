"""Protected paths: what no tool, hook or script reaches: own state, settings, well-known secrets.

They matter where a folder that tools may read contains them, as a home folder does.
"""

from collections.abc import Iterator
from pathlib import Path

from apexbridge.permissions.rules import Rule, ToolPattern
from apexbridge.settings import Config

_STATE = (
    "first-key",
    "*.key",
    "*.json",
    "*.jsonl",
    "*.db",
    "*.db-*",
    "*.head",
    "*.broken",
    "*.damaged-*",
    "lance",
    "tags",
    "workspaces",
)
"""What the data folder holds beside skills and files of sessions: keys, databases, logs."""
_REASON = "it holds secrets or this program's own data"


def protected_paths(config: Config) -> tuple[Path, ...]:
    """Return the paths that no sandbox may mount a parent folder of."""
    written = config.settings.permissions.protected
    chosen = (config.home / path[2:] if path.startswith("~/") else Path(path) for path in written)
    own = (config.user_file,) if config.user_file else ()
    return (config.data, config.secret_key_file, *own, *chosen)


def protection_rules(config: Config) -> Iterator[Rule]:
    """Yield the deny rules: never a write into the data folder, and no read of what is private.

    Rules cost time for each file of a search, so there are none for what no tool can reach anyway.
    """
    yield _deny("Write", f"/{config.data}/**")
    reachable = [folder.resolve() for folder in (config.project, *config.additional_dirs)]
    _, *private = protected_paths(config)
    state = (config.data / name for name in _STATE)
    for path in (*state, config.data / "secrets.json", *private):
        if any(path.parent.resolve().is_relative_to(folder) for folder in reachable):
            yield _deny("Read", f"/{path}")
            yield _deny("Write", f"/{path}")


def protected_within(config: Config) -> tuple[Path, ...]:
    """Return the protected paths that are in the project and exist."""
    project = config.project.resolve()
    return tuple(
        path
        for path in protected_paths(config)
        if path.resolve().is_relative_to(project) and path.exists()
    )


def _deny(tool: str, path: str) -> Rule:
    return Rule(effect="deny", pattern=ToolPattern(tool, path), reason=_REASON)
