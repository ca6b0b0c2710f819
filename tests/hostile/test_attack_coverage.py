"""Every attack runs on every backend, or is not applicable for a stated reason."""

from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.hostile import (
    attacks,
    test_backend_choice,
    test_isolation,
    test_process_lifecycle,
    test_resource_limits,
)
from tests.sandbox import test_egress_proxy

MODULES = (
    test_isolation,
    test_resource_limits,
    test_process_lifecycle,
    test_backend_choice,
    test_egress_proxy,
)
BOTH = ("bubblewrap", "landlock")


def _marks(module: ModuleType) -> Iterator[pytest.Mark]:
    for name, test in vars(module).items():
        if name.startswith("test_"):
            for mark in getattr(test, "pytestmark", ()):
                yield mark
                if mark.name == "parametrize":
                    for value in mark.args[1]:
                        yield from getattr(value, "marks", ())


@pytest.mark.parametrize("backend", BOTH)
def test_every_attack_has_its_test(backend: str) -> None:
    played = set[int]()
    for module in MODULES:
        for mark in _marks(module):
            if mark.name == "row" and mark.kwargs.get("on", backend) == backend:
                played.update(mark.args)
    apart = attacks.APART.get(backend, {})
    assert sorted(played | set(apart)) == list(attacks.ROWS)
