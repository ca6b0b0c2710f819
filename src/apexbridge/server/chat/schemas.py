"""A request as OpenAI's clients write it, and what of it is known here; the rest goes upstream."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

SessionName = Annotated[str, StringConstraints(pattern=r"^[^\s.]{1,128}$")]
"""No full stops: those are in the names of child sessions."""


class _RequestModel(BaseModel):
    model_config = ConfigDict(strict=True, use_attribute_docstrings=True)


class FunctionDefinition(_RequestModel):
    """What of a tool the model is told."""

    name: str = Field(min_length=1, max_length=128)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ClientTool(_RequestModel):
    """A tool of the client's own: offered to the model, never run here."""

    type: Literal["function"] = "function"
    function: FunctionDefinition


class FunctionCall(_RequestModel):
    """A function's name and what it is called with."""

    name: str = Field(min_length=1)
    arguments: str = ""


class ClientToolCall(_RequestModel):
    """A call that the model made of a client's tool."""

    id: str = Field(min_length=1)
    type: Literal["function"] = "function"
    function: FunctionCall


class ContentPart(_RequestModel):
    """A piece of a message: text, or anything else that a model may take."""

    model_config = ConfigDict(extra="allow", strict=True)

    type: str
    text: str | None = None


class ChatMessage(_RequestModel):
    """A message; which fields count depends on the role."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[ContentPart] | None = None
    tool_calls: list[ClientToolCall] | None = None
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        """All of its text."""
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content if part.text)
        return self.content or ""


class StreamOptions(_RequestModel):
    """What a stream tells besides."""

    include_usage: bool | None = None


class Conversation(_RequestModel):
    """A conversation that is kept here."""

    id: SessionName


class ApexBridgeOptions(_RequestModel):
    """What only this server knows; others pass over it."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)

    skills: list[str] = Field(default_factory=list, max_length=20)
    """Skills to be used, by name."""
    session: SessionName | None = None
    """A conversation that is kept here; only what is new is read of the messages then."""
    rounds: int | None = Field(default=None, ge=1)
    """How often the model may be asked; never more than settings allow."""
    tokens: int | None = Field(default=None, ge=1)
    """How many tokens the turn may cost; never more than settings allow."""
    seconds: float | None = Field(default=None, gt=0)
    """How long the turn may take; never more than settings allow."""
    approvals: Literal["wait", "refuse"] = "refuse"
    """What happens where a person would have to be asked."""
    explain: bool = False
    """Whether the reply says why the turn went as it did."""
    progress: bool = False
    """Whether a stream tells of tools and skills, on chunks that are valid for every client."""


class ChatRequest(BaseModel):
    """A request for a chat completion, as OpenAI defines it; unknown fields go to the model."""

    model_config = ConfigDict(extra="allow", strict=True, use_attribute_docstrings=True)

    messages: list[ChatMessage] = Field(min_length=1)
    model: str = ""
    """The name that `/v1/models` tells; with a model server behind, any that it knows."""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: list[ClientTool] | None = None
    """Tools of the client's own; an empty list switches ours off."""
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    """`none` switches ours off; `required`, or a tool's name, leaves the client's alone."""
    n: int | None = Field(default=None, ge=1)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    response_format: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    conversation: SessionName | Conversation | None = None
    """A conversation that is kept here."""
    apexbridge: ApexBridgeOptions | None = None

    @property
    def ours(self) -> ApexBridgeOptions:
        """What only this server knows."""
        return self.apexbridge or _DEFAULT_OPTIONS

    @property
    def session(self) -> str:
        """The conversation that the body names, if it names one."""
        named = self.conversation
        return (named.id if isinstance(named, Conversation) else named) or self.ours.session or ""

    @property
    def has_loop(self) -> bool:
        """Whether our own tools and skills take part."""
        is_open = self.tool_choice is None or self.tool_choice == "auto"
        return is_open and self.tools != []


_DEFAULT_OPTIONS = ApexBridgeOptions()


class CompletionSummary(BaseModel):
    """What only this server tells."""

    turn: str
    session: str | None
    finish: str
    skills: list[str]
    confidence: float
    explanation: dict[str, Any] | None = None


class ResponseFunction(BaseModel):
    """What is called, with what."""

    name: str
    arguments: str


class ResponseToolCall(BaseModel):
    """A call of a client's tool."""

    id: str
    type: Literal["function"]
    function: ResponseFunction


class ResponseMessage(BaseModel):
    """What the model said."""

    role: Literal["assistant"]
    content: str | None
    refusal: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ResponseToolCall] | None = None


class Choice(BaseModel):
    """The one reply there is."""

    index: int
    message: ResponseMessage
    logprobs: None = None
    finish_reason: Literal["stop", "length", "tool_calls", "content_filter"]


class CompletionUsage(BaseModel):
    """What all rounds and child sessions cost together."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ChatCompletion(BaseModel):
    """A chat completion, as OpenAI defines it; a stream has the same in pieces."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: CompletionUsage
    apexbridge: CompletionSummary
