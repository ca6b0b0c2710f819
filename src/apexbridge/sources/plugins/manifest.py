"""Parse plugin.json and marketplace.json leniently."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from apexbridge.skills.model import Problem

MAX_BYTES = 1024 * 1024

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_OBJECT = TypeAdapter(dict[str, Any])


def _as_list(value: object) -> object:
    if value is None or value == "":
        return ()
    return (value,) if isinstance(value, str) else value


PathList = Annotated[tuple[str, ...], BeforeValidator(_as_list)]
"""Paths inside of the plugin; a single one may be a plain text."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class PluginManifest(_Model):
    """Fields of plugin.json that concern skills."""

    name: str = ""
    version: str = ""
    description: str = ""
    skills_path: PathList = Field(default=(), alias="skillsPath")
    skills_paths: PathList = Field(default=(), alias="skillsPaths")
    skills: PathList = ()
    commands: PathList = ()
    """Files and folders of commands, in addition to the folder `commands`."""
    user_config: dict[str, Any] = Field(default_factory=dict[str, Any], alias="userConfig")

    @property
    def skill_folders(self) -> tuple[str, ...]:
        """Declared skill folders."""
        every = (*self.skills_path, *self.skills_paths, *self.skills)
        return tuple(dict.fromkeys(every))

    @property
    def secrets(self) -> frozenset[str]:
        """Keys of `user_config` whose values must not enter a text (sensitive)."""
        options = ((key, _as_object(option)) for key, option in self.user_config.items())
        return frozenset(key for key, option in options if option and option.get("sensitive"))


class MarketplaceEntry(PluginManifest):
    """One plugin of a marketplace: its source, and defaults for plugin.json."""

    source: Any = None
    strict: bool = True
    """True if the plugin must have its own plugin.json."""


class _Metadata(_Model):
    plugin_root: str = Field(default="", alias="pluginRoot")


class _Listing(_Model):
    name: str = ""
    metadata: _Metadata = _Metadata()
    plugins: tuple[Any, ...] = ()


class Marketplace(_Model):
    """A marketplace.json: a list of plugins."""

    name: str = ""
    plugin_root: str = ""
    """Base folder of the plugins' paths, if not the marketplace's."""
    plugins: tuple[MarketplaceEntry, ...] = ()


def parse_plugin(data: bytes, where: str) -> tuple[PluginManifest | None, list[Problem]]:
    """Parse a plugin.json; an invalid field is left out and reported."""
    values = _object(data, where)
    if isinstance(values, Problem):
        return None, [values]
    return _lenient(PluginManifest, values, where)


def parse_marketplace(data: bytes, where: str) -> tuple[Marketplace | None, list[Problem]]:
    """Parse a marketplace.json; an invalid entry is left out and reported."""
    values = _object(data, where)
    if isinstance(values, Problem):
        return None, [values]
    listing, problems = _lenient(_Listing, values, where)
    entries = list[MarketplaceEntry]()
    for number, item in enumerate(listing.plugins):
        place = f"plugins[{number}]"
        fields = _as_object(item)
        if fields is None:
            problems.append(_field_problem(where, place, "it is not an object"))
            continue
        entry, wrong = _lenient(MarketplaceEntry, fields, where, place)
        entries.append(entry)
        problems += wrong
    root = listing.metadata.plugin_root
    return Marketplace(name=listing.name, plugin_root=root, plugins=tuple(entries)), problems


def _object(data: bytes, where: str) -> dict[str, Any] | Problem:
    try:
        return _OBJECT.validate_json(data.removeprefix(_BYTE_ORDER_MARK))
    except ValidationError as error:
        return manifest_problem(
            where, error.errors(include_url=False, include_input=False)[0]["msg"]
        )


def _as_object(value: object) -> dict[str, Any] | None:
    try:
        return _OBJECT.validate_python(value)
    except ValidationError:
        return None


def manifest_problem(where: str, detail: str) -> Problem:
    """Build the problem of an unusable manifest."""
    return Problem.error("plugin_manifest_invalid", where, detail=detail)


_M = TypeVar("_M", bound=BaseModel)


def _lenient(
    model: type[_M], values: Mapping[str, Any], where: str, within: str = ""
) -> tuple[_M, list[Problem]]:
    try:
        return model.model_validate(values), []
    except ValidationError as error:
        wrong = {str(item["loc"][0]): item["msg"] for item in error.errors(include_url=False)}
    valid = {key: value for key, value in values.items() if key not in wrong}
    front = f"{within}." if within else ""
    problems = [_field_problem(where, front + key, detail) for key, detail in wrong.items()]
    return model.model_validate(valid), problems


def _field_problem(where: str, key: str, detail: str) -> Problem:
    return Problem.warning("field_invalid", where, key=key, detail=detail)
