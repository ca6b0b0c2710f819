"""Request and response schemas of the chat completions API; unknown fields go upstream."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from apexbridge.activation.input_files import MAX_INPUT_FILES, InputFile

SessionName = Annotated[str, StringConstraints(pattern=r"^[^\s.]{1,128}$")]
"""Without full stops, which separate the ids of subagent sessions."""


class _RequestModel(BaseModel):
    model_config = ConfigDict(strict=True, use_attribute_docstrings=True)


class FunctionDefinition(_RequestModel):
    """Function definition of a tool."""

    name: str = Field(min_length=1, max_length=128)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ClientTool(_RequestModel):
    """Client-side tool: offered to the model, executed by the client."""

    type: Literal["function"] = "function"
    function: FunctionDefinition


class FunctionCall(_RequestModel):
    """Name and JSON arguments of a function call."""

    name: str = Field(min_length=1)
    arguments: str = ""


class ClientToolCall(_RequestModel):
    """Call of a client-side tool, in a message of the history."""

    id: str = Field(min_length=1)
    type: Literal["function"] = "function"
    function: FunctionCall


class ContentPart(_RequestModel):
    """Content part of a message: text, or another modality."""

    model_config = ConfigDict(extra="allow", strict=True)

    type: str
    text: str | None = None


class ChatMessage(_RequestModel):
    """Message of a request; the role determines the fields."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[ContentPart] | None = None
    tool_calls: list[ClientToolCall] | None = None
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        """All text parts, joined."""
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content if part.text)
        return self.content or ""


class StreamOptions(_RequestModel):
    """OpenAI's `stream_options`."""

    include_usage: bool | None = None


class Conversation(_RequestModel):
    """Reference to a stored session, in OpenAI's schema."""

    id: SessionName


class ApexBridgeOptions(_RequestModel):
    """Extension of OpenAI's schema: options of this server."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)

    skills: list[str] = Field(default_factory=list, max_length=20)
    """Skills to load, by name."""
    files: list[InputFile] = Field(default_factory=list[InputFile], max_length=MAX_INPUT_FILES)
    """Files that tools and scripts of this request may read; needs the scope `exec`."""
    session: SessionName | None = None
    """Stored session to continue; only messages after the last assistant message are read then."""
    rounds: int | None = Field(default=None, ge=1)
    """Maximum rounds of the agent loop; settings are the upper bound."""
    tokens: int | None = Field(default=None, ge=1)
    """Token budget of the turn; settings are the upper bound."""
    seconds: float | None = Field(default=None, gt=0)
    """Timeout of the turn; settings are the upper bound."""
    approvals: Literal["wait", "refuse"] = "refuse"
    """Whether a tool call that needs approval waits for a person, or is denied."""
    explain: bool = False
    """Whether the response includes the trace of the turn."""
    progress: bool = False
    """Whether a stream includes progress events of tools and skills, on chunks that every client
    can parse."""


class ChatRequest(BaseModel):
    """Chat completion request, in OpenAI's schema; unknown fields are passed to the model."""

    model_config = ConfigDict(extra="allow", strict=True, use_attribute_docstrings=True)

    messages: list[ChatMessage] = Field(min_length=1)
    model: str = ""
    """A name of `/v1/models`, or any model of the upstream API."""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: list[ClientTool] | None = None
    """Client-side tools; an empty list disables the server's tools."""
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    """`none` disables the server's tools; `required` or a tool's name leaves only the client's."""
    n: int | None = Field(default=None, ge=1)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    response_format: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    conversation: SessionName | Conversation | None = None
    """Stored session to continue."""
    apexbridge: ApexBridgeOptions | None = None

    @property
    def options(self) -> ApexBridgeOptions:
        """Options of this server, or their defaults."""
        return self.apexbridge or _DEFAULT_OPTIONS

    @property
    def session(self) -> str:
        """Name of the stored session; empty if the body names none."""
        named = self.conversation
        return (
            (named.id if isinstance(named, Conversation) else named) or self.options.session or ""
        )

    @property
    def has_loop(self) -> bool:
        """True if the server's tools and skills take part."""
        is_open = self.tool_choice is None or self.tool_choice == "auto"
        return is_open and self.tools != []


_DEFAULT_OPTIONS = ApexBridgeOptions()


class CompletionSummary(BaseModel):
    """Extension of OpenAI's schema: summary of the turn."""

    turn: str
    session: str | None
    finish: str
    skills: list[str]
    skill_calls: list[dict[str, Any]]
    """Invocations of skills: mode, tool_use id, subagent id, and the number of a refusal."""
    confidence: float
    explanation: dict[str, Any] | None = None


class ResponseFunction(BaseModel):
    """Name and JSON arguments of a function call."""

    name: str
    arguments: str


class ResponseToolCall(BaseModel):
    """Call of a client-side tool."""

    id: str
    type: Literal["function"]
    function: ResponseFunction


class ResponseMessage(BaseModel):
    """Assistant message."""

    role: Literal["assistant"]
    content: str | None
    refusal: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ResponseToolCall] | None = None


class Choice(BaseModel):
    """The only choice: `n` is always 1."""

    index: int
    message: ResponseMessage
    logprobs: None = None
    finish_reason: Literal["stop", "length", "tool_calls", "content_filter"]


class CompletionUsage(BaseModel):
    """Token usage of all rounds and subagents."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ChatCompletion(BaseModel):
    """Chat completion, in OpenAI's schema; a stream has the same in chunks."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: CompletionUsage
    apexbridge: CompletionSummary
