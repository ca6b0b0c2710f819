"""The reply of a model without tool calls as a JSON schema, for servers that enforce one."""

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
    """A `response_format` that allows one call of a tool at hand, or an answer."""
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
    """A schema without what the makers of grammars do not know."""
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
    """Whether a server says that this model takes no tools."""
    return _TOOLS_UNSUPPORTED.search(error.message) is not None


class TextToolCallModel:
    """Wraps a model client, and asks for tool calls in words.

    A reply that is meant to be a call and cannot be read is asked for once more, with what is
    wrong; after that it is given as text. With `has_schema` the server is given a schema to hold
    the reply to. A request without tools, and without calls in its history, is passed on.
    """

    def __init__(
        self, inner: ModelClient, *, has_schema: bool = False, examples: int = MAX_EXAMPLES
    ) -> None:
        self._inner = inner
        self._has_schema = has_schema
        self._examples = examples

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[ModelDelta]]:
        """Open a reply; leaving the block closes the connection.

        Raises:
            ModelError: As the wrapped client.
        """
        if not request.tools and not _has_calls(request):
            async with self._inner.stream(request) as deltas:
                yield deltas
        else:
            async with aclosing(self._deltas(request)) as deltas:
                yield deltas

    async def _deltas(self, request: ModelRequest) -> AsyncGenerator[ModelDelta]:
        asked = self._in_words(request)
        names = frozenset(tool.name for tool in request.tools)
        usage, is_last = Usage(), False
        while True:
            reply = ReplyStreamParser(names)
            finish: FinishReason | None = None
            async with self._inner.stream(asked) as stream:
                async for delta in stream:
                    usage = _add_usage(usage, delta.usage)
                    finish = delta.finish_reason or finish
                    if delta.reasoning:
                        yield ModelDelta(reasoning=delta.reasoning)
                    if shown := reply.feed(delta.text):
                        yield shown
            verdict = reply.end()
            if not verdict.problem or is_last or finish in {"length", "content_filter"}:
                break
            is_last = True
            asked = _correction_request(asked, reply.raw, verdict.problem)
        for piece in _final_deltas(verdict, usage, finish):
            yield piece

    def _in_words(self, request: ModelRequest) -> ModelRequest:
        messages = to_text_prompt(request.messages, request.tools, examples=self._examples)
        if not request.tools:
            return replace(request, messages=messages)
        schema = response_format(request.tools) if self._has_schema else None
        if request.response_format:
            wanted = json.dumps(request.response_format, ensure_ascii=False)
            rule = SystemMessage(text=f"The text of an answer must itself fit: {wanted}")
            messages = (messages[0], rule, *messages[1:])
        extra = {key: told for key, told in request.extra.items() if key not in TOOL_PARAMETERS}
        return replace(request, messages=messages, tools=(), response_format=schema, extra=extra)


class ToolFallbackModel:
    """Offers tools to a model, and asks in words from the moment that its server refuses them.

    `refused` remembers the address and the model of every refusal; pass one set to several
    clients to share it.
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
        """Open a reply; leaving the block closes the connection.

        Raises:
            ModelError: As the wrapped client, but for a refusal of tools.
        """
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


def _add_usage(usage: Usage, more: Usage | None) -> Usage:
    if more is None:
        return usage
    return Usage(
        input_tokens=usage.input_tokens + more.input_tokens,
        output_tokens=usage.output_tokens + more.output_tokens,
    )


def _correction_request(asked: ModelRequest, said: str, problem: str) -> ModelRequest:
    complaint = UserMessage(text=_CORRECTION_PROMPT.format(problem=problem))
    return replace(asked, messages=(*asked.messages, AssistantMessage(text=said), complaint))


def _final_deltas(
    verdict: ParsedReply, usage: Usage, finish: FinishReason | None
) -> list[ModelDelta]:
    pieces = [ModelDelta(reasoning=verdict.reasoning)] if verdict.reasoning else []
    if verdict.text:
        pieces.append(ModelDelta(text=verdict.text))
    if not verdict.tool:
        return [*pieces, ModelDelta(usage=usage, finish_reason=finish)]
    own = f"call_{uuid.uuid4().hex}"
    call = ToolCall(id=own, name=verdict.tool, arguments=verdict.arguments)
    return [*pieces, ModelDelta(tool_calls=(call,), usage=usage, finish_reason="tool_calls")]
