"""Events: typed telemetry of turns, skills, hooks and approvals, and the bus that delivers it.

Secrets never enter an event, and of a skill's arguments only the length does. The exception is an
approval request: the person who answers must see what would be executed.
"""

import logging
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

log = logging.getLogger(__name__)

Mode = Literal["inline", "fork"]
Trigger = Literal["user", "model", "nested", "fork", "api"]
ApprovalOutcome = Literal["once", "always", "always_prefix", "no", "expired", "withdrawn"]
"""Outcome of an approval request: an answer, a timeout, or a turn that was cancelled meanwhile."""
ChangeCause = Literal[
    "refresh", "path", "folder", "disk", "source", "trust", "install", "uninstall", "edit", "update"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """A streamed chunk of the reply."""

    session_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningDelta:
    """A streamed chunk of the model's reasoning."""

    session_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted:
    """A tool call passed its permission check and starts."""

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
    call_id: str = ""
    """Id of the tool call that invoked it (tool_use id); `user` for a slash command."""
    agent_id: str = ""
    """Id of the subagent that a forked skill runs in, which is its session id."""
    agent: str = ""
    """Name of that subagent's profile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillRefused:
    """An invocation was refused; `code` is the error code."""

    session_id: str
    skill: str
    code: str
    trigger: Trigger
    number: int = 0
    """Number of the refusal, as in Claude Code; 0 for a failure that has none."""
    call_id: str = ""
    details: Mapping[str, str] = field(default_factory=dict[str, str])
    """Values for the localized message of the code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlashUsedByModel:
    """The model wrote a skill's name as a slash command."""

    session_id: str
    skill: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HookWarned:
    """A hook failed or could not be run; `code` says whether that blocked anything."""

    session_id: str
    code: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAsked:
    """Human in the loop: approval is requested, and denied after so many seconds."""

    session_id: str
    approval_id: str
    tool: str
    argument: str
    """The command or path to approve, truncated to 2,000 characters."""
    argument_chars: int
    reason: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalSettled:
    """An approval request was answered, expired or withdrawn."""

    session_id: str
    approval_id: str
    answer: ApprovalOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFinished:
    """A turn ended; `finish` is the reason."""

    session_id: str
    turn_id: str
    finish: str
    text: str
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesCreated:
    """A skill's script created files, which are kept for some days."""

    session_id: str
    call_id: str
    skill: str
    run_id: str
    folder: str
    """Folder on this machine that has the files."""
    files: Mapping[str, int]
    """Sizes in bytes, by path in the folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesSkipped:
    """Files were left out: not given to a script, or not kept of what it made."""

    session_id: str
    call_id: str = ""
    """Empty for files that came with the request."""
    files: Mapping[str, str]
    """Reasons, by path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogChanged:
    """The set of active skills changed."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    cause: ChangeCause


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingCut:
    """The listing of skills was truncated to its token budget."""

    session_id: str
    shortened: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSynced:
    """The search index was brought up to date with the skills, at the start or later."""

    kept: int = 0
    """Number of skills whose entry was current."""
    added: tuple[str, ...] = ()
    redone: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    """Skills that could not be read."""

    @property
    def has_changes(self) -> bool:
        """Say whether anything but kept entries is in it."""
        return bool(self.added or self.redone or self.removed or self.failed)


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
    | FilesCreated
    | FilesSkipped
    | CatalogChanged
    | ListingCut
    | IndexSynced
)
EventSink = Callable[[Event], None]


class EventBus:
    """Deliver each event to every subscribed sink, in the thread that emits it."""

    def __init__(self, sinks: Iterable[EventSink] = ()) -> None:
        self._sinks = list(sinks)

    def emit(self, event: Event) -> None:
        """Call every sink; an exception in one neither reaches the others nor the emitter."""
        for sink in tuple(self._sinks):
            try:
                sink(event)
            except Exception:
                log.warning("An event listener failed", exc_info=True)

    @contextmanager
    def listen(self, sink: EventSink) -> Generator[None]:
        """Subscribe a sink for the length of the block."""
        self._sinks.append(sink)
        try:
            yield
        finally:
            self._sinks.remove(sink)
