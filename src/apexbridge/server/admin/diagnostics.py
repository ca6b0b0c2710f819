"""What works here, what was chosen by whom, and what was changed."""

from contextlib import nullcontext

import anyio.to_thread
from starlette.responses import Response

from apexbridge import locales
from apexbridge.errors import AuditBrokenError
from apexbridge.runtime.diagnostics import (
    checks_to_json,
    effective_settings,
    run_checks,
    translator,
)
from apexbridge.server.admin.responses import json_response
from apexbridge.server.admin.schemas import (
    AuditPage,
    AuditQuery,
    AuditRecordSchema,
    DiagnosticsSchema,
    SettingsSchema,
)
from apexbridge.server.routing import RequestContext, Route


async def doctor(call: RequestContext) -> Response:
    """Try everything, as `apexbridge doctor` does, in the house that is open."""
    runtime, loaded = call.runtime, call.runtime.config
    written = call.request.headers.get("accept-language")
    language = locales.parse_language(written) if written else loaded.language
    checks = await run_checks(translator(language), loaded, nullcontext(runtime))
    return json_response(DiagnosticsSchema.model_validate(checks_to_json(loaded, checks)))


async def settings(call: RequestContext) -> Response:
    """Every setting, and where it comes from."""
    return json_response(
        SettingsSchema.model_validate({"data": effective_settings(call.runtime.config)})
    )


async def audit(call: RequestContext) -> Response:
    """The latest changes, and whether the chain of all of them holds."""
    asked = call.query(AuditQuery)
    return json_response(await anyio.to_thread.run_sync(_audit_page, call, asked.limit))


def _audit_page(call: RequestContext, limit: int) -> AuditPage:
    log = call.runtime.audit
    count, broken_at = None, None
    try:
        count = log.verify()
    except AuditBrokenError as error:
        broken_at = int(str(error.details["line"]))
    lines = [AuditRecordSchema.model_validate(record) for record in log.latest(limit)]
    return AuditPage(data=lines, holds=broken_at is None, records=count, broken_at=broken_at)


ROUTES: tuple[Route, ...] = (
    Route(
        method="GET",
        path="/v1/doctor",
        endpoint=doctor,
        summary="Tell what works here",
        scope="admin",
        gives=DiagnosticsSchema,
    ),
    Route(
        method="GET",
        path="/v1/settings",
        endpoint=settings,
        summary="List the settings, and where each comes from",
        scope="admin",
        gives=SettingsSchema,
    ),
    Route(
        method="GET",
        path="/v1/audit",
        endpoint=audit,
        summary="List the latest changes, and tell whether their chain holds",
        scope="admin",
        asks=AuditQuery,
        gives=AuditPage,
    ),
)
