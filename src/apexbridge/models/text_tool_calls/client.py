"""Model clients with text tool calls: prompted, parsed strictly, corrected once."""

import json
import re
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

from apexbridge.errors import ModelError
from apexbridge.messages import AssistantMessage, SystemMessage, ToolCall, UserMessage
from apexbridge.models.base import (
    TOOL_PARAMETERS,
    FinishReason,
    ModelClient,
    ModelDelta,
    ModelRequest,
    Usage,
)
from apexbridge.models.text_tool_calls.parser import ParsedReply, ReplyStreamParser
from apexbridge.models.text_tool_calls.prompt import MAX_EXAMPLES, to_text_prompt
from apexbridge.tools.base import ToolSpec

_KEPT_KEYWORDS = frozenset({"type", "enum", "const", "required", "description"})
_MAX_DEPTH = 8


def response_format(tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """Build a `response_format` that allows one call of an available tool, or an answer."""
    calls = [
        _strict_object(
            {"tool": {"const": tool.name}, "arguments": simplify_schema(tool.input_schema)}
        )
        for tool in tools
    ]
    answer = _strict_object({"answer": {"type": "string"}})
    schema = {"anyOf": [*calls, answer]}
    return {
        "type": "json_schema",
        "json_schema": {"name": "reply", "strict": True, "schema": schema},
    }


def simplify_schema(schema: Any, depth: int = 0) -> dict[str, Any]:
    """Reduce a JSON schema to the keywords that constrained-decoding grammars support."""
    fields: Any = schema
    is_object = isinstance(schema, Mapping)
    return _simplify_object(fields, depth) if is_object and depth < _MAX_DEPTH else {}


def _simplify_object(schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
    kept: dict[str, Any] = {name: schema[name] for name in schema.keys() & _KEPT_KEYWORDS}
    if depth == 0:
        kept["type"] = "object"
    properties: dict[str, Any] = schema.get("properties") or {}
    if properties:
        kept["properties"] = {
            name: simplify_schema(what, depth + 1) for name, what in properties.items()
        }
        kept["additionalProperties"] = False
    if "items" in schema:
        kept["items"] = simplify_schema(schema["items"], depth + 1)
    choices: list[Any] = schema.get("anyOf") or schema.get("oneOf") or []
    if choices:
        kept["anyOf"] = [simplify_schema(choice, depth + 1) for choice in choices]
    return kept


def _strict_object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


_CORRECTION_PROMPT = """\
Your reply could not be used: {problem}. Reply again with ONE JSON object and nothing \
else: {{"tool": "NAME", "arguments": {{...}}}} or {{"answer": "..."}}."""
_TOOLS_UNSUPPORTED = re.compile(
    r"(?:tool|function)[\s_-]*(?:s|use|call(?:s|ing)?|choice|param)?\b[^.]{0,40}?"
    r"(?:not (?:be )?(?:supported|enabled|available)|unsupported|requires? --)"
    r"|(?:not|n't|no endpoints found that) support (?:\w+ ){0,3}?(?:tool|function)"
    r"|(?:unknown|unrecognized|unexpected|extra)[^.]{0,60}\btools?\b",
    re.IGNORECASE,
)


def refuses_tools(error: ModelError) -> bool:
    """Say whether an error means that the model does not support tools."""
    return _TOOLS_UNSUPPORTED.search(error.message) is not None


class TextToolCallModel:
    """Model client that asks for tool calls as JSON text.

    A malformed call is returned to the model once, with the error; after that it is plain text.
    With `has_schema` the server enforces a JSON schema. A request without tools, and without calls
    in its history, is passed on unchanged. Errors are those of the wrapped client.
    """

    def __init__(
        self, inner: ModelClient, *, has_schema: bool = False, examples: int = MAX_EXAMPLES
    ) -> None:
        self._inner = inner
        self._has_schema = has_schema
        self._examples = examples

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[ModelDelta]]:
        """Open a stream of deltas; leaving the block closes the connection."""
        if not request.tools and not _has_calls(request):
            async with self._inner.stream(request) as deltas:
                yield deltas
        else:
            async with aclosing(self._deltas(request)) as deltas:
                yield deltas

    async def _deltas(self, request: ModelRequest) -> AsyncGenerator[ModelDelta]:
        sent = self._to_text_request(request)
        names = frozenset(tool.name for tool in request.tools)
        usage, is_last = Usage(), False
        while True:
            parser = ReplyStreamParser(names)
            finish: FinishReason | None = None
            async with self._inner.stream(sent) as stream:
                async for delta in stream:
                    if delta.usage:
                        usage += delta.usage
                    finish = delta.finish_reason or finish
                    if delta.reasoning:
                        yield ModelDelta(reasoning=delta.reasoning)
                    if visible := parser.feed(delta.text):
                        yield visible
            parsed = parser.finish()
            if not parsed.problem or is_last or finish in {"length", "content_filter"}:
                break
            is_last = True
            sent = _correction_request(sent, parser.raw, parsed.problem)
        for delta in _final_deltas(parsed, usage, finish):
            yield delta

    def _to_text_request(self, request: ModelRequest) -> ModelRequest:
        messages = to_text_prompt(request.messages, request.tools, examples=self._examples)
        if not request.tools:
            return replace(request, messages=messages)
        schema = response_format(request.tools) if self._has_schema else None
        if request.response_format:
            wanted = json.dumps(request.response_format, ensure_ascii=False)
            rule = SystemMessage(text=f"The text of an answer must itself fit: {wanted}")
            messages = (messages[0], rule, *messages[1:])
        extra = {key: value for key, value in request.extra.items() if key not in TOOL_PARAMETERS}
        return replace(request, messages=messages, tools=(), response_format=schema, extra=extra)


class ToolFallbackModel:
    """Model client that uses native tool calls, and text once the server refuses tools.

    `refused` has the base URL and model of each refusal; clients may share one set. All other
    errors are those of the wrapped client.
    """

    def __init__(
        self,
        inner: ModelClient,
        *,
        base_url: str,
        text: ModelClient | None = None,
        refused: set[tuple[str, str]] | None = None,
    ) -> None:
        self._inner = inner
        self._base_url = base_url
        self._text = text or TextToolCallModel(inner)
        self._refused = set[tuple[str, str]]() if refused is None else refused

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[ModelDelta]]:
        """Open a stream of deltas; leaving the block closes the connection."""
        async with AsyncExitStack() as stack:
            yield await self._open(request, stack)

    async def _open(
        self, request: ModelRequest, stack: AsyncExitStack
    ) -> AsyncIterator[ModelDelta]:
        key = (self._base_url, request.model)
        if key not in self._refused:
            try:
                return await stack.enter_async_context(self._inner.stream(request))
            except ModelError as error:
                if not (request.tools and refuses_tools(error)):
                    raise
                self._refused.add(key)
        return await stack.enter_async_context(self._text.stream(request))


def _has_calls(request: ModelRequest) -> bool:
    return any(
        isinstance(message, AssistantMessage) and message.tool_calls for message in request.messages
    )


def _correction_request(sent: ModelRequest, reply: str, problem: str) -> ModelRequest:
    correction = UserMessage(text=_CORRECTION_PROMPT.format(problem=problem))
    return replace(sent, messages=(*sent.messages, AssistantMessage(text=reply), correction))


def _final_deltas(
    parsed: ParsedReply, usage: Usage, finish: FinishReason | None
) -> list[ModelDelta]:
    deltas = [ModelDelta(reasoning=parsed.reasoning)] if parsed.reasoning else []
    if parsed.text:
        deltas.append(ModelDelta(text=parsed.text))
    if not parsed.tool:
        return [*deltas, ModelDelta(usage=usage, finish_reason=finish)]
    call_id = f"call_{uuid.uuid4().hex}"
    call = ToolCall(id=call_id, name=parsed.tool, arguments=parsed.arguments)
    return [*deltas, ModelDelta(tool_calls=(call,), usage=usage, finish_reason="tool_calls")]
