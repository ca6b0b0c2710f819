"""Layered configuration: load the settings, and record the layer that each value comes from.

Later layers win: defaults, the user's `config.toml`, the project's `ship.json`, the project's
`apexbridge.toml`, `APEXBRIDGE_*` environment variables (`__` nests), command-line flags. Loaded
once per process and passed down; the only module that reads the environment.
"""

import difflib
import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

import platformdirs
from pydantic import BaseModel, ValidationError
from pydantic_settings import EnvSettingsSource

from apexbridge import locales
from apexbridge.environments.package_index import VARIABLES
from apexbridge.errors import ConfigError, SettingNotFoundError
from apexbridge.models.presets import PRESETS
from apexbridge.settings.deprecated import RENAMED, Deprecation, current_name, current_value
from apexbridge.settings.schema import PREFIX, Settings

USER_FILE = "config.toml"
PROJECT_FILE = "apexbridge.toml"
SHIP_FILE = "ship.json"
_KEY_NAMES = frozenset(name for known in PRESETS.values() for name in known.key_names)
_SSH_VARIABLES = ("HOME", "USER", "LOGNAME", "SSH_AUTH_SOCK")
PROJECT_FILES = frozenset({PROJECT_FILE, SHIP_FILE})
"""Layers that belong to the project; a cloned repository may contain them."""
ENVIRONMENT = "environment"
_USER_ONLY = (
    "data_dir", "sandbox", "skills.managed_path", "skills.user_paths", "skills.precedence",
    "skills.additional_dirs", "install", "index", "model", "plugins", "mcp", "remote", "agent",
    "permissions", "hooks", "server", "dependencies",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Loaded settings, the origin of each by dotted name, and the paths that they apply to."""

    settings: Settings
    origins: Mapping[str, str]
    project: Path
    home: Path
    language: locales.Language
    config_home: Path | None = None
    """`$XDG_CONFIG_HOME`, or `~/.config`."""
    user_file: Path | None = None
    """The user's `config.toml`, whether it is there or not."""
    unknown_variables: tuple[str, ...] = ()
    """`APEXBRIDGE_*` variables that match no setting, most likely typos."""
    deprecated: tuple[Deprecation, ...] = ()
    """Deprecated names and values in use."""
    keys: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """API keys of model providers, by their usual environment variable (`OPENAI_API_KEY`)."""
    package_variables: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Variables that configure the package indexes of uv, pip and npm."""
    ssh: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Variables that ssh needs to use the keys of the user."""

    @property
    def data(self) -> Path:
        """The data folder, with `~` expanded."""
        written = str(self.settings.data_dir)
        return self.home / written[2:] if written.startswith("~/") else self.project / written

    @property
    def additional_dirs(self) -> tuple[Path, ...]:
        """The folders of `skills.additional_dirs`, with `~` expanded."""
        return tuple(
            self.home / written[2:] if written.startswith("~/") else self.project / written
            for written in self.settings.skills.additional_dirs
        )

    @property
    def workspaces(self) -> Path:
        """Parent of the scripts' workspaces: on a local disk, and never inside a skill."""
        return self.data / "workspaces"

    @property
    def secret_key_file(self) -> Path:
        """Key file of the secret store; used where no system keyring holds the key."""
        written = self.settings.sandbox.secret_key_file
        if written.startswith("~/"):
            return self.home / written[2:]
        return self.project / written if written else self.data / "secrets.key"

    def value(self, key: str) -> object:
        """Value of a setting by its dotted name; a deprecated name is translated.

        Raises:
            SettingNotFoundError: If no setting has that name.
        """
        key, values = current_name(key), flatten(self.settings)
        if key not in values:
            raise SettingNotFoundError(key, near=difflib.get_close_matches(key, values, n=3))
        return values[key]


@dataclass(slots=True)
class _LayeredValues:
    """Nested tables merged layer by layer, with the origin of each value."""

    values: dict[str, Any] = field(default_factory=dict[str, Any])
    origins: dict[str, str] = field(default_factory=dict[str, str])
    deprecated: list[Deprecation] = field(default_factory=list[Deprecation])

    def put(self, layer: Mapping[str, Any], origin: str) -> None:
        """Merge a layer over the earlier ones."""
        self._merge(self.values, layer, origin, "")

    def origin(self, key: str) -> str:
        """Layer of a value; for a table, the last layer that sets anything in it."""
        inside = [name for name in self.origins if name == key or name.startswith(f"{key}.")]
        return self.origins[inside[-1]] if inside else "default"

    def _merge(self, into: dict[str, Any], layer: Mapping[str, Any], origin: str, at: str) -> None:
        for written, value in layer.items():
            # pydantic-settings matches top-level names case-insensitively; so must `origin`.
            key = written if at else written.lower()
            name = current_name(f"{at}{key}")
            if name != f"{at}{key}":
                self.deprecated.append(Deprecation(f"{at}{key}", name, origin))
                key = name.rpartition(".")[2]
                if key in layer:
                    continue  # the layer has the current name as well, and that one wins
            current = current_value(name, value)
            if current != value:
                self.deprecated.append(Deprecation(f"{name} = {value}", current, origin))
            if _is_table(current) and _is_table(inner := into.setdefault(key, {})):
                self._merge(inner, current, origin, f"{name}.")
            else:
                into[key] = current
                self.origins[name] = origin


def _is_table(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def load(
    *,
    project: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Config:
    """Load every layer for a project (default: the current folder).

    Raises:
        ConfigError: If a file cannot be read or a value is invalid.
    """
    variables = dict(os.environ if environment is None else environment)
    place = (project or Path.cwd()).resolve()
    home = Path(variables.get("HOME") or Path.home())
    layers = _LayeredValues()
    layers.put({"data_dir": str(_data_dir(variables, home))}, "default")
    user_file = user_config_file(variables, home)
    layers.put(_read_toml(user_file), str(user_file))
    layers.put(_read_ship(place / SHIP_FILE), SHIP_FILE)
    layers.put(_read_project(place / PROJECT_FILE), PROJECT_FILE)
    layers.put(_read_environment(variables), ENVIRONMENT)
    layers.put(flags or {}, "flag")
    settings = _validate(layers)
    return Config(
        settings=settings,
        origins={key: layers.origin(key) for key in flatten(settings)},
        keys={name: variables[name] for name in _KEY_NAMES if variables.get(name)},
        package_variables={name: variables[name] for name in VARIABLES if variables.get(name)},
        ssh={name: variables[name] for name in _SSH_VARIABLES if variables.get(name)},
        project=place,
        home=home,
        config_home=Path(variables.get("XDG_CONFIG_HOME") or home / ".config"),
        user_file=user_file,
        language=_choose_language(settings, variables),
        unknown_variables=tuple(_unknown_variables(variables, settings)),
        deprecated=tuple(layers.deprecated),
    )


def _validate(layers: _LayeredValues) -> Settings:
    try:
        return Settings.model_validate(layers.values)
    except ValidationError as error:
        # Only the first error is reported: later ones often follow from it.
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"] if isinstance(part, str))
        names = [name for name in layers.origins if name.startswith(key)]
        origin = layers.origins[names[0]] if names else "?"
        raise ConfigError(first["msg"], key=key, origin=origin) from None


def flatten(model: BaseModel, prefix: str = "") -> dict[str, object]:
    """Settings by dotted name, in order of declaration."""
    return dict(_flatten(model, prefix))


def _flatten(model: BaseModel, prefix: str) -> Iterator[tuple[str, object]]:
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def user_config_file(variables: Mapping[str, str], home: Path) -> Path:
    """Path of the user's `config.toml`, by the XDG base directory rules."""
    base = variables.get("XDG_CONFIG_HOME")
    if base:
        return Path(base) / "apexbridge" / USER_FILE
    return _relocate_home(home, platformdirs.user_config_path("apexbridge")) / USER_FILE


def _data_dir(variables: Mapping[str, str], home: Path) -> Path:
    base = variables.get("XDG_DATA_HOME")
    if base:
        return Path(base) / "apexbridge"
    return _relocate_home(home, platformdirs.user_data_path("apexbridge"))


def _relocate_home(home: Path, path: Path) -> Path:
    """Platform folder, moved below another home folder (`HOME` in tests)."""
    # platformdirs reads the process environment; `home` may be another one.
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
    """Read a project's settings; trust decisions in it are refused, as a clone is untrusted."""
    values = _read_toml(path)
    layers = _LayeredValues()
    layers.put(values, PROJECT_FILE)
    for key in layers.origins:
        if key.startswith(_USER_ONLY):
            raise ConfigError(code="config_not_here", key=key, origin=path.name)
    return values


def _read_ship(path: Path) -> Mapping[str, Any]:
    """Read the `skills` table of a ShipMyAgent `ship.json`."""
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
    # Given variables replace os.environ, so that callers and tests can pass their own.
    source = EnvSettingsSource(Settings)
    source.env_vars = {key.lower(): value for key, value in variables.items()}
    return source()


def _unknown_variables(variables: Mapping[str, str], settings: Settings) -> Iterator[str]:
    names = (*flatten(settings), *RENAMED)
    known = {f"{PREFIX}{key.replace('.', '__')}".upper() for key in names}
    return (name for name in sorted(variables) if name.startswith(PREFIX) and name not in known)


def default_language(environment: Mapping[str, str] | None = None) -> locales.Language:
    """Language by environment and locale, for errors raised before the settings are loaded."""
    variables = os.environ if environment is None else environment
    return locales.parse_language(variables.get(f"{PREFIX}LANG") or _locale(variables))


def _choose_language(settings: Settings, variables: Mapping[str, str]) -> locales.Language:
    return locales.parse_language(_locale(variables)) if settings.lang == "auto" else settings.lang


def _locale(variables: Mapping[str, str]) -> str:
    values = (variables.get(key) for key in ("LC_ALL", "LC_MESSAGES", "LANG"))
    return next(filter(None, values), "")
