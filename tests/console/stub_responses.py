"""Stub responses for states that a real server cannot be put into on demand."""

import time
from collections.abc import Mapping
from typing import Any

from apexbridge.api_keys import SCOPES

Replies = Mapping[str, Any]

_NOW = time.time()
_HASH = "9f2c7be1d04a" + "5" * 52


def skill(name: str, description: str, **more: Any) -> dict[str, Any]:
    """A skill of a list."""
    return {
        "id": f"skill_{name}", "object": "skill", "type": "skill", "name": name,
        "display_name": name, "display_title": name, "description": description,
        "created_at": int(_NOW) - 90_000, "updated_at": int(_NOW) - 4_000,
        "default_version": _HASH[:12], "latest_version": _HASH[:12], "latest_version_id": "v1",
        "source": {"type": "custom", "id": "installed"}, "state": "enabled", "origin": "installed",
        "writable": True, "trusted": True, "pinned": False, "size": 18_400, "files": 7,
        "sha256": _HASH, "version": "1.2.0",
        "findings": {"worst": None, "count": 0, "scanned": True}, "has_script": True,
        "user_invocable": True, "model_invocable": True, **more,
    }  # fmt: skip


def parts(**more: float) -> dict[str, Any]:
    """What a score is made of."""
    given: dict[str, Any] = {
        "dense": 0.71, "view": 0.83, "view_text": "turn rows of numbers into a chart",
        "lexical": 0.55, "words": {"chart": 2.4, "number": 1.1}, "meaning": 4.2, "usage": 0.1,
        "language": "en", "total": 6.3,
    }  # fmt: skip
    return {**given, **more}


_SPANS = [
    ("search", "retrieval", 0.0, 0.004, 0, 0, False, 0),
    ("model", "qwen-plus", 0.004, 1.21, 2_130, 88, False, 0),
    ("approval", "Bash", 1.22, 2.4, 0, 0, False, 0),
    ("tool", "Bash", 3.62, 0.31, 0, 0, True, 0),
    ("fork", "csv-report", 3.95, 2.2, 0, 0, False, 0),
    ("model", "qwen-plus", 3.97, 0.9, 1_200, 64, False, 1),
    ("tool", "SkillScript", 4.9, 1.1, 0, 0, False, 1),
    ("hook", "PostToolUse", 6.02, 0.05, 0, 0, False, 1),
    ("model", "qwen-plus", 6.2, 1.4, 2_900, 190, False, 0),
]
_FIELDS = (
    "kind", "name", "start", "seconds", "input_tokens", "output_tokens", "is_error", "depth",
)  # fmt: skip


def turn(turn_id: str = "4be19c22d0a1") -> dict[str, Any]:
    """The record of a turn in which everything happens."""
    return {
        "object": "turn", "id": turn_id, "session": "console:c-1a2b3c4d5e6f", "at": _NOW - 600,
        "finish": "stop", "seconds": 7.62, "rounds": 3, "input_tokens": 6_230,
        "output_tokens": 342, "tools": ["Bash", "SkillScript"], "skills": ["csv-report"],
        "confidence": 0.93, "request_chars": 64,
        "candidates": [
            {"name": "csv-report", "score": 0.91, "parts": parts(), "outcome": "offered"},
            {"name": "pdf-tables", "score": 0.34, "parts": parts(dense=0.4), "outcome": "weak"},
            {"name": "deploy", "score": 0.12, "parts": parts(total=0.9), "outcome": "denied"},
        ],
        "listed": ["csv-report", "pdf-tables", "garden"], "shortened": ["pdf-tables"],
        "dropped": [], "path_inactive": 2, "path_activated": ["garden"],
        "calls": [
            {"tool": "Bash", "seconds": 0.31, "argument_chars": 40, "result_chars": 120,
             "code": "tool_failed", "session_id": ""},
        ],
        "refusals": ["deploy: permission_denied"], "compacted": 0, "model_seconds": 3.5,
        "tool_seconds": 1.4, "search_seconds": 0.004,
        "spans": [dict(zip(_FIELDS, span, strict=True)) for span in _SPANS], "spans_dropped": 0,
    }  # fmt: skip


def list_response(*data: Any, **more: Any) -> dict[str, Any]:
    """A list."""
    return {"object": "list", "data": list(data), "has_more": False, **more}


def error_response(message: str, hint: str = "") -> dict[str, Any]:
    """What the server says where it cannot."""
    return {"error": {"message": message, "hint": hint, "code": "x", "type": "server_error"}}


_RUN = {
    "id": "run_01", "at": _NOW - 300, "skill": "csv-report", "script": "scripts/main.py",
    "sha256": _HASH, "isolation": "bubblewrap", "outcome": "ok", "exit_code": 0,
    "seconds": 0.42,
}  # fmt: skip
_WHOLE_RUN = {
    **_RUN, "object": "run", "argument_chars": [11, 4],
    "limits": {"wall_seconds": 60, "memory_bytes": 1_073_741_824, "processes": 64},
    "stdout": "rows 120\nmean 41.7\n", "stderr": "one column has no name\n",
    "files": ["report.html"], "truncated": False, "error": "",
}  # fmt: skip
_APPROVAL = {
    "id": "approval_1", "session": "console:c-1a2b", "tool": "Bash",
    "argument": "git push --force origin main", "argument_chars": 28,
    "reason": "ask: Bash(git push:*)", "created_at": _NOW, "deadline": _NOW + 3_600,
    "choices": ["once", "always", "no"], "rule": "Bash(git push:*)",
}  # fmt: skip
_SKILLS = (
    skill("csv-report", "Sums a CSV file up and draws charts.", origin="bundled", writable=False),
    skill("garden", "Plans a vegetable garden by season, soil and space.", pinned=True),
    skill("pdf-tables", "Reads tables out of PDF files. 读取表格。", state="disabled"),
    skill("deploy", "Brings the project to the test machines.", origin="project", trusted=False,
          findings={"worst": "warn", "count": 2, "scanned": True}),
)  # fmt: skip
_SESSION = {"id": "c-1a2b", "changed": _NOW - 60, "title": "Summarise sales.csv by month"}
_WHO = {"signed_in": True, "scopes": list(SCOPES), "version": "0.1.0", "language": "en"}


def default_responses() -> dict[str, Any]:
    """Every address and what is said there: a server in which much has happened."""
    return {
        "/v1/console/session": _WHO,
        "/v1/approvals": list_response(_APPROVAL),
        "/v1/sessions": list_response(_SESSION),
        "/v1/turns": list_response(turn()),
        "/v1/turns/4be19c22d0a1": turn(),
        "/v1/runs": list_response(_RUN),
        "/v1/runs/run_01": _WHOLE_RUN,
        "/v1/skills": list_response(*_SKILLS, total=len(_SKILLS), first_id="a", last_id="b"),
    }
