"""Route table of the server; endpoints are declared by decorators such as `@router.get`."""

from apexbridge.server import health
from apexbridge.server.admin import events, history, operations, run_files, secrets
from apexbridge.server.chat import completions
from apexbridge.server.console import routes as console
from apexbridge.server.openapi import openapi_route
from apexbridge.server.routing import Route
from apexbridge.server.skills import (
    dependencies,
    install,
    read,
    scripts,
    versions,
    well_known,
    write,
)

_MODULES = (
    completions, install, read, write, versions, scripts, dependencies, well_known, history,
    operations, run_files, events, secrets, console, health,
)  # fmt: skip
_ROUTES: tuple[Route, ...] = tuple(route for module in _MODULES for route in module.router.routes)
ROUTES = (*_ROUTES, openapi_route(_ROUTES))
