"""The seventy-seven numbered attacks on the sandbox, and those not applicable to a backend."""

from collections.abc import Mapping

import pytest

ROWS = range(1, 78)

APART: Mapping[str, Mapping[int, str]] = {
    "landlock": {
        6: "Landlock does not see modes and times; docs/sandbox.md says so",
        52: "there is no mount of ours to remount",
        68: "no host can be let through, so there is no proxy",
    },
}
"""Counted apart, with the reason."""


def row(*numbers: int, on: str = "") -> pytest.MarkDecorator:
    """Mark a test as one that plays these attacks, on a backend if its fixture does not say."""
    return pytest.mark.row(*numbers, on=on) if on else pytest.mark.row(*numbers)


def kind_of(backend: str) -> str:
    """Return the backend's name without the variant (warm, own UID)."""
    return backend.partition(" ")[0]
