"""Every route of the server."""

from apexbridge.server import health
from apexbridge.server.admin import routes as admin_routes
from apexbridge.server.chat import completions
from apexbridge.server.console import assets, sign_in
from apexbridge.server.openapi import openapi_route
from apexbridge.server.routing import Route
from apexbridge.server.skills import routes as skill_routes
from apexbridge.server.skills import well_known

_ROUTES: tuple[Route, ...] = (
    *completions.ROUTES,
    *skill_routes.ROUTES,
    *admin_routes.ROUTES,
    *sign_in.ROUTES,
    *well_known.ROUTES,
    *health.ROUTES,
    *assets.ROUTES,
)
ROUTES = (*_ROUTES, openapi_route(_ROUTES))
