"""What is counted, in the form that Prometheus reads; nothing in it names a person or a skill."""

from collections import defaultdict

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
"""The route of a request that had none: an address that somebody made up is no label."""
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_INPUT, _OUTPUT = ("input",), ("output",)
_METHODS = frozenset({"GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS"})


class Metrics:
    """The counters of one server, apart from those of any other in the process."""

    def __init__(self) -> None:
        self._registry = on = CollectorRegistry()
        self._tallies: dict[tuple[Counter, tuple[str, ...]], int] = defaultdict(int)
        """What was counted since somebody looked last: to count on is cheap, to count is not."""
        self._known: dict[tuple[str, str, int], tuple[tuple[str, ...], Histogram]] = {}
        ProcessCollector(registry=on)
        self._requests = Counter(
            "apexbridge_requests", "Requests answered.", ("method", "route", "status"), registry=on
        )
        self._seconds = Histogram(
            "apexbridge_request_seconds",
            "How long requests took, to the end of their answers.",
            ("route",),
            buckets=_BUCKETS,
            registry=on,
        )
        self._turns = Counter("apexbridge_turns", "Turns, by their ends.", ("finish",), registry=on)
        self._tools = Counter(
            "apexbridge_tool_calls", "Tool calls, by how they went.", ("outcome",), registry=on
        )
        self._tokens = Counter(
            "apexbridge_tokens", "Tokens that models told of.", ("direction",), registry=on
        )
        for direction in (_INPUT, _OUTPUT):
            self._tokens.labels(*direction)
        self._runs = Counter(
            "apexbridge_runs",
            "Scripts that were run, by their outcomes.",
            ("outcome",),
            registry=on,
        )
        self._going = Gauge("apexbridge_requests_going", "Requests worked on now.", registry=on)
        self._skills = Gauge("apexbridge_skills", "Skills that can be used.", registry=on)
        self._index = Gauge("apexbridge_index_entries", "Skills in the index.", registry=on)
        self._sandbox = Gauge(
            "apexbridge_sandbox", "The sandbox that scripts run in.", ("kind",), registry=on
        )

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request came to its end; `route` is the pattern of its address."""
        counts = self._known.get((method, route, status))
        if counts is None:
            known = method if method in _METHODS else UNMATCHED_ROUTE
            counts = ((known, route, str(status)), self._seconds.labels(route))
            self._known[known, route, status] = counts
        self._tallies[self._requests, counts[0]] += 1
        counts[1].observe(seconds)

    def happened(self, event: Event) -> None:
        """Something happened, whoever asked for it."""
        match event:
            case TextDelta():
                pass  # by far the most frequent
            case TurnFinished():
                self._tallies[self._turns, (event.finish,)] += 1
                self._tallies[self._tokens, _INPUT] += event.input_tokens
                self._tallies[self._tokens, _OUTPUT] += event.output_tokens
            case ToolFinished():
                self._tools.labels("error" if event.is_error else "ok").inc()
            case _:
                pass

    def ran(self, outcome: str) -> None:
        """A script was run."""
        self._runs.labels(outcome).inc()

    def stands(self, *, going: int, skills: int, index: int | None, sandbox: str) -> None:
        """How things stand now."""
        self._going.set(going)
        self._skills.set(skills)
        if index is not None:
            self._index.set(index)
        if sandbox:
            self._sandbox.labels(sandbox).set(1)

    def text(self) -> bytes:
        """Everything, as it is read."""
        for (counter, labels), count in self._tallies.items():
            counter.labels(*labels).inc(count)
        self._tallies.clear()
        return generate_latest(self._registry)
