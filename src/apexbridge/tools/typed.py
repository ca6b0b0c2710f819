"""Tools whose arguments are a type: the schema for the model, and arguments it can mend."""

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
    """The arguments of one tool. Unknown ones are refused; a number may be written as text."""

    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True)


ArgumentsT = TypeVar("ArgumentsT", bound=BaseModel)


class TypedTool(ABC, Generic[ArgumentsT]):
    """A tool that sees its arguments only after they were checked."""

    def __init__(self, spec: ToolSpec, arguments: type[ArgumentsT]) -> None:
        self.spec = spec
        self._arguments = arguments

    def permissions(
        self, arguments: Mapping[str, Any], context: ToolContext
    ) -> Sequence[PermissionRequest]:
        """Say what the call is about to do.

        Raises:
            ToolInputError: If the arguments do not fit.
        """
        return self.asks(validate_arguments(self._arguments, arguments, self.spec.name), context)

    async def call(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Do it.

        Raises:
            ToolInputError: If the arguments do not fit.
            ToolFailedError: If it could not be done.
        """
        read = validate_arguments(self._arguments, arguments, self.spec.name)
        return await self.act(read, context)

    @abstractmethod
    def asks(self, arguments: ArgumentsT, context: ToolContext) -> Sequence[PermissionRequest]:
        """What must be allowed before `act`."""
        ...

    @abstractmethod
    async def act(self, arguments: ArgumentsT, context: ToolContext) -> ToolResult:
        """Do it."""
        ...


@cache
def arguments_schema(arguments: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema that a model is shown: no titles, which cost tokens and say nothing."""
    return _without_titles(arguments.model_json_schema())


def _without_titles(schema: dict[str, Any]) -> dict[str, Any]:
    kept = {
        key: value for key, value in schema.items() if key not in {"title", "additionalProperties"}
    }
    if schema.get("additionalProperties") not in {None, True}:
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
    """Check what a model sent; null stands for an optional argument that is not given.

    Raises:
        ToolInputError: With every argument that does not fit, in words that help to mend it.
    """
    fields = model.model_fields
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
    """The names an argument may be given by, the one of the schema first."""
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
