"""`@tool`: turn a typed Python function into a tool, its signature into a JSON schema."""

import functools
import inspect
import re
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Literal, ParamSpec, TypeVar, overload

import anyio.to_thread
from pydantic import BaseModel, Field, create_model
from pydantic.errors import PydanticUserError
from pydantic_core import PydanticSerializationError, to_json

from apexbridge.errors import ApexBridgeError, ToolFailedError
from apexbridge.permissions.rules import PermissionRequest
from apexbridge.tools.base import ToolContext, ToolResult, ToolSpec
from apexbridge.tools.truncation import truncate_text
from apexbridge.tools.typed import Arguments, arguments_schema, validate_arguments

_SECTION = re.compile(
    r"(Args|Arguments|Parameters|Returns?|Yields?|Raises|Examples?|Notes?|参数|返回|异常|示例)[:：]\s*"
)
_PARAMETER_SECTIONS = {"Args", "Arguments", "Parameters", "参数"}
_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:[(（][^)）]*[)）])?\s*[:：]\s*(.*)")


def parse_docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Parse a Google-style docstring: the description, and the text of each parameter."""
    lines = (inspect.getdoc(function) or "").splitlines()
    sections, current = dict[str, list[str]](), "description"
    for line in lines:
        title = _SECTION.fullmatch(line)
        current = title[1] if title else current
        sections.setdefault(current, []).extend([] if title else [line])
    described = dict[str, str]()
    for name in _PARAMETER_SECTIONS & sections.keys():
        described |= _parse_entries(sections[name])
    return "\n".join(sections.get("description", [])).strip(), described


def _parse_entries(lines: Iterable[str]) -> dict[str, str]:
    """Parse `name: text` or `name (type): text`; deeper indented lines continue the text before."""
    entries, name, depth = dict[str, str](), "", 0
    for line in lines:
        text = line.strip()
        indent = len(line) - len(line.lstrip())
        found = _ENTRY.fullmatch(text)
        if found and (not name or indent <= depth):
            name, depth = found[1], indent
            entries[name] = found[2]
        elif name and text:
            entries[name] = f"{entries[name]} {text}".strip()
    return entries


Permission = (
    Literal["ask", "harmless"]
    | Callable[[Mapping[str, Any], ToolContext], Sequence[PermissionRequest]]
)
"""`ask` under the tool's name, `harmless` (allowed unless a rule denies it), or a callable."""

P = ParamSpec("P")
R = TypeVar("R")

_SUMMARY_CHARS = 200
_SUPPORTED_KINDS = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}


