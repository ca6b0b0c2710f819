"""Prometheus metrics: counters, gauges and a latency histogram, without personal labels."""

from collections import defaultdict
from functools import partial

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

from apexbridge.events import Event, TextDelta, ToolFinished, TurnFinished

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
UNMATCHED_ROUTE = "other"
"""Route label of a request that matched none: client-made paths would make labels unbounded."""
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_INPUT, _OUTPUT = ("input",), ("output",)
_METHODS = frozenset({"GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS"})


class Metrics:
    """Metrics of one server, in a separate registry instead of the process-wide default."""

    def __init__(self) -> None:
        self._registry = on = CollectorRegistry()
        self._tallies: dict[tuple[Counter, tuple[str, ...]], int] = defaultdict(int)
        """Counts since the last scrape: adding to a dict is cheaper than to a labelled counter."""
        self._series: dict[tuple[str, str, int], tuple[tuple[str, ...], Histogram]] = {}
        counter, gauge = partial(Counter, registry=on), partial(Gauge, registry=on)
        ProcessCollector(registry=on)
        self._requests = counter(
            "apexbridge_requests", "Requests answered.", ("method", "route", "status")
        )
        self._seconds = Histogram(
            "apexbridge_request_seconds",
            "Duration of requests, to the end of the response.",
            ("route",),
            buckets=_BUCKETS,
            registry=on,
        )
        self._turns = counter("apexbridge_turns", "Turns, by finish reason.", ("finish",))
        self._tools = counter("apexbridge_tool_calls", "Tool calls, by outcome.", ("outcome",))
        self._tokens = counter("apexbridge_tokens", "Tokens that models reported.", ("direction",))
        for direction in (_INPUT, _OUTPUT):
            self._tokens.labels(*direction)
        self._runs = counter("apexbridge_runs", "Script runs, by outcome.", ("outcome",))
        self._in_progress = gauge("apexbridge_requests_in_progress", "Requests in progress.")
        # The former name, for dashboards that read it.
        self._going = gauge(
            "apexbridge_requests_going", "Deprecated: use apexbridge_requests_in_progress."
        )
        self._skills = gauge("apexbridge_skills", "Enabled skills.")
        self._index = gauge("apexbridge_index_entries", "Skills in the search index.")
        self._sandbox = gauge("apexbridge_sandbox", "Sandbox backend in use.", ("kind",))

    def record_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a response; `route` is the path pattern, such as `/v1/skills/{id}`."""
        counts = self._series.get((method, route, status))
        if counts is None:
            label = method if method in _METHODS else UNMATCHED_ROUTE
            counts = ((label, route, str(status)), self._seconds.labels(route))
            self._series[label, route, status] = counts
        self._tallies[self._requests, counts[0]] += 1
        counts[1].observe(seconds)

    def on_event(self, event: Event) -> None:
        """Count an event of the runtime."""
        match event:
            case TextDelta():
                pass  # first, because it is by far the most frequent
            case TurnFinished():
                self._tallies[self._turns, (event.finish,)] += 1
                self._tallies[self._tokens, _INPUT] += event.input_tokens
                self._tallies[self._tokens, _OUTPUT] += event.output_tokens
            case ToolFinished():
                self._tools.labels("error" if event.is_error else "ok").inc()
            case _:
                pass

    def record_run(self, outcome: str) -> None:
        """Count a script run."""
        self._runs.labels(outcome).inc()

    def set_gauges(self, *, in_progress: int, skills: int, index: int | None, sandbox: str) -> None:
        """Update the gauges; called on each scrape."""
        self._in_progress.set(in_progress)
        self._going.set(in_progress)
        self._skills.set(skills)
        if index is not None:
            self._index.set(index)
        if sandbox:
            self._sandbox.labels(sandbox).set(1)

    def render(self) -> bytes:
        """Render all metrics in the Prometheus text format."""
        for (counter, labels), count in self._tallies.items():
            counter.labels(*labels).inc(count)
        self._tallies.clear()
        return generate_latest(self._registry)
