"""Renamed response fields: the former names are still sent, and marked as deprecated in OpenAPI."""

from typing import Any

import pytest
from pydantic import BaseModel

from apexbridge.mcp_server.schemas import LoadedSkill
from apexbridge.server.admin.schemas import (
    ApprovalSchema,
    AuditPage,
    CandidateSchema,
    TurnDetail,
)
from apexbridge.server.metrics import Metrics
from apexbridge.server.openapi import build_document
from apexbridge.server.routes import ROUTES
from apexbridge.server.skills.run_schemas import ScriptRunSchema
from apexbridge.server.skills.schemas import FindingCountSchema

_RENAMED: tuple[tuple[type[BaseModel], str, str], ...] = (
    (CandidateSchema, "fate", "outcome"),
    (TurnDetail, "asleep", "path_inactive"),
    (TurnDetail, "woken", "path_activated"),
    (ApprovalSchema, "asked", "created_at"),
    (AuditPage, "holds", "intact"),
    (FindingCountSchema, "looked", "scanned"),
    (ScriptRunSchema, "not_taken", "skipped_files"),
)
_TURN: dict[str, Any] = {
    "id": "t", "session": "s", "at": 1.0, "finish": "stop", "seconds": 1.0, "rounds": 1,
    "input_tokens": 1, "output_tokens": 1, "tools": [], "skills": [], "confidence": 0.5,
    "request_chars": 1, "candidates": [{"name": "a", "score": 0.5, "parts": {}, "fate": "weak"}],
    "listed": [], "shortened": [], "dropped": [], "asleep": 2, "woken": ["garden"], "calls": [],
    "refusals": [], "compacted": 0, "model_seconds": 0.0, "tool_seconds": 0.0,
    "search_seconds": 0.0, "spans": [],
}  # fmt: skip


@pytest.mark.parametrize(("model", "old", "new"), _RENAMED)
def test_openapi_marks_the_former_name_as_deprecated(
    model: type[BaseModel], old: str, new: str
) -> None:
    schemas = build_document(ROUTES)["components"]["schemas"]
    properties = schemas[model.__name__]["properties"]
    assert properties[old]["deprecated"] is True
    assert f"`{new}`" in properties[old]["description"]
    assert "deprecated" not in properties[new]


def test_a_stored_turn_with_the_former_names_is_sent_with_both() -> None:
    turn = TurnDetail.model_validate(_TURN).model_dump()
    assert (turn["asleep"], turn["path_inactive"]) == (2, 2)
    assert turn["woken"] == turn["path_activated"] == ["garden"]
    candidate = turn["candidates"][0]
    assert candidate["fate"] == candidate["outcome"] == "weak"


def test_the_other_responses_are_sent_with_both_names() -> None:
    counts = FindingCountSchema(worst=None, count=0, scanned=True).model_dump()
    assert counts["looked"] is counts["scanned"] is True
    audit = AuditPage(data=[], intact=False, records=None, broken_at=3).model_dump()
    assert audit["holds"] is audit["intact"] is False
    assert "is_cut" in LoadedSkill.model_fields


def test_the_gauge_of_requests_in_progress_has_both_names() -> None:
    metrics = Metrics()
    metrics.set_gauges(in_progress=3, skills=1, index=None, sandbox="")
    text = metrics.render().decode()
    assert "apexbridge_requests_in_progress 3.0" in text
    assert "apexbridge_requests_going 3.0" in text
