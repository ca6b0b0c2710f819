"""The reply of a model without tool calls as a JSON schema, for servers that enforce one."""

from collections.abc import Mapping, Sequence
from typing import Any

from apexbridge.tools.base import ToolSpec

_KEPT = frozenset({"type", "enum", "const", "required", "description"})
_MAX_DEPTH = 8


def reply_format(tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """A `response_format` that allows one call of a tool at hand, or an answer."""
    calls = [
        _object({"tool": {"const": tool.name}, "arguments": plain(tool.input_schema)})
        for tool in tools
    ]
    answer = _object({"answer": {"type": "string"}})
    schema = {"anyOf": [*calls, answer]}
    return {
        "type": "json_schema",
        "json_schema": {"name": "reply", "strict": True, "schema": schema},
    }


def plain(schema: Any, depth: int = 0) -> dict[str, Any]:
    """A schema without what the makers of grammars do not know."""
    fields: Any = schema
    is_object = isinstance(schema, Mapping)
    return _plain_object(fields, depth) if is_object and depth < _MAX_DEPTH else {}


def _plain_object(schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
    kept: dict[str, Any] = {name: schema[name] for name in schema.keys() & _KEPT}
    if depth == 0:
        kept["type"] = "object"
    properties: dict[str, Any] = schema.get("properties") or {}
    if properties:
        kept["properties"] = {name: plain(what, depth + 1) for name, what in properties.items()}
        kept["additionalProperties"] = False
    if "items" in schema:
        kept["items"] = plain(schema["items"], depth + 1)
    choices: list[Any] = schema.get("anyOf") or schema.get("oneOf") or []
    if choices:
        kept["anyOf"] = [plain(choice, depth + 1) for choice in choices]
    return kept


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }
