"""The seventy attacks on the sandbox, by number, and those that a backend cannot be asked about."""

from collections.abc import Mapping

import pytest

ROWS = range(1, 71)

APART: Mapping[str, Mapping[int, str]] = {
    "landlock": {
        6: "Landlock does not see modes, times and attributes; docs/sandbox.md says so",
        52: "there is no mount of ours to remount",
        68: "no host can be let through, so there is no proxy",
    },
}
"""Counted apart, with the reason."""


def row(*numbers: int, on: str = "") -> pytest.MarkDecorator:
    """Mark a test as one that plays these attacks, on a backend if its fixture does not say."""
    return pytest.mark.row(*numbers, on=on) if on else pytest.mark.row(*numbers)


def kind_of(backend: str) -> str:
    """What isolates, whether warm or not, and whoever runs it."""
    return backend.partition(" ")[0]
