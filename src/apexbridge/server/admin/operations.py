"""Operator endpoints: pending approvals, diagnostics, settings and the audit log."""

from contextlib import nullcontext
from functools import partial

import anyio.to_thread
from starlette.responses import Response

from apexbridge import locales
from apexbridge.errors import AuditBrokenError, RequestError
from apexbridge.runtime.diagnostics import (
    checks_to_json,
    effective_settings,
    run_checks,
    translator,
)
from apexbridge.server.admin.history import record_not_found
from apexbridge.server.admin.schemas import (
    ApprovalAnswer,
    ApprovalList,
    ApprovalResult,
    ApprovalSchema,
    AuditPage,
    AuditQuery,
    AuditRecordSchema,
    DiagnosticsSchema,
    SettingsSchema,
)
from apexbridge.server.routing import RequestContext, Router, json_response

router = Router("/v1", scope="admin")


@router.get("/approvals", response=ApprovalList)
async def list_approvals(ctx: RequestContext) -> Response:
    """List the pending approvals."""
    pending = ctx.state.approvals.pending()
    return json_response(ApprovalList(data=[ApprovalSchema.model_validate(one) for one in pending]))


@router.post("/approvals/{id}", body=ApprovalAnswer, response=ApprovalResult, errors=(404, 409))
async def answer_approval(ctx: RequestContext) -> Response:
    """Answer a pending approval; its turn resumes at once."""
    body, approvals = await ctx.body(ApprovalAnswer), ctx.state.approvals
    approval_id = ctx.path_param("id")
    pending = next((one for one in approvals.pending() if one.id == approval_id), None)
    if pending is not None:
        if body.answer in {"always", "always_prefix"}:
            # Before anything is settled: an answer that cannot be stored is not given.
            await anyio.to_thread.run_sync(ctx.runtime.chat_service.check_approvals)
        # Audited before it takes effect: an answer that cannot be recorded is not given.
        facts = {"tool": pending.tool, "argument": pending.argument, "key": ctx.caller.id}
        record = partial(ctx.runtime.audit.record, "approval", answer=body.answer, **facts)
        await anyio.to_thread.run_sync(record)
    if not approvals.answer(approval_id, body.answer):
        if approvals.is_settled(approval_id):
            raise RequestError(code="approval_settled", id=approval_id)
        raise record_not_found("approval", approval_id)
    return json_response(ApprovalResult(id=approval_id, answer=body.answer))


@router.get("/doctor", response=DiagnosticsSchema)
async def show_diagnostics(ctx: RequestContext) -> Response:
    """Run the checks of `apexbridge doctor` against the running server."""
    runtime, loaded = ctx.runtime, ctx.runtime.config
    header = ctx.request.headers.get("accept-language")
    language = locales.parse_language(header) if header else loaded.language
    checks = await run_checks(translator(language), loaded, nullcontext(runtime))
    return json_response(DiagnosticsSchema.model_validate(checks_to_json(loaded, checks)))


@router.get("/settings", response=SettingsSchema)
async def show_settings(ctx: RequestContext) -> Response:
    """List the settings with the origin of each; secrets are redacted."""
    settings = effective_settings(ctx.runtime.config)
    return json_response(SettingsSchema.model_validate({"data": settings}))


@router.get("/audit", query=AuditQuery, response=AuditPage)
async def show_audit_log(ctx: RequestContext) -> Response:
    """Show the latest audit records, and verify the hash chain of all."""
    query = ctx.query(AuditQuery)
    return json_response(await anyio.to_thread.run_sync(_audit_page, ctx, query.limit))


def _audit_page(ctx: RequestContext, limit: int) -> AuditPage:
    log = ctx.runtime.audit
    count, broken_at = None, None
    try:
        count = log.verify()
    except AuditBrokenError as error:
        broken_at = int(str(error.details["line"]))
    records = [AuditRecordSchema.model_validate(record) for record in log.latest(limit)]
    return AuditPage(data=records, intact=broken_at is None, records=count, broken_at=broken_at)
