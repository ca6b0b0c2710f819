"""A skill that a person calls by its name, and what its invocation needs to know of a session."""

from pathlib import Path

from apexbridge.activation.activator import Invocation, Situation
from apexbridge.agent.session import Session


def user_wish(text: str) -> Invocation | None:
    """The skill that a person calls by `/name arguments`; a path such as `/etc/x` is none."""
    name, *rest = text.strip().split(maxsplit=1) or [""]
    if not name.startswith("/") or len(name) < 2 or "/" in name[1:] or "." in name:
        return None
    return Invocation(name=name, arguments="".join(rest), trigger="user")


def situation_of(session: Session, project: Path) -> Situation:
    """What the activation of a skill needs to know of a session."""
    applied = {name: applied.digest for name, applied in session.applied.items()}
    return Situation(
        waking=session.waking,
        project=project,
        applied=applied,
        active=frozenset((*applied, *session.chain)),
        tools_mode=session.tools_mode,
    )
