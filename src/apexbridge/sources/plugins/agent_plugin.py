"""Parse the manifest of the Agent Plugins specification: `plugin.json` at the plugin's root.

Its rules are strict where those of Claude Code's manifest are lenient: the schema is closed, a
wrong value rejects the plugin, and skills are the folders directly below `skills/`.
"""

import json
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, ValidationError

from apexbridge.skills.model import Problem
from apexbridge.sources.plugins.manifest import PluginManifest, manifest_problem

AGENT_PLUGIN_JSON = "plugin.json"

_SCHEMAS = "https://agent-plugins.org/schemas/"
_SCHEMA = re.compile(re.escape(_SCHEMAS) + r"(1\.[01]\.0)/plugin\.schema\.json")
_SINCE_1_1 = frozenset({"displayName", "icon"})
_NAME = re.compile(r"(?!.*(?:--|\.\.))[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")
_COPILOT = "com.github.awesome-copilot"
"""Extension namespace whose `skills` are folders of the marketplace, shared by its plugins."""
_MAX_LISTED = 1_000


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("lower-case letters, digits, and single hyphens and periods between them")
    return name


class _Author(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    name: str = ""
    email: str = ""
    url: str = ""


class _Manifest(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")

    schema_id: str = Field(alias="$schema")
    name: Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_check_name)]
    version: str = ""
    description: str = ""
    author: _Author = _Author()
    homepage: str = ""
    repository: str = ""
    license: str = ""
    keywords: list[str] = Field(default_factory=list[str])
    extensions: JsonValue = Field(default_factory=dict[str, JsonValue])


class AgentPluginManifest(PluginManifest):
    """Manifest of an Agent Plugin; it cannot say where its skills are."""

    shared_skills: tuple[str, ...] = ()
    """Folders of skills that Copilot's extension lists, below the plugin or the marketplace."""


def is_agent_plugin(data: bytes) -> bool:
    """Return whether a root `plugin.json` declares a schema of the specification, of any version.

    Other programs have files of that name, and so had plugins before the specification.
    """
    try:
        values: Any = json.loads(data)
        return isinstance(values, dict) and str(values["$schema"]).startswith(_SCHEMAS)  # pyright: ignore[reportUnknownArgumentType]
    except (ValueError, KeyError, RecursionError):
        return False


def parse_agent_plugin(data: bytes, where: str) -> tuple[AgentPluginManifest | None, list[Problem]]:
    """Parse and validate a manifest; None if the specification rejects the plugin."""
    try:
        found = _Manifest.model_validate_json(data)
    except ValidationError as error:
        rules = error.errors(include_url=False, include_context=False, include_input=False)
        said = [f"{'.'.join(map(str, rule['loc']))}: {rule['msg']}" for rule in rules[:3]]
        return None, [manifest_problem(where, "; ".join(said))]
    version = _SCHEMA.fullmatch(found.schema_id)
    if version is None:
        return None, [manifest_problem(where, "$schema: only Agent Plugins 1.0 and 1.1 are known")]
    extra = dict(found.model_extra or {})
    newer = {key for key in _SINCE_1_1 & extra.keys() if version[1] == "1.1.0"}
    wrong = sorted(key for key in newer if not isinstance(extra[key], str))
    if wrong:
        return None, [manifest_problem(where, f"{wrong[0]}: it is not a text")]
    problems = [
        Problem.warning("field_invalid", where, key=key, detail="it is not in the specification")
        for key in sorted(extra.keys() - newer)
    ]
    if not isinstance(found.extensions, dict):
        detail = "it is not an object"
        problems.append(Problem.warning("field_invalid", where, key="extensions", detail=detail))
    manifest = AgentPluginManifest(
        name=found.name,
        version=found.version,
        description=found.description,
        shared_skills=_shared_skills(found.extensions),
    )
    return manifest, problems


def _shared_skills(extensions: JsonValue) -> tuple[str, ...]:
    """Read the one extension that we implement; a client ignores all others."""
    own = extensions.get(_COPILOT) if isinstance(extensions, dict) else None
    listed = own.get("skills") if isinstance(own, dict) else None
    if not isinstance(listed, list):
        return ()
    return tuple(path for path in listed[:_MAX_LISTED] if isinstance(path, str))
