"""What plugin.json and marketplace.json say, as far as it makes sense. Pure."""

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
"""Paths inside the plugin; a single one may stand alone."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class PluginManifest(_Model):
    """A plugin.json. What it says of things other than skills is not read here."""

    name: str = ""
    version: str = ""
    description: str = ""
    skills_path: PathList = Field(default=(), alias="skillsPath")
    skills_paths: PathList = Field(default=(), alias="skillsPaths")
    skills: PathList = ()
    user_config: dict[str, Any] = Field(default_factory=dict[str, Any], alias="userConfig")

    @property
    def places(self) -> tuple[str, ...]:
        """Where its skills are, if it says so."""
        every = (*self.skills_path, *self.skills_paths, *self.skills)
        return tuple(dict.fromkeys(every))

    @property
    def secrets(self) -> frozenset[str]:
        """Keys of `user_config` whose values may not be put into text."""
        options = ((key, _as_object(option)) for key, option in self.user_config.items())
        return frozenset(key for key, option in options if option and option.get("sensitive"))


class MarketplaceEntry(PluginManifest):
    """One plugin of a marketplace: where it is, and what plugin.json leaves unsaid."""

    source: Any = None
    strict: bool = True
    """Whether the plugin must have a plugin.json of its own."""


class _Metadata(_Model):
    plugin_root: str = Field(default="", alias="pluginRoot")


class _Listing(_Model):
    name: str = ""
    metadata: _Metadata = _Metadata()
    plugins: tuple[Any, ...] = ()


class Marketplace(_Model):
    """A marketplace.json: a folder that lists plugins."""

    name: str = ""
    plugin_root: str = ""
    """The folder that paths to plugins start from, if not the marketplace's own."""
    plugins: tuple[MarketplaceEntry, ...] = ()


def parse_plugin(data: bytes, where: str) -> tuple[PluginManifest | None, list[Problem]]:
    """Read a plugin.json; a field that makes no sense is left out and told."""
    values = _object(data, where)
    if isinstance(values, Problem):
        return None, [values]
    return _lenient(PluginManifest, values, where)


def parse_marketplace(data: bytes, where: str) -> tuple[Marketplace | None, list[Problem]]:
    """Read a marketplace.json; an entry that makes no sense is left out and told."""
    values = _object(data, where)
    if isinstance(values, Problem):
        return None, [values]
    listing, problems = _lenient(_Listing, values, where)
    entries = list[MarketplaceEntry]()
    for number, item in enumerate(listing.plugins):
        place = f"plugins[{number}]"
        fields = _as_object(item)
        if fields is None:
            problems.append(_field_problem(where, place, "it is no object"))
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
    """Say of a manifest as a whole that nothing can be done with it."""
    return Problem(code="plugin_manifest_invalid", where=where, details={"detail": detail})


_M = TypeVar("_M", bound=BaseModel)


def _lenient(
    model: type[_M], values: Mapping[str, Any], where: str, within: str = ""
) -> tuple[_M, list[Problem]]:
    try:
        return model.model_validate(values), []
    except ValidationError as error:
        wrong = {str(item["loc"][0]): item["msg"] for item in error.errors(include_url=False)}
    sound = {key: value for key, value in values.items() if key not in wrong}
    front = f"{within}." if within else ""
    problems = [_field_problem(where, front + key, detail) for key, detail in wrong.items()]
    return model.model_validate(sound), problems


def _field_problem(where: str, key: str, detail: str) -> Problem:
    details = {"key": key, "detail": detail}
    return Problem(code="field_invalid", where=where, severity="warning", details=details)
