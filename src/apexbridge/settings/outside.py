"""Skills that others bring: plugins, MCP servers, addresses on the network."""

from typing import Annotated

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    model_validator,
)

from apexbridge.settings.kinds import Listed, Networks, Paths, from_json


class PluginSettings(BaseModel):
    """Plugins that bring skills."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    paths: Paths = ()
    """Plugin folders, and marketplaces: folders that list plugins."""
    disabled: Listed = ()
    """Plugins that are left out, by name."""
    config: Annotated[dict[str, dict[str, str]], BeforeValidator(from_json)] = Field(
        default_factory=dict[str, dict[str, str]]
    )
    """What `${user_config.KEY}` stands for, by plugin."""


class McpServer(BaseModel):
    """One MCP server: a command that is started, or an address that is asked."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    command: str = ""
    """The program that speaks MCP on its standard streams."""
    args: tuple[str, ...] = ()
    """What it is started with."""
    env: dict[str, SecretStr] = Field(default_factory=dict[str, SecretStr])
    """What its environment has besides the usual."""
    url: str = ""
    """The address of a server that speaks MCP over HTTP."""
    headers: dict[str, SecretStr] = Field(default_factory=dict[str, SecretStr])
    """What is sent to it with every request."""
    seconds: float = Field(default=30, gt=0, le=600)
    """How long it may take to answer."""

    @model_validator(mode="after")
    def _one_way(self) -> "McpServer":
        if bool(self.command) == bool(self.url):
            raise ValueError("give either a command or a url")
        return self


class McpSettings(BaseModel):
    """MCP servers that bring skills."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    servers: Annotated[dict[str, McpServer], BeforeValidator(from_json)] = Field(
        default_factory=dict[str, McpServer]
    )
    """The servers by name: each a `command` with `args` and `env`, or a `url` with `headers`."""


class RemoteSettings(BaseModel):
    """Skills from the network."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    skills: Listed = ()
    """Addresses of single skills: `https://…/SKILL.md`, `s3://bucket/key`, `gs://bucket/key`."""
    indexes: Listed = ()
    """Hosts whose `/.well-known/agent-skills/index.json` lists skills, as `https://host`."""
    allow_networks: Networks = ()
    """Private networks that may be reached all the same, as `10.0.0.0/8`."""
    seconds: float = Field(default=15, gt=0, le=600)
    """How long an address may take to answer."""
    max_kib: int = Field(default=1_024, ge=1, le=65_536)
    """How much one file may hold."""
