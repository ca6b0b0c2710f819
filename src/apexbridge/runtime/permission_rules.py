"""Permission rules of settings, and the deny rules about the scripts of skills."""

from collections.abc import Iterator, Sequence

from apexbridge.permissions.engine import decide, permission_error
from apexbridge.permissions.rules import Effect, PermissionRequest, Rule, ToolPattern
from apexbridge.runtime.protected_paths import protection_rules
from apexbridge.settings import Config


def permission_rules(config: Config) -> Iterator[Rule]:
    """Yield the rules of settings; the first ones protect the data directory and the secrets."""
    yield from protection_rules(config)
    chosen = config.settings.permissions
    effects: dict[Effect, tuple[str, ...]] = {
        "deny": chosen.deny,
        "ask": chosen.ask,
        "allow": chosen.allow,
    }
    for effect, patterns in effects.items():
        for text in patterns:
            yield Rule(effect=effect, pattern=ToolPattern.parse(text), reason="settings")


def refuse_denied_script(rules: Sequence[Rule], skill: str, script: str) -> None:
    """Refuse a script that a deny rule covers, or whose skill one covers, whoever asks for it.

    Raises:
        PermissionDeniedError: With the rule.
    """
    words = " ".join(filter(None, (skill, script)))
    for tool, argument in (("Skill", skill), ("SkillScript", words)):
        request = PermissionRequest(tool=tool, argument=argument, harmless=True)
        decision = decide(request, rules)
        if decision.effect == "deny":
            raise permission_error(request, decision)
