"""Fake hooks: commands are answered in-process, in place of the sandbox runner."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from apexbridge.hooks.commands import HookCommand, HookCommandRunner
from apexbridge.runtime import agent_factory
from apexbridge.sandbox.base import ExecutionResult


class FakeHooks:
    """Each hook command is a name; its stdout is what was prepared for that name."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, answers: Mapping[str, str] | None = None
    ) -> None:
        self._answers = answers or {}
        self.ran = list[str]()
        self.payloads = list[dict[str, Any]]()
        monkeypatch.setattr(agent_factory, "sandbox_runner", self._opened)

    def _opened(self, _: object) -> HookCommandRunner:
        return self._run

    async def _run(self, command: HookCommand) -> ExecutionResult:
        name = command.argv[0]
        self.ran.append(name)
        self.payloads.append(json.loads(command.stdin))
        printed = self._answers.get(name, "").encode()
        return ExecutionResult(outcome="ok", exit_code=0, stdout=printed)

    def settings(self, **commands: str) -> dict[str, Any]:
        """Build settings that register one command for each event."""
        return {event: [{"command": [command]}] for event, command in commands.items()}
