"""Settings schema: every setting with its type, default, bounds and meaning."""

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
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from apexbridge.settings.validators import (
    SECRET_PATHS,
    Aliases,
    Embedder,
    Hooks,
    HostGrants,
    Networks,
    Paths,
    Precedence,
    PublicKeys,
    StringList,
    ToolPatterns,
    language_tag,
    parse_json,
)
from apexbridge.skills.model import Origin


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class PluginSettings(_Table):
    """Plugins that provide skills."""

    paths: Paths = ()
    """Plugin folders, and marketplaces (folders that list plugins)."""
    builtin: StringList = ()
    """Names of enabled plugins among those that come with the package: `review`."""
    disabled: StringList = ()
    """Names of disabled plugins."""
    config: Annotated[dict[str, dict[str, str]], BeforeValidator(parse_json)] = Field(
        default_factory=dict[str, dict[str, str]]
    )
    """Values of `${user_config.KEY}`, by plugin."""


class McpServer(_Table):
    """MCP server: a subprocess (stdio transport) or a URL (HTTP transport)."""

    model_config = ConfigDict(populate_by_name=True)

    command: str = ""
    """Program to start, for the stdio transport."""
    args: tuple[str, ...] = ()
    """Command-line arguments of the program."""
    env: dict[str, SecretStr] = Field(default_factory=dict[str, SecretStr])
    """Additional environment variables of the program."""
    url: str = ""
    """URL of the server, for the HTTP transport."""
    headers: dict[str, SecretStr] = Field(default_factory=dict[str, SecretStr])
    """HTTP headers of every request."""
    timeout_seconds: float = Field(
        default=30, gt=0, le=600, validation_alias=AliasChoices("timeout_seconds", "seconds")
    )
    """Timeout of a request."""

    @model_validator(mode="after")
    def _one_way(self) -> "McpServer":
        if bool(self.command) == bool(self.url):
            raise ValueError("give either a command or a url")
        return self


class McpSettings(_Table):
    """MCP servers that provide skills."""

    servers: Annotated[dict[str, McpServer], BeforeValidator(parse_json)] = Field(
        default_factory=dict[str, McpServer]
    )
    """Servers by name: each a `command` with `args` and `env`, or a `url` with `headers`."""


class RemoteSettings(_Table):
    """Remote skills over HTTPS and from object storage."""

    skills: StringList = ()
    """URLs of single skills: `https://…/SKILL.md`, `s3://bucket/key`, `gs://bucket/key`."""
    indexes: StringList = ()
    """Hosts with a `/.well-known/agent-skills/index.json`, as `https://host`."""
    allow_networks: Networks = ()
    """Private networks exempt from the SSRF guard, as `10.0.0.0/8`."""
    timeout_seconds: float = Field(default=15, gt=0, le=600)
    """Timeout of a request."""
    max_kib: int = Field(default=1_024, ge=1, le=65_536)
    """Maximum size of a file."""
    archive_mb: float = Field(default=10, gt=0, le=4_000)
    """Maximum size of an archive of a skill, in MB (10^6 bytes)."""


class ServerSettings(_Table):
    """HTTP server: address, access and limits."""

    host: str = "127.0.0.1"
    """Bind address; a non-loopback address requires an API key."""
    port: int = Field(default=8484, ge=0, le=65_535)
    """Port; 0 for any free one."""
    allowed_hosts: StringList = ()
    """Accepted Host headers, in addition to the bind address and `localhost`."""
    allowed_origins: StringList = ()
    """CORS origins, in addition to the console's: `https://chat.example.org`."""
    max_body_mb: float = Field(default=4, gt=0, le=1_000)
    """Maximum request body, in MB (10^6 bytes); `install.zip_mb` for uploads."""
    body_timeout_seconds: float = Field(default=30, gt=0, le=3_600)
    """Timeout for receiving a request's headers and body (slowloris protection)."""
    max_concurrency: int = Field(default=256, ge=1, le=100_000)
    """Maximum concurrent requests; more get 503 with `Retry-After`."""
    rate_limit: int = Field(default=0, ge=0)
    """Requests per minute and API key (token bucket); 0 for no limit."""
    drain_seconds: float = Field(default=20, ge=0, le=3_600)
    """Time for in-flight requests to finish at a graceful shutdown."""
    watchdog_seconds: float = Field(default=60, ge=0, le=86_400)
    """End a server whose event loop has been stuck for this long; 0 for never."""
    approval_seconds: float = Field(default=120, gt=0, le=86_400)
    """Timeout of a human approval (human in the loop); then the answer is no."""
    public_index: bool = False
    """Serve the skill index and downloads without an API key."""
    console: bool = True
    """Serve the web console."""
    mcp: bool = True
    """Serve MCP at `/mcp`."""
    mcp_tools: StringList = ("Calculate", "Now")
    """Built-in tools offered to MCP clients, in addition to the skill tools."""


