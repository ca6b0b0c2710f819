"""CPU time budget of a scan: no input, however crafted, costs more than a fixed number of seconds.

Sizes and counts alone do not bound the cost: text that every rule matches takes a hundred times as
long as ordinary text of the same size.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from apexbridge.scanner.scan_input import DEFAULT_LIMITS, ScannerLimits

Item = TypeVar("Item")

Clock = Callable[[], float]
"""Returns the CPU seconds used so far."""


class CpuBudget:
    """CPU time that is left, for the file being scanned and for the whole scan."""

    def __init__(self, limits: ScannerLimits, clock: Clock) -> None:
        # The thread's CPU time and not the wall time: a busy machine must not make reports partial.
        self._limits, self._clock = limits, clock
        self._end = clock() + limits.total_seconds
        self._file_end = self._end

    def start_file(self) -> None:
        """Give the next file its share: one hostile file must not hide the others."""
        self._file_end = min(self._end, self._clock() + self._limits.file_seconds)

    def start_skill(self) -> None:
        """Give the checks across files their share, which the files could not use up."""
        self._file_end = self._clock() + self._limits.file_seconds

    @property
    def is_exhausted(self) -> bool:
        """Whether nothing is left for further files."""
        return self._clock() >= self._end

    @property
    def is_file_exhausted(self) -> bool:
        """Whether nothing is left for this file."""
        return self._clock() >= self._file_end

    def limit(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield items until the budget of this file is exhausted."""
        for item in items:
            if self.is_file_exhausted:
                return
            yield item


UNLIMITED = CpuBudget(DEFAULT_LIMITS, lambda: 0.0)
"""For callers that check a few texts of their own."""
