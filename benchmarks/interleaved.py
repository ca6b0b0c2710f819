"""Interleaved measurement, so that noise of the machine affects all candidates alike."""

import statistics
import time
from collections.abc import Callable, Mapping


def measure(
    candidates: Mapping[str, Callable[[], object]], rounds: int
) -> dict[str, tuple[float, float]]:
    """Return the minimum and median seconds of each candidate over interleaved rounds."""
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, run in candidates.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: (min(times), statistics.median(times)) for name, times in seconds.items()}
