"""Settings: what an operator or user chose, and where each choice came from.

Later wins: defaults, the user's file, the project's `ship.json`, the project's `apexbridge.toml`,
`APEXBRIDGE_*` in the environment (`__` nests), flags. Read once in a door and handed down; rooms
receive their own small values, never this object. The only module that knows the environment.
"""

import difflib
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeGuard

import platformdirs
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from apexbridge import wording
from apexbridge.errors import ConfigError, SettingNotFoundError
from apexbridge.skills.model import Origin

USER_FILE = "config.toml"
PROJECT_FILE = "apexbridge.toml"
SHIP_FILE = "ship.json"
ENVIRONMENT = "environment"
PREFIX = "APEXBRIDGE_"
_NOT_FOR_PROJECTS = (
    "data_dir", "sandbox", "skills.managed_path", "skills.user_paths", "skills.precedence",
)  # fmt: skip


def _split(value: object) -> object:
    """An environment variable or flag is one text; its parts stand between path separators."""
    return [part for part in value.split(os.pathsep) if part] if isinstance(value, str) else value


def _words(value: object) -> object:
    return re.findall(r"[^\s,:;]+", value) if isinstance(value, str) else value


def _listed(value: object) -> object:
    return re.findall(r"[^\s,;]+", value) if isinstance(value, str) else value


def _language_tag(value: object) -> object:
    """`zh_CN.UTF-8` and `zh-Hans` are `zh`."""
    return value.lower()[:2] if isinstance(value, str) and value.lower() != "auto" else value


def _refuse_nul(paths: tuple[str, ...]) -> tuple[str, ...]:
    if any("\0" in path for path in paths):
        raise ValueError("a path holds a NUL character")
    return paths


def _refuse_no_grant(grants: tuple[str, ...]) -> tuple[str, ...]:
    for grant in grants:
        skill, _, host = grant.partition("=")
        if not skill or not host:
            raise ValueError(f"'{grant}' is not of the form skill=host")
    return grants


Paths = Annotated[tuple[str, ...], BeforeValidator(_split), AfterValidator(_refuse_nul)]
HostGrants = Annotated[tuple[str, ...], BeforeValidator(_listed), AfterValidator(_refuse_no_grant)]
Precedence = Annotated[tuple[Origin, ...], BeforeValidator(_words)]


class SkillSettings(BaseModel):
    """Where skills are looked for."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, use_attribute_docstrings=True
    )

    paths: Paths = ()
    """More folders with skills; relative ones start at the project, `~` is your home."""
    allow_external_paths: bool = Field(
        default=False,
        validation_alias=AliasChoices("allow_external_paths", "allowExternalPaths"),
    )
    """Whether `paths` may lead out of the project."""
    managed_path: str = ""
    """A folder whose skills nothing can override; for operators."""
    user_paths: Paths = ("~/.apexbridge/skills", "~/.claude/skills", "~/.agents/skills")
    """Where your own skills lie."""
    project_paths: Paths = (".apexbridge/skills", ".claude/skills", ".agents/skills")
    """Where a project keeps its skills, in each folder from here up to the repository's root."""
    precedence: Precedence = tuple(Origin)
    """Whose skill wins when two have one name, the strongest first."""
    max_depth: int = Field(default=6, ge=1, le=32)
    """How deep below a root skills are looked for."""
    max_folders: int = Field(default=2_000, ge=1)
    """How many folders of a root are looked at."""


