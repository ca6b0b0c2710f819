"""Killed, or refused by the disk, at any moment of a change: the old state or the new, and sound.

`make test` tries some moments of each; `make crash` tries every system call.
"""

from collections.abc import Generator

import pytest

from tests.crash.fault_injection import Fault, Order, Outcome
from tests.crash.operations import OPERATIONS
from tests.crash.zygote_client import Asking, chosen, scratch, zygote

FAULT_COUNTS: dict[Fault, int] = {"kill": 7, "EIO": 6, "full": 3}
"""How many moments of each operation are tried."""


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Generator[Asking]:
    with scratch(tmp_path_factory.mktemp("crash")) as place, zygote(place) as ready:
        yield ready


def _tried(asking: Asking, operation: str, fault: Fault) -> dict[int, Outcome]:
    moments = asking.moments(operation)
    assert len(moments) > 10
    points = chosen(moments, FAULT_COUNTS[fault], with_end=fault == "kill")
    orders = [Order(operation=operation, fault=fault, at=point) for point in points]
    return {order.at: asking.interrupt(order) for order in orders}


def _wrong(tried: dict[int, Outcome]) -> dict[int, tuple[str, ...]]:
    return {point: tuple(outcome.wrong) for point, outcome in tried.items() if outcome.wrong}


@pytest.mark.promise("L04")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_kill_leaves_the_old_state_or_the_new_and_every_invariant_true(
    asking: Asking, operation: str
) -> None:
    tried = _tried(asking, operation, "kill")
    assert {outcome.ended for outcome in tried.values()} == {"", "done"}  # one after its end
    assert _wrong(tried) == {}


@pytest.mark.promise("L05")
@pytest.mark.parametrize("fault", ["EIO", "full"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_disk_that_refuses_leaves_everything_as_it_was(
    asking: Asking, operation: str, fault: Fault
) -> None:
    tried = _tried(asking, operation, fault)
    assert {outcome.ended for outcome in tried.values()} <= {"done", "storage_failed"}
    assert _wrong(tried) == {}
