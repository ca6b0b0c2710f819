"""The OpenAPI document: every route as it says of itself what it takes and gives."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, Literal

import orjson
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.responses import Response

from apexbridge.server.routing import RequestContext, Route

Schema = dict[str, Any]

_REF = "#/components/schemas/{model}"
_PATH_PARAMETER = re.compile(r"\{(\w+)(?::(\w+))?\}")
_COMMON_ERRORS = (400, 401, 403, 408, 413, 414, 421, 429, 500, 503)
_BODY_ERRORS = (415,)
_BODILESS_STATUSES = frozenset({304})
_REDIRECTS = range(300, 400)
_JSON = "application/json"
_ERROR: Schema = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code", "hint"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": "string", "description": "Stable, and never translated."},
                "hint": {"type": "string", "description": "How to mend it."},
                "findings": {
                    "type": "array",
                    "items": {"type": "object"},
                    "description": "What a skill was refused for.",
                },
                "problems": {
                    "type": "array",
                    "items": {"type": "object"},
                    "description": "Every rule that a skill breaks.",
                },
            },
        }
    },
}
_FORM: Schema = {
    "type": "object",
    "required": ["files"],
    "properties": {
        "files": {
            "description": "One zip, or the files of a folder, each named `folder/path`.",
            "type": "array",
            "items": {"type": "string", "format": "binary"},
        },
        "default": {
            "description": "Of a version: whether it is used from now on.",
            "type": "boolean",
        },
    },
}
_SECURITY: Schema = {
    "key": {"type": "http", "scheme": "bearer", "description": "A key of `apexbridge keys`."},
    "api_key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    "console": {"type": "apiKey", "in": "cookie", "name": "apexbridge_session"},
}


def openapi_route(routes: Iterable[Route]) -> Route:
    """The route that serves the document of all others, and of itself."""

    @cache
    def written() -> bytes:
        return orjson.dumps(build_document((*routes, route)))

    async def give(call: RequestContext) -> Response:
        return Response(written(), media_type=_JSON)

    route = Route(
        method="GET",
        path="/openapi.json",
        endpoint=give,
        summary="This document",
        scope=None,
    )
    routes = tuple(routes)
    return route


def build_document(routes: Sequence[Route]) -> Schema:
    """Describe routes, as OpenAPI 3.1 wants it."""
    models = _models(routes)
    refs, definitions = models_json_schema(
        [(model, mode) for model, mode in models], ref_template=_REF
    )
    shapes = {key: refs[key] for key in models}
    paths: dict[str, Schema] = {}
    for route in routes:
        operations = paths.setdefault(_PATH_PARAMETER.sub(r"{\1}", route.path), {})
        operations[route.method.lower()] = _operation(route, shapes)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "ApexBridge",
            "version": version("apexbridge"),
            "description": "Skills, chat and records of one server.",
        },
        "paths": paths,
        "components": {
            "schemas": {**definitions.get("$defs", {}), "Error": _ERROR},
            "securitySchemes": _SECURITY,
        },
    }


Mode = Literal["validation", "serialization"]
Key = tuple[type[BaseModel], Mode]


def _models(routes: Iterable[Route]) -> dict[Key, None]:
    """Every model once, in the order in which routes name them."""
    found = dict[Key, None]()
    for route in routes:
        if route.takes:
            found[route.takes, "validation"] = None
        if route.gives:
            found[route.gives, "serialization"] = None
    return found


def _operation(route: Route, shapes: Mapping[Key, Schema]) -> Schema:
    told: Schema = {
        "summary": route.summary,
        "operationId": _operation_id(route),
        "tags": [_tag(route)],
        "parameters": [
            *_path_parameters(route),
            *_query_parameters(route),
            *_header_parameters(route),
        ],
        "responses": _responses(route, shapes),
    }
    body = _request_body(route, shapes)
    if body is not None:
        told["requestBody"] = body
    if route.scope is not None:
        told["security"] = [{name: []} for name in _SECURITY]
        told["description"] = f"Needs the scope `{route.scope}`."
    return told


def _operation_id(route: Route) -> str:
    words = re.findall(r"\w+", _PATH_PARAMETER.sub(r"\1", route.path.removeprefix("/v1")))
    return "_".join((route.method.lower(), *(words or ["root"])))


def _tag(route: Route) -> str:
    words = re.findall(r"[\w.-]+", route.path.removeprefix("/v1"))
    return words[0] if words else "server"


def _path_parameters(route: Route) -> list[Schema]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name, _ in _PATH_PARAMETER.findall(route.path)
    ]


def _query_parameters(route: Route) -> list[Schema]:
    if route.asks is None:
        return []
    schema = route.asks.model_json_schema()
    needed = schema.get("required", [])
    return [
        {
            "name": name,
            "in": "query",
            "required": name in needed,
            "schema": {key: value for key, value in field.items() if key != "title"},
            **({"description": field["description"]} if "description" in field else {}),
        }
        for name, field in schema["properties"].items()
    ]


def _header_parameters(route: Route) -> list[Schema]:
    return [
        {"name": name, "in": "header", "required": False, "schema": {"type": "string"}}
        for name in route.headers
    ]


def _request_body(route: Route, shapes: Mapping[Key, Schema]) -> Schema | None:
    if route.uploads:
        return {"required": True, "content": {"multipart/form-data": {"schema": _FORM}}}
    if route.takes is None:
        return None
    has_needed = any(field.is_required() for field in route.takes.model_fields.values())
    schema = shapes[route.takes, "validation"]
    return {"required": has_needed, "content": {_JSON: {"schema": schema}}}


def _responses(route: Route, shapes: Mapping[Key, Schema]) -> Schema:
    good: Schema = {"description": HTTPStatus(route.status).phrase}
    if route.gives is not None:
        good["content"] = {_JSON: {"schema": shapes[route.gives, "serialization"]}}
    elif route.media and route.status not in _REDIRECTS:
        is_text = route.media.startswith(("text/", _JSON))
        schema: Schema = {} if is_text else {"type": "string", "format": "binary"}
        good["content"] = {route.media: {"schema": schema}}
    statuses = {*_COMMON_ERRORS, *route.errors}
    if route.takes is not None or route.uploads or route.method in {"POST", "PATCH"}:
        statuses |= {*_BODY_ERRORS}
    return {
        str(route.status): good,
        **{str(status): _error_response(status) for status in sorted(statuses)},
    }


def _error_response(status: int) -> Schema:
    told: Schema = {"description": HTTPStatus(status).phrase}
    if status not in _BODILESS_STATUSES:
        told["content"] = {_JSON: {"schema": {"$ref": _REF.format(model="Error")}}}
    return told
