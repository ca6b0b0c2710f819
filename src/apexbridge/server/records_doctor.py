"""What works here, what was chosen by whom, and what was changed."""

from contextlib import nullcontext

import anyio.to_thread
from starlette.responses import Response

from apexbridge import wording
from apexbridge.errors import AuditBrokenError
from apexbridge.runtime.doctoring import examine, in_language, report, shown_settings
from apexbridge.server.base import Call, Route
from apexbridge.server.records_replies import reply
from apexbridge.server.records_shapes import (
    AuditAsked,
    AuditLine,
    AuditShape,
    DoctorShape,
    SettingsShape,
)


async def doctor(call: Call) -> Response:
    """Try everything, as `apexbridge doctor` does, in the house that is open."""
    runtime, loaded = call.runtime, call.runtime.loaded
    written = call.request.headers.get("accept-language")
    language = wording.language_of(written) if written else loaded.language
    checks = await examine(in_language(language), loaded, nullcontext(runtime))
    return reply(DoctorShape.model_validate(report(loaded, checks)))


async def settings(call: Call) -> Response:
    """Every setting, and where it comes from."""
    return reply(SettingsShape.model_validate({"data": shown_settings(call.runtime.loaded)}))


async def audit(call: Call) -> Response:
    """The latest changes, and whether the chain of all of them holds."""
    asked = call.query(AuditAsked)
    return reply(await anyio.to_thread.run_sync(_audit, call, asked.limit))


def _audit(call: Call, limit: int) -> AuditShape:
    log = call.runtime.audit
    count, broken_at = None, None
    try:
        count = log.verify()
    except AuditBrokenError as error:
        broken_at = int(str(error.details["line"]))
    lines = [AuditLine.model_validate(record) for record in log.latest(limit)]
    return AuditShape(data=lines, holds=broken_at is None, records=count, broken_at=broken_at)


ROUTES: tuple[Route, ...] = (
    Route(
        method="GET",
        path="/v1/doctor",
        endpoint=doctor,
        summary="Tell what works here",
        scope="admin",
        gives=DoctorShape,
    ),
    Route(
        method="GET",
        path="/v1/settings",
        endpoint=settings,
        summary="List the settings, and where each comes from",
        scope="admin",
        gives=SettingsShape,
    ),
    Route(
        method="GET",
        path="/v1/audit",
        endpoint=audit,
        summary="List the latest changes, and tell whether their chain holds",
        scope="admin",
        asks=AuditAsked,
        gives=AuditShape,
    ),
)
