"""What can be chosen of the server."""

from pydantic import BaseModel, ConfigDict, Field

from apexbridge.settings.kinds import Listed


class ServerSettings(BaseModel):
    """The HTTP server, and what it holds its clients to."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    host: str = "127.0.0.1"
    """The address to listen at; one that others can reach needs a key."""
    port: int = Field(default=8484, ge=0, le=65_535)
    """The port to listen at; 0 for any free one."""
    allowed_hosts: Listed = ()
    """Names that clients may call it by, beside its own address and `localhost`."""
    allowed_origins: Listed = ()
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
    mcp_tools: Listed = ("Calculate", "Now")
    """Built-in tools that MCP clients may call, beside those about skills."""
