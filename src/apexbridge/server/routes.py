"""Route table of the server: a new endpoint goes into `ROUTES` of its module."""

from apexbridge.server import health
from apexbridge.server.admin import events, history, operations
from apexbridge.server.chat import completions
from apexbridge.server.console import routes as console
from apexbridge.server.openapi import openapi_route
from apexbridge.server.routing import Route
from apexbridge.server.skills import routes as skills
from apexbridge.server.skills import well_known

_ROUTES: tuple[Route, ...] = (
    *completions.ROUTES,
    *skills.ROUTES,
    *history.ROUTES,
    *operations.ROUTES,
    *events.ROUTES,
    *console.ROUTES,
    *well_known.ROUTES,
    *health.ROUTES,
)
ROUTES = (*_ROUTES, openapi_route(_ROUTES))
