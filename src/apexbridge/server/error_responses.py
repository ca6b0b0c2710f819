"""Error responses: HTTP status and JSON body of each error, in the format of vendors' clients."""

import errno
import os
from collections.abc import Mapping
from http import HTTPStatus

import orjson
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from apexbridge import locales
from apexbridge.errors import (
    ApexBridgeError,
    ArchiveError,
    ConfigError,
    DependencyError,
    EvalInputError,
    ModelError,
    ModelRejectedError,
    PermissionDeniedError,
    RequestError,
    RetrievalError,
    SandboxUnavailableError,
    SkillChangedError,
    SkillDangerousError,
    SkillExistsError,
    SkillInvalidError,
    SkillNotFoundError,
    SkillNotInvocableError,
    SkillReadOnlyError,
    SkillVersionError,
    SourceError,
    StateDamagedError,
    StorageError,
    ToolError,
    UnsafePathError,
)
from apexbridge.redaction import redact
from apexbridge.runtime.hidden_paths import hide_paths, map_strings
from apexbridge.skills.model import Problem

_CODES_BY_STATUS: Mapping[int, tuple[str, ...]] = {
    400: ("request_invalid",),
    401: ("key_missing", "key_invalid", "token_invalid"),
    403: ("scope_missing", "origin_refused", "websocket_refused"),
    404: ("route_unknown", "record_unknown", "model_unknown", "secret_unknown"),
    405: ("method_not_allowed",),
    408: ("request_slow",),
    409: ("skill_pinned", "version_in_use", "version_older", "approval_settled"),
    413: ("body_too_large", "zip_too_large", "input_files_too_large"),
    414: ("address_too_long",),
    415: ("content_type_unsupported",),
    421: ("host_unknown",),
    431: ("headers_too_large",),
    422: (
        "field_not_editable",
        "remote_refused",
        "source_address_invalid",
        "source_choice",
        "source_content_changed",
        "source_no_skills",
        "source_path_unknown",
        "source_ref_unknown",
        "source_refused",
        "source_skill_unknown",
    ),
    429: ("rate_limited",),
    503: (
        "dependencies_sandbox",
        "dependencies_offline",
        "server_busy",
        "server_stopping",
        "data_in_use",
    ),
}
_STATUS_BY_CODE = {code: status for status, codes in _CODES_BY_STATUS.items() for code in codes}
_CLASSES_BY_STATUS: Mapping[int, tuple[type[ApexBridgeError], ...]] = {
    # ModelRejectedError is a ModelError: 400 comes before 502.
    400: (RequestError, ModelRejectedError),
    403: (SkillReadOnlyError, PermissionDeniedError),
    404: (SkillNotFoundError, SkillVersionError, UnsafePathError),
    409: (SkillExistsError, SkillNotInvocableError),
    412: (SkillChangedError,),
    422: (DependencyError, SkillInvalidError, ArchiveError, EvalInputError, ToolError, ConfigError),
    502: (SourceError, ModelError),
    503: (RetrievalError, SandboxUnavailableError, StateDamagedError),
}
_ERROR_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
}
_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_SQLITE_FULL = frozenset({13, 10 | 19 << 8})
"""SQLITE_FULL, and SQLITE_IOERR_SHMSIZE: the index of the write-ahead log could not grow."""
_MAX_CAUSES = 10
_SERVER_ERROR = 500


def http_status(error: ApexBridgeError) -> int:
    """Map an error to an HTTP status: by its code, an upstream's status, or its class."""
    if error.code in _STATUS_BY_CODE:
        return _STATUS_BY_CODE[error.code]
    upstream = error.details.get("status")
    if isinstance(error, ModelError) and isinstance(upstream, int):
        return upstream
    if isinstance(error, StorageError) and _is_disk_full(error):
        return HTTPStatus.INSUFFICIENT_STORAGE
    by_class = (status for status, kinds in _CLASSES_BY_STATUS.items() if isinstance(error, kinds))
    return next(by_class, _SERVER_ERROR)


def _is_disk_full(error: BaseException) -> bool:
    """Return whether a full disk, or a quota, is among the causes of an error."""
    cause: BaseException | None = error
    for _ in range(_MAX_CAUSES):
        if cause is None:
            return False
        if isinstance(cause, OSError) and cause.errno in _DISK_FULL:
            return True
        # By its attribute: sqlite3 is imported by stores only.
        if getattr(cause, "sqlite_errorcode", None) in _SQLITE_FULL:
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def error_body(error: ApexBridgeError, language: locales.Language = "en") -> dict[str, object]:
    """Build the JSON body, readable by OpenAI's and Anthropic's SDKs; codes are not translated."""
    phrase, status = error.localized(language), http_status(error)
    default = "invalid_request_error" if status < _SERVER_ERROR else "server_error"
    body: dict[str, object] = {
        "message": redact(phrase.message),
        "type": _ERROR_TYPES.get(status, default),
        "param": error.details.get("param") or None,
        "code": error.code,
        "hint": redact(phrase.hint),
        **_details(error, language),
    }
    return {"error": map_strings(body, hide_paths)}


def _details(error: ApexBridgeError, language: locales.Language) -> dict[str, object]:
    """List the scanner findings or validation problems for which a skill was refused."""
    if isinstance(error, SkillDangerousError):
        return {"findings": error.report.to_json(language)["findings"]}
    if isinstance(error, SkillInvalidError):
        rules = [(problem, problem.localized(language)) for problem in error.problems]
        return {
            "problems": [
                {"code": rule.code, "where": rule.where, "message": text.message, "hint": text.hint}
                for rule, text in rules
                if isinstance(rule, Problem)
            ]
        }
    return {}


def error_response(error: Exception, scope: Scope) -> Response:
    """Build the response to a failed request, in the language of `Accept-Language`."""
    known = to_apexbridge_error(error, scope)
    status, headers = http_status(known), dict[str, str]()
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="apexbridge"'
    retry_after = known.details.get("retry_after")
    if retry_after is not None:
        headers["Retry-After"] = str(retry_after)
    if isinstance(error, HTTPException):
        headers.update(error.headers or {})
    body = orjson.dumps(error_body(known, _accept_language(scope)))
    return Response(body, status, headers, media_type="application/json")


def sse_error(error: ApexBridgeError, scope: Scope) -> bytes:
    """Encode an error as the last server-sent events of a stream whose status was already sent."""
    body = orjson.dumps(error_body(error, _accept_language(scope)))
    return b"data: " + body + b"\n\ndata: [DONE]\n\n"


def unwrap_group(error: Exception) -> Exception:
    """Return the only error of an exception group: task groups wrap what their tasks raise."""
    match error:
        case ExceptionGroup(exceptions=[Exception() as only]):
            return unwrap_group(only)
        case _:
            return error


def to_apexbridge_error(error: Exception, scope: Scope) -> ApexBridgeError:
    """Convert any exception; of an unexpected one nothing is disclosed."""
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
        case Exception() if _is_disk_full(error):
            # Wherever it was met: the client can only be told that there is no space.
            full = StorageError(os.strerror(errno.ENOSPC), path="?")
            full.__cause__ = error
            return full
        case _:
            return ApexBridgeError(code="server_failed")


def _accept_language(scope: Scope) -> locales.Language:
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    wanted = next((value for name, value in headers if name == b"accept-language"), b"")
    return locales.parse_language(wanted.decode("latin-1"))
