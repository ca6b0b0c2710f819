"""Every route of the server."""

from apexbridge.server import (
    chat,
    console_files,
    health,
    records,
    signing_in,
    skills_routes,
    well_known,
)
from apexbridge.server.base import Route
from apexbridge.server.openapi import openapi_route

_ROUTES: tuple[Route, ...] = (
    *chat.ROUTES,
    *skills_routes.ROUTES,
    *records.ROUTES,
    *signing_in.ROUTES,
    *well_known.ROUTES,
    *health.ROUTES,
    *console_files.ROUTES,
)
ROUTES = (*_ROUTES, openapi_route(_ROUTES))
