"""Hook runner: run a session's hooks as sandboxed commands or HTTP requests, and merge verdicts.

Hooks of one event run concurrently, each with the original input. The strictest verdict wins. If
several change the input, the one registered last wins, with a warning. A failing `PreToolUse` hook
fails closed (the tool is blocked); any other fails open, with a warning.

A hook with `once` is removed after its first success, not before: a guard that blocks, asks or
fails stays. Events that arrive while it runs wait for its verdict.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import anyio.to_thread

from apexbridge.errors import ApexBridgeError
from apexbridge.hooks.commands import HookCommand, HookCommandRunner, HookFailedError
from apexbridge.permissions.hook_protocol import (
    Hook,
    HookEvent,
    HookOutputError,
    HookVerdict,
    HookWarning,
    matches_hook,
    parse_hook_output,
    truncate_output,
)
from apexbridge.sandbox.base import MIB, ExecutionResult
from apexbridge.skills import tree
from apexbridge.skills.model import Fingerprint

log = logging.getLogger(__name__)

_MAX_PAYLOAD = 10 * MIB
_MAX_CONCURRENT = 8
_GRACE_SECONDS = 5
_BLOCKING_EXIT_CODE = 2
_SUCCESS_STATUSES = range(200, 300)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookInput:
    """Input of the hooks of one event; matchers are tested against `subject`."""

    event: HookEvent
    session_id: str
    cwd: Path
    subject: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def payload(self) -> bytes:
        """Serialize to the JSON that a hook reads from stdin or as HTTP body."""
        known = {"session_id": self.session_id, "cwd": str(self.cwd)}
        facts = {**known, "hook_event_name": str(self.event), **self.facts}
        return json.dumps(facts, ensure_ascii=False, default=str).encode("utf-8", "replace")


class HookReply(NamedTuple):
    """HTTP response of a hook."""

    status: int
    body: bytes


HookPoster = Callable[[str, bytes, float], Awaitable[HookReply]]
"""POST a payload to a URL within a timeout; raises `ApexBridgeError` without a response."""


@dataclass(frozen=True, slots=True)
class _RegisteredHook:
    hook: Hook
    skill: str
    root: Path | None
    sha256: str = ""

    def require_unchanged(self) -> None:
        """TOCTOU guard: hash the files again, and refuse to run others than were trusted."""
        if not self.sha256 or self.root is None:
            return
        now = tree.fingerprint(self.root, is_ours=False)
        if not isinstance(now, Fingerprint) or now.sha256 != self.sha256:
            raise HookFailedError("the files of its skill have changed since they were trusted")

    @property
    def name(self) -> str:
        what = self.hook.url or " ".join(self.hook.command)
        return f"{what[:80]} ({self.skill})" if self.skill else what[:80]


@dataclass(slots=True)
class _OnceState:
    """State of a hook with `once`: its runs take turns until one of them succeeds."""

    turn: anyio.Lock = field(default_factory=anyio.Lock)
    is_spent: bool = False


class HookRunner:
    """Hooks of a session: those of settings and of the skills it invoked."""

    def __init__(self, run: HookCommandRunner, post: HookPoster | None = None) -> None:
        self._run = run
        self._post = post
        self._registered: dict[_RegisteredHook, None] = {}
        self._once: dict[_RegisteredHook, _OnceState] = {}

    def register(
        self,
        hooks: Iterable[Hook],
        *,
        skill: str = "",
        root: Path | None = None,
        sha256: str = "",
    ) -> int:
        """Register hooks for the rest of the session, each once; return the number of new ones.

        `root` is the directory of the skill or project: readable, and the base of relative paths.
        With a hash they run only while the skill's files have it, and earlier ones are removed.
        """
        if sha256:
            kept = (e for e in self._registered if e.skill != skill or e.sha256 == sha256)
            self._registered = dict.fromkeys(kept)
        before = len(self._registered)
        for hook in hooks:
            self._registered.setdefault(_RegisteredHook(hook, skill, root, sha256))
        return len(self._registered) - before

    def for_subagent(self) -> "HookRunner":
        """Copy the hooks for a subagent; one with `once` succeeds once for parent and subagents."""
        other = HookRunner(self._run, self._post)
        other._registered = dict(self._registered)
        other._once = self._once
        return other

    @property
    def is_empty(self) -> bool:
        """Return whether no hook is registered."""
        return not self._registered

    def count(self, event: HookEvent) -> int:
        """Return the number of hooks registered for an event."""
        return sum(entry.hook.event is event for entry in self._registered)

    def has_hook(self, event: HookEvent, subject: str) -> bool:
        """Return whether any registered hook matches an event and subject."""
        return any(
            entry.hook.event is event
            and not self._is_spent(entry)
            and matches_hook(entry.hook.matcher, subject) is not False
            for entry in self._registered
        )

    def _is_spent(self, entry: _RegisteredHook) -> bool:
        state = self._once.get(entry)
        return state is not None and state.is_spent

    async def fire(self, occasion: HookInput) -> HookVerdict:
        """Run the matching hooks concurrently. Never raises for what a hook did."""
        chosen, warnings = self._choose(occasion)
        if not chosen:
            return HookVerdict(warnings=warnings)
        payload = occasion.payload()
        limiter = anyio.CapacityLimiter(_MAX_CONCURRENT)
        verdicts = dict[int, HookVerdict]()

        async def run(number: int, entry: _RegisteredHook) -> None:
            async with limiter:
                verdicts[number] = await self._run_hook(entry, occasion, payload)

        async def run_once(number: int, entry: _RegisteredHook) -> None:
            state = self._once.setdefault(entry, _OnceState())
            # The lock first: a hook that waits for its turn holds no place of the limiter.
            async with state.turn:
                if not state.is_spent:
                    await run(number, entry)
                    state.is_spent = _is_success(verdicts[number])

        async with anyio.create_task_group() as group:
            for number, entry in enumerate(chosen):
                group.start_soon(run_once if entry.hook.once else run, number, entry)
        ran = sorted(verdicts)
        entries = [chosen[number] for number in ran]
        return _merge_verdicts(entries, [verdicts[number] for number in ran], warnings)

    def _choose(self, occasion: HookInput) -> tuple[list[_RegisteredHook], tuple[HookWarning, ...]]:
        """Select the matching hooks, without those that have succeeded once and were removed."""
        chosen, warnings = list[_RegisteredHook](), list[HookWarning]()
        for entry in self._registered:
            if entry.hook.event is not occasion.event or self._is_spent(entry):
                continue
            is_meant = matches_hook(entry.hook.matcher, occasion.subject)
            if is_meant is None:
                warnings.append(_warning("hook_matcher_invalid", entry, entry.hook.matcher[:80]))
                is_meant = occasion.event is HookEvent.PRE_TOOL_USE
            if is_meant:
                chosen.append(entry)
        return chosen, tuple(warnings)

    async def _run_hook(
        self, entry: _RegisteredHook, occasion: HookInput, payload: bytes
    ) -> HookVerdict:
        try:
            with anyio.fail_after(entry.hook.timeout_seconds + _GRACE_SECONDS):
                return await self._verdict(entry, occasion, payload)
        except (HookFailedError, HookOutputError) as error:
            detail = str(error)
        except TimeoutError:
            detail = f"no answer within {entry.hook.timeout_seconds:g} s"
        except (ApexBridgeError, OSError, ValueError) as error:
            detail = str(error) or type(error).__name__
        except Exception as error:
            log.warning("A hook cannot be run", exc_info=True)
            detail = type(error).__name__
        return _failure_verdict(entry, occasion.event, detail)

    async def _verdict(
        self, entry: _RegisteredHook, occasion: HookInput, payload: bytes
    ) -> HookVerdict:
        if len(payload) > _MAX_PAYLOAD:
            raise HookFailedError("the payload is too large for a hook")
        await anyio.to_thread.run_sync(entry.require_unchanged)
        hook = entry.hook
        if hook.url:
            return await self._post_payload(hook, payload)
        command = HookCommand(
            argv=hook.command,
            stdin=payload,
            root=entry.root,
            is_confined=bool(entry.skill),
            project=occasion.cwd,
            seconds=hook.timeout_seconds,
        )
        return _parse_result(occasion.event, await self._run(command))

    async def _post_payload(self, hook: Hook, payload: bytes) -> HookVerdict:
        if self._post is None:
            raise HookFailedError("hooks may not reach the network here")
        with anyio.fail_after(hook.timeout_seconds):
            reply = await self._post(hook.url, payload, hook.timeout_seconds)
        if reply.status not in _SUCCESS_STATUSES:
            raise HookFailedError(f"it answered {reply.status}")
        return parse_hook_output(hook.event, reply.body)


def _is_success(verdict: HookVerdict) -> bool:
    """Return whether a hook ran and had no objection; a guard that objects must stay."""
    objects = verdict.is_blocked or verdict.asks or verdict.stops
    return not (objects or verdict.warnings)


def _parse_result(event: HookEvent, result: ExecutionResult) -> HookVerdict:
    """Parse a command's result: exit code 2 blocks, 0 has a JSON verdict, others are failures."""
    said = result.stderr.decode("utf-8", "replace").strip()
    if result.truncated or result.outcome not in {"ok", "failed"}:
        raise HookFailedError(f"{result.outcome}: {result.error or said[:200]}".rstrip(": "))
    if result.exit_code == _BLOCKING_EXIT_CODE:
        return HookVerdict(outcome="block", reason=truncate_output(said))
    if result.exit_code != 0:
        raise HookFailedError(f"exit code {result.exit_code}: {said[:200]}".rstrip(": "))
    return parse_hook_output(event, result.stdout)


