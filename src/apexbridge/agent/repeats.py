"""The same call again and again: a model that goes round in circles is told so, then stopped."""

from collections import Counter

from apexbridge.messages import ToolCall


class Repeats:
    """Counts equal calls of one turn."""

    def __init__(self, allowed: int) -> None:
        self._allowed = allowed
        self._counts: Counter[tuple[str, str]] = Counter()

    def note(self, call: ToolCall) -> int:
        """How often this very call was made, this time included."""
        key = (call.name, call.arguments.strip())
        self._counts[key] += 1
        return self._counts[key]

    def is_too_often(self, call: ToolCall) -> bool:
        """Say whether it was made more often than is carried out."""
        return self._counts[call.name, call.arguments.strip()] > self._allowed

    @property
    def is_hopeless(self) -> bool:
        """Say whether being told did not help: twice as often as is carried out."""
        return any(count > 2 * self._allowed for count in self._counts.values())