PREFIX = "APEXBRIDGE_"


class SkillSettings(_Table):
    """Skill folders, precedence and watching."""

    model_config = ConfigDict(populate_by_name=True)

    paths: Paths = ()
    """Additional skill folders; relative to the project, `~` is your home."""
    allow_external_paths: bool = Field(
        default=False, validation_alias=AliasChoices("allow_external_paths", "allowExternalPaths")
    )
    """Allow `paths` outside the project."""
    additional_dirs: Paths = ()
    """Folders of other projects, whose `project_paths` are searched too and which the agent may
    read; relative to the project, `~` is your home."""
    managed_path: str = ""
    """Folder of managed skills, which nothing overrides; for operators."""
    user_paths: Paths = ("~/.apexbridge/skills", "~/.claude/skills", "~/.agents/skills")
    """Folders of the user's skills."""
    project_paths: Paths = (".apexbridge/skills", ".claude/skills", ".agents/skills")
    """Skill folders of a project, looked up from the current folder to the repository root."""
    precedence: Precedence = tuple(Origin)
    """Precedence of origins for skills of the same name, highest first."""
    max_depth: int = Field(default=6, ge=1, le=32)
    """Maximum scan depth below a root."""
    max_folders: int = Field(default=2_000, ge=1)
    """Maximum number of scanned folders of a root."""
    undo_days: float = Field(default=7, ge=0, le=3_650)
    """Days that an uninstalled skill can be restored."""
    watch: bool = True
    """Watch the folders for changes while a server runs."""


class InstallSettings(_Table):
    """Limits of installed skills (zip bombs included), and version history."""

    zip_mb: float = Field(default=30, gt=0, le=4_000)
    """Maximum archive size, in MB (10^6 bytes)."""
    unpacked_mib: int = Field(default=64, ge=1, le=16_384)
    """Maximum unpacked size of a skill."""
    file_mb: float = Field(default=10, gt=0, le=4_000)
    """Maximum size of a file, in MB (10^6 bytes)."""
    max_files: int = Field(default=2_000, ge=1, le=10_000)
    """Maximum number of files."""
    max_compression_ratio: int = Field(default=100, ge=2, le=1_032)
    """Maximum compression ratio of a file (zip bomb protection)."""
    max_path_depth: int = Field(default=16, ge=2, le=64)
    """Maximum number of path components."""
    block_level: Literal["info", "review", "warn", "block"] = "block"
    """Scanner findings of this level or higher block an installation."""
    keep_versions: int = Field(default=10, ge=0, le=1_000)
    """Number of earlier versions to keep."""
    trusted_keys: PublicKeys = ()
    """Public keys of minisign (`RWQ…`) whose signatures are verified."""
    require_signature: bool = False
    """Install and update only what one of the trusted keys has signed."""
    repository_mb: float = Field(default=200, gt=0, le=4_000)
    """Maximum download of a repository or an archive of several skills, in MB (10^6 bytes); four
    times that unpacked."""
    fetch_timeout_seconds: float = Field(default=300, gt=0, le=3_600)
    """Timeout of such a download."""