def _failure_verdict(entry: _RegisteredHook, event: HookEvent, detail: str) -> HookVerdict:
    if event is HookEvent.PRE_TOOL_USE:
        warning = _warning("hook_failed_closed", entry, detail)
        return HookVerdict(outcome="block", reason=warning.message, warnings=(warning,))
    return HookVerdict(warnings=(_warning("hook_failed_open", entry, detail),))


def _warning(code: str, entry: _RegisteredHook, detail: str) -> HookWarning:
    details = {"hook": entry.name, "event": str(entry.hook.event), "detail": detail}
    return HookWarning(code=code, details=details)


def _merge_verdicts(
    entries: Sequence[_RegisteredHook],
    verdicts: Sequence[HookVerdict],
    warnings: tuple[HookWarning, ...],
) -> HookVerdict:
    """Merge verdicts into the strictest, with all reasons in the order of registration."""
    blocked = [verdict for verdict in verdicts if verdict.is_blocked]
    asking = [verdict for verdict in verdicts if verdict.asks]
    changes = [
        (entry, verdict.changed)
        for entry, verdict in zip(entries, verdicts, strict=True)
        if verdict.changed is not None
    ]
    warned = [warning for verdict in verdicts for warning in verdict.warnings]
    warned += [
        _warning("hook_change_lost", entry, changes[-1][0].name)
        for entry, changed in changes[:-1]
        if changed != changes[-1][1]
    ]
    return HookVerdict(
        outcome="block" if blocked else "continue",
        reason="\n".join(v.reason for v in (blocked or asking) if v.reason),
        context=truncate_output("\n".join(v.context for v in verdicts if v.context)),
        asks=bool(asking) and not blocked,
        stops=any(v.stops for v in verdicts),
        changed=changes[-1][1] if changes and not blocked else None,
        warnings=(*warnings, *warned),
        ran=len(verdicts),
    )
