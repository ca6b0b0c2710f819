"""Fixtures of the training tests."""

from collections.abc import Generator

import pytest
import torch


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Generator[None]:
    """Threads that spin while they wait for each other take many times as long beside others."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
