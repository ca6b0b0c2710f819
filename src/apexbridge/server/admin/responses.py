"""What the routes of records share: how they answer, and whose records a caller may see."""

import json

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError
from starlette.responses import Response

from apexbridge.errors import RequestError
from apexbridge.server.routing import RequestContext


def json_response(shape: BaseModel) -> Response:
    """A shape as JSON."""
    try:
        text = shape.model_dump_json()
    except PydanticSerializationError:  # half a character somewhere: JSON can carry it escaped
        text = json.dumps(shape.model_dump(mode="python"))
    return Response(text, media_type="application/json")


def visible_prefix(call: RequestContext) -> str:
    """How the ids of the sessions begin that a caller may see; all do for `admin`."""
    return "" if call.caller.may("admin") else f"{call.caller.id}:"


def qualified_session_id(call: RequestContext, written: str) -> str:
    """The whole id of a session that a caller means; its own ones may be called by their names."""
    own = f"{call.caller.id}:"
    if written.startswith(own) or call.caller.may("admin"):
        return written
    return own + written


def record_not_found(kind: str, written: str) -> RequestError:
    """What is said of a record that is not there, or that is none of the caller's business."""
    return RequestError(code="record_unknown", kind=kind, id=written[:200])