class SandboxSettings(BaseModel):
    """How scripts are run."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    wall_seconds: float = Field(default=60, gt=0, le=3_600)
    """How long a script may take."""
    memory_mib: int = Field(default=1_024, ge=16)
    """How much memory it may use."""
    output_mib: int = Field(default=10, ge=1, le=1_024)
    """How much it may print, stdout and stderr together."""
    processes: int = Field(default=64, ge=1)
    """How many processes it may have at a time."""
    workspace_mib: int = Field(default=256, ge=1)
    """How much it may leave in its workspace."""
    warm: int = Field(default=4, ge=0, le=64)
    """How many sandboxes wait, ready for what ran before; 0 for none."""
    hosts: HostGrants = ()
    """Hosts that a skill may reach, each as `skill=host`; all others reach none."""
    allow_unsandboxed: bool = False
    """Whether scripts run without isolation where none works; every such run warns."""


class Settings(BaseSettings):
    """Everything that can be chosen."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        enable_decoding=False,
        use_attribute_docstrings=True,
    )

    lang: Annotated[Literal["auto", "en", "zh"], BeforeValidator(_language_tag)] = "auto"
    """The language of messages; `auto` follows the locale."""
    data_dir: Path = Path("~/.local/share/apexbridge")
    """Where installed skills and the index are kept."""
    skills: SkillSettings = SkillSettings()
    """Where skills are looked for."""
    sandbox: SandboxSettings = SandboxSettings()
    """How scripts are run."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take only what is given: `load` merges the layers, to know where each value came from."""
        return (init_settings,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The settings, the origin of each by dotted name, and the facts of the place they are for."""

    settings: Settings
    origins: Mapping[str, str]
    project: Path
    home: Path
    language: wording.Language
    unknown_variables: tuple[str, ...] = ()
    """`APEXBRIDGE_*` variables that name no setting: most likely slips."""

    @property
    def data(self) -> Path:
        """The data folder, with `~` as this user's home."""
        written = str(self.settings.data_dir)
        return self.home / written[2:] if written.startswith("~/") else self.project / written

    @property
    def workspaces(self) -> Path:
        """Where scripts work: on a disk of this machine, and never below the skills."""
        return self.data / "workspaces"

    def value(self, key: str) -> object:
        """The value of one setting by its dotted name.

        Raises:
            SettingNotFoundError: If there is none of that name.
        """
        values = flatten(self.settings)
        if key not in values:
            raise SettingNotFoundError(key, near=difflib.get_close_matches(key, values, n=3))
        return values[key]


@dataclass(slots=True)
class _Layers:
    """Nested values put over each other, with the layer each one came from."""

    values: dict[str, Any] = field(default_factory=dict[str, Any])
    origins: dict[str, str] = field(default_factory=dict[str, str])

    def put(self, layer: Mapping[str, Any], origin: str) -> None:
        """Put one layer over what is there."""
        self._merge(self.values, layer, origin, "")

    def _merge(self, into: dict[str, Any], layer: Mapping[str, Any], origin: str, at: str) -> None:
        for key, value in layer.items():
            name = f"{at}{key}"
            if _is_table(value) and _is_table(inner := into.setdefault(key, {})):
                self._merge(inner, value, origin, f"{name}.")
            else:
                into[key] = value
                self.origins[name] = origin


def _is_table(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def load(
    *,
    project: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Loaded:
    """Read every layer for the project in `project` (the current folder).

    Raises:
        ConfigError: If a file cannot be read or a value makes no sense; it names both.
    """
    variables = dict(os.environ if environment is None else environment)
    place = (project or Path.cwd()).resolve()
    home = Path(variables.get("HOME") or Path.home())
    layers = _Layers()
    layers.put({"data_dir": str(_data_dir(variables, home))}, "default")
    layers.put(_read_toml(user_file(variables, home)), str(user_file(variables, home)))
    layers.put(_read_ship(place / SHIP_FILE), SHIP_FILE)
    layers.put(_read_project(place / PROJECT_FILE), PROJECT_FILE)
    layers.put(_read_environment(variables), ENVIRONMENT)
    layers.put(flags or {}, "flag")
    settings = _build(layers)
    return Loaded(
        settings=settings,
        origins={key: layers.origins.get(key, "default") for key in flatten(settings)},
        project=place,
        home=home,
        language=_language(settings, variables),
        unknown_variables=tuple(_unknown(variables, settings)),
    )


def _build(layers: _Layers) -> Settings:
    try:
        return Settings.model_validate(layers.values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"] if isinstance(part, str))
        names = [name for name in layers.origins if name.startswith(key)]
        origin = layers.origins[names[0]] if names else "?"
        raise ConfigError(first["msg"], key=key, origin=origin) from None


def flatten(model: BaseModel, prefix: str = "") -> dict[str, object]:
    """Every setting by its dotted name, in the order they are declared."""
    return dict(_flatten(model, prefix))


def _flatten(model: BaseModel, prefix: str) -> Iterator[tuple[str, object]]:
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def user_file(variables: Mapping[str, str], home: Path) -> Path:
    """Where a user's own settings lie."""
    base = variables.get("XDG_CONFIG_HOME")
    if base:
        return Path(base) / "apexbridge" / USER_FILE
    return _under(home, platformdirs.user_config_path("apexbridge")) / USER_FILE


def _data_dir(variables: Mapping[str, str], home: Path) -> Path:
    base = variables.get("XDG_DATA_HOME")
    if base:
        return Path(base) / "apexbridge"
    return _under(home, platformdirs.user_data_path("apexbridge"))


def _under(home: Path, path: Path) -> Path:
    """The platform's folder, below the home that was given to us."""
    actual = Path.home()
    return home / path.relative_to(actual) if path.is_relative_to(actual) else path


def _read_toml(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(str(error), code="config_unreadable", path=path) from None


def _read_project(path: Path) -> Mapping[str, Any]:
    """A project may choose much, but not whom to trust: a clone must not raise its own rank."""
    values = _read_toml(path)
    layers = _Layers()
    layers.put(values, PROJECT_FILE)
    for key in layers.origins:
        if key.startswith(_NOT_FOR_PROJECTS):
            raise ConfigError(code="config_not_here", key=key, origin=path.name)
    return values


def _read_ship(path: Path) -> Mapping[str, Any]:
    """ShipMyAgent's file: only what it says of skills is ours."""
    try:
        loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8-sig"))
        skills: dict[str, Any] = loaded.get("skills", {})
        known = {"paths": "paths", "allowExternalPaths": "allow_external_paths"}
        return {"skills": {known[key]: skills[key] for key in known if key in skills}}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise ConfigError(str(error), code="config_unreadable", path=path) from None


def _read_environment(variables: Mapping[str, str]) -> Mapping[str, Any]:
    source = EnvSettingsSource(Settings)
    source.env_vars = {key.lower(): value for key, value in variables.items()}
    return source()


def _unknown(variables: Mapping[str, str], settings: Settings) -> Iterator[str]:
    known = {f"{PREFIX}{key.replace('.', '__')}".upper() for key in flatten(settings)}
    return (name for name in sorted(variables) if name.startswith(PREFIX) and name not in known)


def language_of_place(environment: Mapping[str, str] | None = None) -> wording.Language:
    """The language to speak when the settings themselves cannot be read."""
    variables = os.environ if environment is None else environment
    return wording.language_of(variables.get(f"{PREFIX}LANG") or _locale(variables))


def _language(settings: Settings, variables: Mapping[str, str]) -> wording.Language:
    return wording.language_of(_locale(variables)) if settings.lang == "auto" else settings.lang


def _locale(variables: Mapping[str, str]) -> str:
    locales = (variables.get(key) for key in ("LC_ALL", "LC_MESSAGES", "LANG"))
    return next(filter(None, locales), "")
