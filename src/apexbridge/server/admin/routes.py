"""All routes of records, in the order in which they are described."""

from apexbridge.server.admin import approvals, diagnostics, events, history, runs
from apexbridge.server.routing import Route

ROUTES: tuple[Route, ...] = (
    *history.ROUTES,
    *runs.ROUTES,
    *approvals.ROUTES,
    *events.ROUTES,
    *diagnostics.ROUTES,
)
