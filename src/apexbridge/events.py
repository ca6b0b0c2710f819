"""What happens, as it happens. Events are the telemetry; logs are for people.

Secrets never enter an event, and a skill's arguments are told by their length only. What a person
is asked about is told to whoever may answer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Mode = Literal["inline", "fork"]
Trigger = Literal["user", "model", "nested", "fork", "api"]
ApprovalOutcome = Literal["once", "always", "no", "expired", "withdrawn"]
"""What became of a question: an answer, none in time, or a turn that was left meanwhile."""
ChangeCause = Literal[
    "refresh",
    "path",
    "folder",
    "disk",
    "source",
    "trust",
    "install",
    "uninstall",
    "edit",
    "update",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """A piece of the reply arrived."""

    session_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningDelta:
    """A piece of what the model thinks before it replies arrived."""

    session_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted:
    """A tool call was allowed and begins."""

    session_id: str
    call_id: str
    tool: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFinished:
    """A tool call ended."""

    session_id: str
    call_id: str
    tool: str
    seconds: float
    is_error: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillActivated:
    """A skill was invoked."""

    session_id: str
    skill: str
    mode: Mode
    trigger: Trigger
    argument_chars: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillRefused:
    """A skill was asked for and not invoked; `code` says why."""

    session_id: str
    skill: str
    code: str
    trigger: Trigger


@dataclass(frozen=True, slots=True, kw_only=True)
class SlashUsedByModel:
    """The model wrote a skill's name with the leading `/` that only people need."""

    session_id: str
    skill: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HookWarned:
    """A hook failed, or could not be asked; what waited for it says what came of that."""

    session_id: str
    code: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAsked:
    """A person is asked whether a tool may do something; after so many seconds it may not."""

    session_id: str
    approval_id: str
    tool: str
    argument: str
    """What it would do, cut after 2,000 characters."""
    argument_chars: int
    reason: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalSettled:
    """A question was answered, or nobody waits for its answer any more."""

    session_id: str
    approval_id: str
    answer: ApprovalOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFinished:
    """A turn came to its end; `finish` says to which."""

    session_id: str
    turn_id: str
    finish: str
    text: str
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogChanged:
    """The set of active skills changed."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    cause: ChangeCause


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingCut:
    """The list of skills did not fit its budget."""

    session_id: str
    shortened: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


Event = (
    TextDelta
    | ReasoningDelta
    | ToolStarted
    | ToolFinished
    | SkillActivated
    | SkillRefused
    | SlashUsedByModel
    | HookWarned
    | ApprovalAsked
    | ApprovalSettled
    | TurnFinished
    | CatalogChanged
    | ListingCut
)
EventSink = Callable[[Event], None]
