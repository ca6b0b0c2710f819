"""What a skill may do once it is installed or trusted, as printed before a person agrees."""

from collections.abc import Iterable

from apexbridge.activation.consent import unknown_keys
from apexbridge.cli.output import Output, sanitize
from apexbridge.skills.model import Skill
from apexbridge.tools.base import GENERAL_PURPOSE


def print_capabilities(
    out: Output, skill: Skill, *, commands: Iterable[str], scripts: Iterable[str]
) -> None:
    """Print every reason for consent that a skill gives, and its scripts."""
    manifest = skill.manifest
    agent = manifest.agent or GENERAL_PURPOSE.name
    secrets = (f"{s.name} ({' '.join(s.hosts) or '?'})" for s in manifest.secrets)
    found = {
        "trust_tools": ", ".join(manifest.allowed_tools),
        "trust_hooks": ", ".join(manifest.hooks),
        "trust_commands": "; ".join(commands),
        "trust_fork": agent if manifest.context == "fork" else "",
        "trust_model": "" if manifest.model in {None, "inherit"} else manifest.model,
        "trust_scripts": ", ".join(scripts),
        "trust_secrets": ", ".join(secrets),
        "trust_unknown": ", ".join(unknown_keys(manifest)),
    }
    for key, value in found.items():
        if value:
            out.line(f"  {out.text(key)}: {sanitize(value)}")
