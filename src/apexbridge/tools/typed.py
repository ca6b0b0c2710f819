"""Typed tools: arguments as a pydantic model, its JSON schema, and validation errors."""

import difflib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Generic, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from apexbridge.errors import ToolInputError
from apexbridge.permissions.rules import PermissionRequest
from apexbridge.tools.base import ToolContext, ToolResult, ToolSpec

_MAX_DISPLAY_CHARS = 60
_MAX_ERRORS = 20


class Arguments(BaseModel):
    """Base of tool arguments. Unknown arguments are rejected; a number is accepted as text."""

    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True)


ArgumentsT = TypeVar("ArgumentsT", bound=BaseModel)


class TypedTool(ABC, Generic[ArgumentsT]):
    """Base class of tools that receive validated arguments."""

    def __init__(
        self, name: str, description: str, arguments: type[ArgumentsT], *, read_only: bool = False
    ) -> None:
        schema = arguments_schema(arguments)
        self.spec = ToolSpec(
            name=name, description=description, input_schema=schema, read_only=read_only
        )
        self._arguments = arguments

    def permissions(
        self, arguments: Mapping[str, Any], context: ToolContext
    ) -> Sequence[PermissionRequest]:
        """Validate the arguments and list the permission requests of a call.

        Raises:
            ToolInputError: If the arguments do not fit.
        """
        return self.required_permissions(
            validate_arguments(self._arguments, arguments, self.spec.name), context
        )

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Validate the arguments and execute the call.

        Raises:
            ToolInputError: If the arguments do not fit.
            ToolFailedError: If it could not be done.
        """
        read = validate_arguments(self._arguments, arguments, self.spec.name)
        return await self.run(read, context)

    @abstractmethod
    def required_permissions(
        self, arguments: ArgumentsT, context: ToolContext
    ) -> Sequence[PermissionRequest]:
        """List what must be allowed before `run`."""
        ...

    @abstractmethod
    async def run(self, arguments: ArgumentsT, context: ToolContext) -> ToolResult:
        """Execute the call."""
        ...


@cache
def arguments_schema(arguments: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema without titles, which cost tokens and carry no information."""
    return _without_titles(arguments.model_json_schema())


def _without_titles(schema: dict[str, Any]) -> dict[str, Any]:
    kept = {
        key: value for key, value in schema.items() if key not in {"title", "additionalProperties"}
    }
    if schema.get("additionalProperties") not in (None, True):  # unhashable where it is a schema
        kept["additionalProperties"] = _without_nested_titles(schema["additionalProperties"])
    for key in ("properties", "$defs"):
        if isinstance(kept.get(key), dict):
            kept[key] = {name: _without_nested_titles(value) for name, value in kept[key].items()}
    for key in ("items", "anyOf", "oneOf", "allOf", "prefixItems", "not"):
        if key in kept:
            kept[key] = _without_nested_titles(kept[key])
    return kept


def _without_nested_titles(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_nested_titles(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return _without_titles(value) if isinstance(value, dict) else value  # pyright: ignore[reportUnknownArgumentType]


def validate_arguments(
    model: type[ArgumentsT], arguments: Mapping[str, Any], name: str
) -> ArgumentsT:
    """Validate arguments from the model; null means that an optional argument is absent.

    Raises:
        ToolInputError: With every invalid argument, worded so that the model can correct it.
    """
    fields = model.model_fields
    # Models often send null for an optional argument that they leave out.
    optional = {
        key
        for field, facts in fields.items()
        if not facts.is_required()
        for key in _accepted_keys(field, facts)
    }
    given = {
        key: value for key, value in arguments.items() if value is not None or key not in optional
    }
    try:
        return model.model_validate(given)
    except ValidationError as error:
        known = [_accepted_keys(field, facts)[0] for field, facts in fields.items()]
        faults = list(_validation_errors(error.errors(include_url=False), known))
        if len(faults) > _MAX_ERRORS:
            faults[_MAX_ERRORS:] = [f"and {len(faults) - _MAX_ERRORS} more"]
        raise ToolInputError("; ".join(faults), name=name) from None


def _accepted_keys(field: str, facts: FieldInfo) -> list[str]:
    """List the names an argument is accepted by, the one in the schema first."""
    alias = facts.validation_alias
    if isinstance(alias, AliasChoices):
        return [choice for choice in alias.choices if isinstance(choice, str)]
    return [alias] if isinstance(alias, str) else [field]


def _validation_errors(errors: Iterable[ErrorDetails], known: Sequence[str]) -> Iterator[str]:
    for error in errors:
        where = ".".join(map(str, error["loc"]))
        match error["type"]:
            case "missing":
                yield f"'{where}' is missing"
            case "extra_forbidden":
                yield _unknown_argument(where, known)
            case _:
                message = error["msg"][:1].lower() + error["msg"][1:]
                yield f"'{where}': {message}, not {_display_value(error['input'])}"


def _unknown_argument(where: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(where[:_MAX_DISPLAY_CHARS], known, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(known) or 'none'}"
    return f"'{where[:_MAX_DISPLAY_CHARS]}' is no argument of it ({hint})"


def _display_value(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_DISPLAY_CHARS else f"{text[:_MAX_DISPLAY_CHARS]}…"