class FunctionTool(Generic[P, R]):
    """A function that a model can call; Python code can still call it as that function."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str = "",
        description: str = "",
        read_only: bool = False,
        permission: Permission = "ask",
    ) -> None:
        """Build the JSON schema from the function's annotations and docstring.

        Raises:
            TypeError: If a parameter has no type, or none that JSON can carry.
        """
        self._function = function
        self._permission: Permission = permission
        summary, described = parse_docstring(function)
        name = name or getattr(function, "__name__", "")
        self._context_name, self._model = _arguments_model(function, described)
        self.spec = ToolSpec(
            name=name,
            description=description or summary or name,
            input_schema=_schema(function, self._model),
            read_only=read_only,
        )
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the wrapped function."""
        return self._function(*args, **kwargs)

    def permissions(
        self, arguments: Mapping[str, Any], context: ToolContext
    ) -> Sequence[PermissionRequest]:
        """List the permission requests of a call.

        Raises:
            ToolInputError: If the arguments do not fit the function's types.
        """
        name = self.spec.name
        validate_arguments(self._model, arguments, name)
        if callable(self._permission):
            return self._permission(arguments, context)
        shown = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        summary = f"{name}({shown})"[:_SUMMARY_CHARS]
        is_harmless = self._permission == "harmless"
        return (PermissionRequest(tool=name, summary=summary, harmless=is_harmless),)

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Validate the arguments and call the function, in a worker thread if it is not async.

        Raises:
            ToolInputError: If the arguments do not fit the function's types.
            ToolFailedError: If the function raised, or gave what cannot be shown.
        """
        read = validate_arguments(self._model, arguments, self.spec.name)
        fields = type(read).model_fields.items()
        given = {facts.alias or key: getattr(read, key) for key, facts in fields}
        if self._context_name:
            given[self._context_name] = context
        try:
            value = await _call_function(self._function, given)
        except ApexBridgeError:
            raise
        except Exception as error:
            said = str(error) or "no reason given"
            raise ToolFailedError(
                truncate_text(f"{type(error).__name__}: {said}", 2_000), name=self.spec.name
            ) from error
        return self._result(value)

    def _result(self, value: object) -> ToolResult:
        if isinstance(value, ToolResult):
            return value
        if value is None or isinstance(value, str):
            return ToolResult(text=truncate_text(value or "Done: nothing was returned."))
        try:
            text = to_json(value, indent=2).decode()
        except (PydanticSerializationError, ValueError, RecursionError) as error:
            detail = f"what it returned cannot be shown: {error}"
            raise ToolFailedError(truncate_text(detail, 2_000), name=self.spec.name) from error
        return ToolResult(text=truncate_text(text))


async def _call_function(function: Callable[..., Any], given: Mapping[str, Any]) -> object:
    """Call the function; a sync one is left to its thread when the call is cancelled."""
    if inspect.iscoroutinefunction(_annotated_callable(function)):
        return await function(**given)
    call = functools.partial(function, **given)
    value: object = await anyio.to_thread.run_sync(call, abandon_on_cancel=True)
    return await value if inspect.isawaitable(value) else value


def _arguments_model(
    function: Callable[..., Any], described: Mapping[str, str]
) -> tuple[str, type[BaseModel]]:
    """Build the pydantic model of the parameters, and find the one that takes the context."""
    name = getattr(function, "__name__", "function")
    try:
        parameters = inspect.signature(function).parameters.values()
        hints = typing.get_type_hints(_annotated_callable(function), include_extras=True)
    except (NameError, ValueError) as error:
        raise TypeError(f"The types of {name} cannot be read: {error}") from error
    context_name, fields = "", dict[str, Any]()
    for parameter in parameters:
        if parameter.kind not in _SUPPORTED_KINDS:
            raise TypeError(f"{name} takes {parameter}: a tool's parameters need names")
        if parameter.name not in hints:
            raise TypeError(f"The parameter '{parameter.name}' of {name} needs a type")
        hint = hints[parameter.name]
        if hint is ToolContext:
            context_name = parameter.name
            continue
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        text = described.get(parameter.name)
        options: dict[str, Any] = {"description": text} if text else {}
        facts = Field(default, alias=parameter.name, **options)
        # A generated field name: a parameter may be named like an attribute of BaseModel.
        fields[f"argument_{len(fields)}"] = (hint, facts)
    try:
        return context_name, create_model(name, __base__=Arguments, **fields)
    except (PydanticUserError, NameError) as error:
        raise TypeError(f"The types of {name} cannot be a tool's: {error}") from error


def _annotated_callable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what carries the annotations: for a callable object, its `__call__` method."""
    return function if inspect.isroutine(function) else type(function).__call__


def _schema(function: Callable[..., Any], model: type[BaseModel]) -> dict[str, Any]:
    try:
        return arguments_schema(model)
    except PydanticUserError as error:
        name = getattr(function, "__name__", "function")
        raise TypeError(f"The types of {name} have no JSON schema: {error}") from error


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...


@overload
def tool(
    *,
    name: str = "",
    description: str = "",
    read_only: bool = False,
    permission: Permission = "ask",
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str = "",
    description: str = "",
    read_only: bool = False,
    permission: Permission = "ask",
) -> Any:
    """Make a tool from a typed function, sync or async.

    The docstring becomes the description, its `Args:` lines those of the parameters. A parameter
    of type `ToolContext` is filled in and not shown to the model. It may return text, a
    `ToolResult`, or anything that JSON can carry.

    Raises:
        TypeError: If a parameter has no type, or none that JSON can carry.
    """

    def made(inner: Callable[..., Any]) -> FunctionTool[..., Any]:
        return FunctionTool(
            inner, name=name, description=description, read_only=read_only, permission=permission
        )

    return made if function is None else made(function)
