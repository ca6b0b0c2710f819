"""All routes of records, in the order in which they are described."""

from apexbridge.server import (
    records_approvals,
    records_doctor,
    records_events,
    records_runs,
    records_turns,
)
from apexbridge.server.base import Route

ROUTES: tuple[Route, ...] = (
    *records_turns.ROUTES,
    *records_runs.ROUTES,
    *records_approvals.ROUTES,
    *records_events.ROUTES,
    *records_doctor.ROUTES,
)
