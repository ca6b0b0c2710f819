"""What settings say of permissions and hooks, as conversations take it."""

from collections.abc import Generator

from apexbridge.permissions.hook_protocol import Hook, parse_hooks
from apexbridge.permissions.rules import Effect, Rule, ToolPattern
from apexbridge.settings import Config


def permission_rules(config: Config) -> Generator[Rule]:
    """What settings say; and nobody writes to approvals, skills and records but their keepers."""
    own = ToolPattern("Write", f"/{config.data}/**")
    yield Rule(effect="deny", pattern=own, reason="it is this program's own data")
    chosen = config.settings.permissions
    effects: dict[Effect, tuple[str, ...]] = {
        "deny": chosen.deny,
        "ask": chosen.ask,
        "allow": chosen.allow,
    }
    for effect, patterns in effects.items():
        for text in patterns:
            yield Rule(effect=effect, pattern=ToolPattern.parse(text), reason="settings")


def configured_hooks(config: Config) -> Generator[Hook]:
    """What settings attach to every session."""
    for event, declared in config.settings.hooks.items():
        yield from parse_hooks(event, declared)
