"""What a turn may cost."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnLimits:
    """Bounds of one turn; a child session has its own, of the same size."""

    rounds: int = 25
    """Replies of the model, the last of them without tools."""
    tokens: int = 400_000
    """Input and output of all replies together."""
    seconds: float = 900.0
    calls_at_once: int = 8
    repeats: int = 3
    """How often the same call with the same arguments is carried out."""
    depth: int = 3
    """How many sessions deep skills may fork."""
    children: int = 8
    """How many child sessions a turn may start."""
    window: int = 128_000
    """The model's context window, in tokens."""
    compact_at: float = 0.8
    """The part of the window from which on the conversation is shortened."""