class SandboxSettings(_Table):
    """Script execution: resource limits, warm pool and network access."""

    timeout_seconds: float = Field(default=60, gt=0, le=3_600)
    """Wall-clock timeout of a script."""
    memory_mib: int = Field(default=1_024, ge=16)
    """Memory limit."""
    output_mib: int = Field(default=10, ge=1, le=1_024)
    """Output limit, stdout and stderr together."""
    processes: int = Field(default=64, ge=1)
    """Maximum number of processes."""
    workspace_mib: int = Field(default=256, ge=1)
    """Disk quota of the workspace."""
    warm_pool_size: int = Field(default=4, ge=0, le=64)
    """Number of pre-started sandboxes in the warm pool; 0 disables it."""
    kept_files_days: float = Field(default=7, ge=0, le=3_650)
    """Days for which files that scripts make can be downloaded; 0 keeps none."""
    kept_files_mib: int = Field(default=1_024, ge=0)
    """Size of all kept files together; the oldest are removed first."""
    hosts: HostGrants = ()
    """Network access by skill, each as `skill=host`; the default is no network."""
    secret_key_file: str = ""
    """Key file of the secret store; empty: the system keyring, else `secrets.key` in `data_dir`."""
    allow_unsandboxed: bool = False
    """Run scripts without isolation where no sandbox works; each run logs a warning."""


class DependencySettings(_Table):
    """Packages of skills: who agrees to a build, package indexes, limits of a build."""

    build: Literal["ask", "always", "never"] = "ask"
    """Build the packages that a skill needs: after a person agreed, at its first run, or never."""
    python_index: str = ""
    """Package index for Python; empty for the one that uv or pip is configured with, else PyPI."""
    npm_registry: str = ""
    """Registry for Node.js packages; empty for the one that npm is configured with."""
    hosts: StringList = ()
    """Further hosts that a build may reach, where an index keeps its files: `files.example.org`."""
    timeout_seconds: float = Field(default=900, gt=0, le=86_400)
    """Timeout of a step of a build."""
    max_mib: int = Field(default=4_096, ge=1)
    """Disk limit of an environment while it is built."""
    allow_unsandboxed: bool = False
    """Build without isolation where no sandbox can filter the network: wheels only, whose
    installation runs none of their code; each build logs a warning."""


class IndexSettings(_Table):
    """Search index: embedder, vector store and confidence threshold."""

    embedder: Embedder = "default"
    """Embedding model: `default` (bundled, offline, English and Chinese), `use`
    (offline, sixteen languages), `onnx:FOLDER`, `fastembed:MODEL`, `http` (the `embedder_*`
    settings below), `hash` (for tests)."""
    embedder_url: str = ""
    """URL of an OpenAI-compatible embeddings endpoint, used as given."""
    embedder_model: str = ""
    """Model name of the embeddings endpoint."""
    embedder_key: SecretStr = SecretStr("")
    """API key of the embeddings endpoint."""
    embedder_dimensions: int = Field(default=0, ge=0, le=8_192)
    """Dimensions to request; 0 for the model's default."""
    store: Literal["sqlite", "lance"] = "sqlite"
    """Vector store; `lance` (LanceDB) needs the extra of that name."""
    precision: Literal["float32", "float16"] = "float32"
    """Precision of stored vectors; `float16` halves the size on disk."""
    tags: bool = True
    """Index tags of skills: generated by the model if one is configured, else keywords."""
    threshold: float = Field(default=0.5, ge=0, le=1)
    """Minimum confidence of a good match; below it, matches are shown as weak."""


class ModelSettings(_Table):
    """Language model; empty for the rule-based embedded one."""

    preset: str = ""
    """Provider preset, which sets URL and protocol: openai, deepseek, dashscope, zhipu, moonshot,
    siliconflow, ollama, vllm, lmstudio, anthropic."""
    base_url: str = ""
    """Base URL of the API, used as given; empty for none."""
    name: str = ""
    """Model name."""
    api_key: SecretStr = SecretStr("")
    """API key; empty for the provider's usual environment variable."""
    protocol: Literal["openai", "anthropic"] = "openai"
    """API protocol, without a preset."""
    tools: Literal["auto", "native", "text"] = "auto"
    """Tool calling: `native`, in the prompt (`text`), or detected (`auto`)."""
    json_schema: bool = False
    """The API supports structured output by JSON schema, used with `text` tool calls; presets set
    it."""
    aliases: Aliases = ()
    """Model aliases used by skills, each as `NAME=MODEL`; `sonnet`, `opus` and `haiku` default to
    the configured model."""
    context_window: int = Field(default=128_000, ge=1_000)
    """Context window, in tokens; a model name that ends in `[1m]` has one of 1,000,000."""
    first_token_seconds: float = Field(default=120, gt=0, le=3_600)
    """Timeout for the first token."""


