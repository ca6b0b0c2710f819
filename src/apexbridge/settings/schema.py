"""Skills that others bring: plugins, MCP servers, addresses on the network."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from apexbridge.settings.validators import (
    Aliases,
    Embedder,
    Hooks,
    HostGrants,
    Networks,
    Paths,
    Precedence,
    StringList,
    ToolPatterns,
    language_tag,
    parse_json,
)
from apexbridge.skills.model import Origin


class PluginSettings(BaseModel):
    """Plugins that bring skills."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    paths: Paths = ()
    """Plugin folders, and marketplaces: folders that list plugins."""
    disabled: StringList = ()
    """Plugins that are left out, by name."""
    config: Annotated[dict[str, dict[str, str]], BeforeValidator(parse_json)] = Field(
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

    servers: Annotated[dict[str, McpServer], BeforeValidator(parse_json)] = Field(
        default_factory=dict[str, McpServer]
    )
    """The servers by name: each a `command` with `args` and `env`, or a `url` with `headers`."""


class RemoteSettings(BaseModel):
    """Skills from the network."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    skills: StringList = ()
    """Addresses of single skills: `https://…/SKILL.md`, `s3://bucket/key`, `gs://bucket/key`."""
    indexes: StringList = ()
    """Hosts whose `/.well-known/agent-skills/index.json` lists skills, as `https://host`."""
    allow_networks: Networks = ()
    """Private networks that may be reached all the same, as `10.0.0.0/8`."""
    seconds: float = Field(default=15, gt=0, le=600)
    """How long an address may take to answer."""
    max_kib: int = Field(default=1_024, ge=1, le=65_536)
    """How much one file may hold."""


class ServerSettings(BaseModel):
    """The HTTP server, and what it holds its clients to."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    host: str = "127.0.0.1"
    """The address to listen at; one that others can reach needs a key."""
    port: int = Field(default=8484, ge=0, le=65_535)
    """The port to listen at; 0 for any free one."""
    allowed_hosts: StringList = ()
    """Names that clients may call it by, beside its own address and `localhost`."""
    allowed_origins: StringList = ()
    """Web pages that may call it, beside its own console: `https://chat.example.org`."""
    body_mb: float = Field(default=4, gt=0, le=1_000)
    """How large a request may be, in millions of bytes; a package may have `install.zip_mb`."""
    body_seconds: float = Field(default=30, gt=0, le=3_600)
    """How long a client may take to send its request."""
    concurrency: int = Field(default=256, ge=1, le=100_000)
    """How many requests are worked on at a time; more are sent away for a while."""
    rate: int = Field(default=0, ge=0)
    """How many requests a key may make in a minute; 0 for any number."""
    drain_seconds: float = Field(default=20, ge=0, le=3_600)
    """How long requests may go on when the server is told to stop."""
    approval_seconds: float = Field(default=120, gt=0, le=86_400)
    """How long a question waits for somebody's answer, before it is no."""
    open_index: bool = False
    """Whether everybody may see the index of skills and have them, also without a key."""
    console: bool = True
    """Whether the console is served."""
    mcp: bool = True
    """Whether MCP is served, at `/mcp`."""
    mcp_tools: StringList = ("Calculate", "Now")
    """Built-in tools that MCP clients may call, beside those about skills."""


PREFIX = "APEXBRIDGE_"


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
    undo_days: float = Field(default=7, ge=0, le=3_650)
    """How long a removed skill can be brought back."""
    watch: bool = True
    """Whether a server sees changes on disk without a restart."""


class InstallSettings(BaseModel):
    """What may be installed, and what is kept of it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    zip_mb: float = Field(default=30, gt=0, le=4_000)
    """How large an archive may be, in millions of bytes."""
    unpacked_mib: int = Field(default=64, ge=1, le=16_384)
    """How large a skill may be when it is unpacked."""
    file_mb: float = Field(default=10, gt=0, le=4_000)
    """How large one of its files may be, in millions of bytes."""
    files: int = Field(default=2_000, ge=1, le=10_000)
    """How many files it may have."""
    ratio: int = Field(default=100, ge=2, le=1_032)
    """How many times its packed size a file may have."""
    depth: int = Field(default=16, ge=2, le=64)
    """How many folders deep a file may lie, its own name counted."""
    blocks_at: Literal["info", "review", "warn", "block"] = "block"
    """Findings of this level or graver refuse a skill."""
    keep_versions: int = Field(default=10, ge=0, le=1_000)
    """How many earlier versions of a skill are kept."""


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


class IndexSettings(BaseModel):
    """How skills are found."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    embedder: Embedder = "own"
    """What turns texts into vectors: `own` (ours: offline, English and Chinese), `use`
    (offline, sixteen languages), `onnx:FOLDER`, `fastembed:MODEL`, `http` (the `embedder_*`
    settings below), `hash` (for tests)."""
    embedder_url: str = ""
    """The address of an OpenAI-compatible service, used as given."""
    embedder_model: str = ""
    """The model to ask it for."""
    embedder_key: SecretStr = SecretStr("")
    """The key it wants."""
    embedder_dimensions: int = Field(default=0, ge=0, le=8_192)
    """The size of vector to ask it for; 0 for its own."""
    store: Literal["sqlite", "lance"] = "sqlite"
    """Where vectors are kept; `lance` needs the extra of that name."""
    precision: Literal["float32", "float16"] = "float32"
    """How vectors are written to disk; half takes half the room there."""
    tags: bool = True
    """Whether tags help to find a skill: made by the model where one is configured, else mined."""
    threshold: float = Field(default=0.5, ge=0, le=1)
    """Below this confidence no skill is taken to fit."""


class ModelSettings(BaseModel):
    """The language model, where one is configured."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    preset: str = ""
    """A provider by name: openai, deepseek, dashscope, zhipu, moonshot, siliconflow, ollama, vllm,
    lmstudio, anthropic; its address and protocol need not be given then."""
    base_url: str = ""
    """The address of the service, used as given; empty for none."""
    name: str = ""
    """The model to ask it for."""
    api_key: SecretStr = SecretStr("")
    """The key it wants; empty for the variable that the provider's own tools read."""
    protocol: Literal["openai", "anthropic"] = "openai"
    """What it speaks, where no preset says."""
    tools: Literal["auto", "native", "text"] = "auto"
    """Whether the model takes tools (`native`), is told of them in words (`text`), or is tried."""
    json_schema: bool = False
    """Whether the service holds replies to a JSON schema, which helps where tools are told in
    words; for a preset it is known."""
    aliases: Aliases = ()
    """Models by the names that skills have for them, each as `NAME=MODEL`; `sonnet`, `opus` and
    `haiku` are the usual one where nothing is said."""
    window: int = Field(default=128_000, ge=1_000)
    """Its context window, in tokens."""
    first_seconds: float = Field(default=120, gt=0, le=3_600)
    """How long its first word may take; a large prompt on a small machine takes long."""


class AgentSettings(BaseModel):
    """What a turn may cost, and what skills may do in it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    rounds: int = Field(default=25, ge=1, le=1_000)
    """How often the model is asked in one turn."""
    tokens: int = Field(default=400_000, ge=1_000)
    """How many tokens a turn may take, in and out."""
    seconds: float = Field(default=900, gt=0, le=86_400)
    """How long a turn may take."""
    depth: int = Field(default=3, ge=0, le=10)
    """How many sessions deep skills may fork."""
    children: int = Field(default=8, ge=0, le=100)
    """How many child sessions a turn may start."""
    inline_commands: bool = True
    """Whether commands in the text of skills are run."""
    allowed_tools: Literal["preapprove", "restrict", "advise"] = "preapprove"
    """What `allowed-tools` of a skill do: lend them, refuse all others, or only tell."""


class PermissionSettings(BaseModel):
    """Rules for tools and skills; the strictest answer wins."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    allow: ToolPatterns = ()
    """What may be used without asking: `Bash(git status *)`, `Write(src/**)`, `Skill(review)`."""
    ask: ToolPatterns = ()
    """What is asked about each time."""
    deny: ToolPatterns = ()
    """What may not be used."""


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

    lang: Annotated[Literal["auto", "en", "zh"], BeforeValidator(language_tag)] = "auto"
    """The language of messages; `auto` follows the locale."""
    data_dir: Path = Path("~/.local/share/apexbridge")
    """Where installed skills and the index are kept."""
    skills: SkillSettings = SkillSettings()
    """Where skills are looked for."""
    plugins: PluginSettings = PluginSettings()
    """Plugins that bring skills."""
    mcp: McpSettings = McpSettings()
    """MCP servers that bring skills."""
    remote: RemoteSettings = RemoteSettings()
    """Skills from the network."""
    install: InstallSettings = InstallSettings()
    """What may be installed, and what is kept of it."""
    sandbox: SandboxSettings = SandboxSettings()
    """How scripts are run."""
    index: IndexSettings = IndexSettings()
    """How skills are found."""
    model: ModelSettings = ModelSettings()
    """The language model, where one is configured."""
    agent: AgentSettings = AgentSettings()
    """What a turn may cost, and what skills may do in it."""
    permissions: PermissionSettings = PermissionSettings()
    """Rules for tools and skills."""
    server: ServerSettings = ServerSettings()
    """The HTTP server."""
    hooks: Hooks = Field(default_factory=dict[str, Any])
    """Commands and addresses for events, as in the frontmatter of skills."""

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
