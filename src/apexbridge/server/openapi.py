"""OpenAPI 3.1 document, generated from the routes and their pydantic schemas."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from http import HTTPStatus
from importlib.metadata import version
from importlib.resources import files
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


def openapi_route(routes: Iterable[Route]) -> Route:
    """Create the route that serves the document, itself included."""

    @cache
    def rendered() -> bytes:
        return orjson.dumps(build_document((*routes, route)))

    async def show(ctx: RequestContext) -> Response:
        return Response(rendered(), media_type=_JSON)

    route = Route(
        method="GET", path="/openapi.json", endpoint=show, summary="OpenAPI document", scope=None
    )
    routes = tuple(routes)
    return route


def build_document(routes: Sequence[Route]) -> Schema:
    """Build the document of a set of routes."""
    models = _models(routes)
    refs, definitions = models_json_schema(list(models), ref_template=_REF)
    schemas = {key: refs[key] for key in models}
    paths: dict[str, Schema] = {}
    for route in routes:
        operations = paths.setdefault(_PATH_PARAMETER.sub(r"{\1}", route.path), {})
        operations[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "ApexBridge",
            "version": version("apexbridge"),
            "description": "Skills, chat and administration of one server.",
        },
        "paths": paths,
        "components": {
            "schemas": {**definitions.get("$defs", {}), **_components()["schemas"]},
            "securitySchemes": _components()["securitySchemes"],
        },
    }


@cache
def _components() -> Schema:
    """Load the schemas that no pydantic model has: errors, the upload form and authentication."""
    return orjson.loads((files("apexbridge.server") / "openapi_components.json").read_bytes())


Mode = Literal["validation", "serialization"]
Key = tuple[type[BaseModel], Mode]


def _models(routes: Iterable[Route]) -> dict[Key, None]:
    """Collect each schema once, in the order of the routes."""
    found = dict[Key, None]()
    for route in routes:
        if route.body:
            found[route.body, "validation"] = None
        if route.response:
            found[route.response, "serialization"] = None
    return found


def _operation(route: Route, schemas: Mapping[Key, Schema]) -> Schema:
    operation: Schema = {
        "summary": route.summary,
        "operationId": _operation_id(route),
        "tags": [_tag(route)],
        "parameters": [
            *(_text_parameter("path", name) for name, _ in _PATH_PARAMETER.findall(route.path)),
            *_query_parameters(route),
            *(_text_parameter("header", name) for name in route.headers),
        ],
        "responses": _responses(route, schemas),
    }
    body = _request_body(route, schemas)
    if body is not None:
        operation["requestBody"] = body
    if route.scope is not None:
        operation["security"] = [{name: []} for name in _components()["securitySchemes"]]
        operation["description"] = f"Requires the scope `{route.scope}`."
    return operation


def _operation_id(route: Route) -> str:
    words = re.findall(r"\w+", _PATH_PARAMETER.sub(r"\1", route.path.removeprefix("/v1")))
    return "_".join((route.method.lower(), *(words or ["root"])))


def _tag(route: Route) -> str:
    words = re.findall(r"[\w.-]+", route.path.removeprefix("/v1"))
    return words[0] if words else "server"


def _text_parameter(where: Literal["path", "header"], name: str) -> Schema:
    return {"name": name, "in": where, "required": where == "path", "schema": {"type": "string"}}


def _query_parameters(route: Route) -> list[Schema]:
    if route.query is None:
        return []
    schema = route.query.model_json_schema()
    required = schema.get("required", [])
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "schema": {key: value for key, value in field.items() if key != "title"},
            **({"description": field["description"]} if "description" in field else {}),
        }
        for name, field in schema["properties"].items()
    ]


def _request_body(route: Route, schemas: Mapping[Key, Schema]) -> Schema | None:
    form = {"multipart/form-data": {"schema": _components()["form"]}} if route.multipart else {}
    if route.body is None:
        return {"required": True, "content": form} if form else None
    has_required = any(field.is_required() for field in route.body.model_fields.values())
    schema = schemas[route.body, "validation"]
    return {"required": has_required, "content": {_JSON: {"schema": schema}, **form}}


def _responses(route: Route, schemas: Mapping[Key, Schema]) -> Schema:
    success: Schema = {"description": HTTPStatus(route.status).phrase}
    if route.response is not None:
        success["content"] = {_JSON: {"schema": schemas[route.response, "serialization"]}}
    elif route.media_type and route.status not in _REDIRECTS:
        is_text = route.media_type.startswith(("text/", _JSON))
        schema: Schema = {} if is_text else {"type": "string", "format": "binary"}
        success["content"] = {route.media_type: {"schema": schema}}
    statuses = {*_COMMON_ERRORS, *route.errors}
    if route.body is not None or route.multipart or route.method in {"POST", "PATCH"}:
        statuses |= {*_BODY_ERRORS}
    return {
        str(route.status): success,
        **{str(status): _error_response(status) for status in sorted(statuses)},
    }


def _error_response(status: int) -> Schema:
    response: Schema = {"description": HTTPStatus(status).phrase}
    if status not in _BODILESS_STATUSES:
        response["content"] = {_JSON: {"schema": {"$ref": _REF.format(model="Error")}}}
    return response
