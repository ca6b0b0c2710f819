"""What a request gets that cannot be answered."""

import orjson
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from apexbridge import wording
from apexbridge.errors import ApexBridgeError, RequestError
from apexbridge.server.faults import error_body, error_response


def alone(error: Exception) -> Exception:
    """The one error of a group of one: task groups wrap what happens in them."""
    match error:
        case ExceptionGroup(exceptions=[Exception() as only]):
            return alone(only)
        case _:
            return error


def as_ours(error: Exception, scope: Scope) -> ApexBridgeError:
    """An error in our words; of one that nobody expected nothing is told."""
    match error:
        case ApexBridgeError():
            return error
        case HTTPException(status_code=405):
            return RequestError(
                code="method_not_allowed", method=scope["method"], path=scope["path"]
            )
        case HTTPException(status_code=404):
            return RequestError(code="route_unknown", path=scope["path"])
        case HTTPException():
            return RequestError(str(error.detail))
        case _:
            return ApexBridgeError(code="server_failed")


def refusal(error: Exception, scope: Scope) -> Response:
    """The answer, in the language that the client asks for."""
    answer = error_response(as_ours(error, scope), _language(scope))
    if isinstance(error, HTTPException):
        answer.headers.update(error.headers or {})
    return answer


def last_event(error: ApexBridgeError, scope: Scope) -> bytes:
    """How a stream of events ends that has begun well."""
    body = orjson.dumps(error_body(error, _language(scope)))
    return b"data: " + body + b"\n\ndata: [DONE]\n\n"


def _language(scope: Scope) -> wording.Language:
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    wanted = next((value for name, value in headers if name == b"accept-language"), b"")
    return wording.language_of(wanted.decode("latin-1"))
