"""Questions of running turns, and a person's answers to them."""

from functools import partial

import anyio.to_thread
from starlette.responses import Response

from apexbridge.errors import RequestError
from apexbridge.server.admin.responses import json_response, record_not_found
from apexbridge.server.admin.schemas import (
    ApprovalAnswer,
    ApprovalList,
    ApprovalResult,
    ApprovalSchema,
)
from apexbridge.server.routing import RequestContext, Route


async def list_approvals(call: RequestContext) -> Response:
    """Everything that waits for a person."""
    waiting = call.house.approvals.pending()
    return json_response(ApprovalList(data=[ApprovalSchema.model_validate(one) for one in waiting]))


async def answer_approval(call: RequestContext) -> Response:
    """Settle one question; its turn goes on at once.

    Raises:
        RequestError: If there is no such question, or it waits no more.
    """
    given, approvals = await call.body(ApprovalAnswer), call.house.approvals
    approval_id = call.at("id")
    asked = next((one for one in approvals.pending() if one.id == approval_id), None)
    if asked is not None:  # before it takes effect: what cannot be recorded does not happen
        facts = {"tool": asked.tool, "argument": asked.argument, "key": call.caller.id}
        record = partial(call.runtime.audit.record, "approval", answer=given.answer, **facts)
        await anyio.to_thread.run_sync(record)
    if not approvals.answer(approval_id, given.answer):
        if approvals.is_settled(approval_id):
            raise RequestError(code="approval_settled", id=approval_id)
        raise record_not_found("approval", approval_id)
    return json_response(ApprovalResult(id=approval_id, answer=given.answer))


ROUTES: tuple[Route, ...] = (
    Route(
        method="GET",
        path="/v1/approvals",
        endpoint=list_approvals,
        summary="List the questions that wait for an answer",
        scope="admin",
        gives=ApprovalList,
    ),
    Route(
        method="POST",
        path="/v1/approvals/{id}",
        endpoint=answer_approval,
        summary="Answer a question: once, always, or no",
        scope="admin",
        takes=ApprovalAnswer,
        gives=ApprovalResult,
        errors=(404, 409),
    ),
)