class AgentSettings(_Table):
    """Agent loop: budgets of a turn, subagents and skill grants."""

    max_rounds: int = Field(default=25, ge=1, le=1_000)
    """Maximum model calls in a turn."""
    token_budget: int = Field(default=400_000, ge=1_000)
    """Token budget of a turn, input and output."""
    timeout_seconds: float = Field(default=900, gt=0, le=86_400)
    """Timeout of a turn."""
    redact_credentials: bool = True
    """Hide API keys, tokens and private keys in the results of tools from the model."""
    max_subagent_depth: int = Field(default=3, ge=0, le=10)
    """Maximum depth of nested subagents."""
    max_subagents: int = Field(default=8, ge=0, le=100)
    """Maximum number of subagents in a turn."""
    inline_commands: bool = True
    """Run inline commands in the text of skills."""
    allowed_tools: Literal["preapprove", "restrict", "advise"] = "preapprove"
    """Effect of a skill's `allowed-tools`: pre-approve them, restrict to them, or only advise."""
    instructions: str = "Agent.md"
    """Markdown file of the project whose text is part of the system prompt; empty for none."""
    skills_section: Literal["auto", "always", "never"] = "auto"
    """Name skill folders and up to 40 skills in the system prompt; `auto`: beside a `ship.json`."""
    listing_description_chars: int = Field(default=250, ge=20, le=10_000)
    """Maximum length of a description in the skill listing; bundled skills are never shortened."""


class PermissionSettings(_Table):
    """Permission rules for tools and skills; the strictest match wins."""

    allow: ToolPatterns = ()
    """Allowed without asking: `Bash(git status *)`, `Write(src/**)`, `Skill(review)`."""
    ask: ToolPatterns = ()
    """Requires human approval each time."""
    deny: ToolPatterns = ()
    """Denied."""
    protected: StringList = SECRET_PATHS
    """Files and folders that no tool, hook or script reaches, besides the data folder's own."""


class Settings(BaseSettings):
    """Root of all settings."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        enable_decoding=False,
        use_attribute_docstrings=True,
    )

    lang: Annotated[Literal["auto", "en", "zh"], BeforeValidator(language_tag)] = "auto"
    """Language of messages; `auto` follows the locale."""
    data_dir: Path = Path("~/.local/share/apexbridge")
    """Folder of installed skills, index and logs."""
    skills: SkillSettings = SkillSettings()
    """Skill folders, precedence and watching."""
    plugins: PluginSettings = PluginSettings()
    """Plugins that provide skills."""
    mcp: McpSettings = McpSettings()
    """MCP servers that provide skills."""
    remote: RemoteSettings = RemoteSettings()
    """Remote skills over HTTPS and from object storage."""
    install: InstallSettings = InstallSettings()
    """Limits of installed skills (zip bombs included), and version history."""
    sandbox: SandboxSettings = SandboxSettings()
    """Script execution: resource limits, warm pool and network access."""
    dependencies: DependencySettings = DependencySettings()
    """Packages of skills: who agrees to a build, package indexes, limits of a build."""
    index: IndexSettings = IndexSettings()
    """Search index: embedder, vector store and confidence threshold."""
    model: ModelSettings = ModelSettings()
    """Language model; empty for the rule-based embedded one."""
    agent: AgentSettings = AgentSettings()
    """Agent loop: budgets of a turn, subagents and skill grants."""
    permissions: PermissionSettings = PermissionSettings()
    """Permission rules for tools and skills."""
    server: ServerSettings = ServerSettings()
    """HTTP server."""
    hooks: Hooks = Field(default_factory=dict[str, Any])
    """Hooks by event, as in the frontmatter of skills."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Use only the given values: `load` merges the layers itself, to record origins."""
        return (init_settings,)
