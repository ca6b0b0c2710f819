"""Actor: the API key, or the person at this machine, on whose behalf a task acts.

A context variable, set in one place by the HTTP server: an endpoint that installs a skill cannot
forget to say who asked for it.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who acts, and whether installing a skill also consents to its use."""

    id: str
    """Id of the API key; `local` for the command line and for Python code."""
    may_consent: bool = False
    """True if the actor may both install skills and run them."""


LOCAL = Actor(id="local", may_consent=True)
"""The person who runs this program: command line, Python code, tasks of no request."""

_actor: ContextVar[Actor] = ContextVar("actor", default=LOCAL)


def current_actor() -> Actor:
    """Return the actor of the running task."""
    return _actor.get()


@contextmanager
def acting_as(actor: Actor) -> Generator[None]:
    """Set the actor for the length of a block, and for the tasks that are started in it."""
    token = _actor.set(actor)
    try:
        yield
    finally:
        _actor.reset(token)
