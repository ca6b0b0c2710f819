"""Hooks whose commands are answered here, on the seam where others start a process."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from apexbridge.hooks import HookCommand, HookCommandRunner
from apexbridge.runtime import agent_factory
from apexbridge.sandbox.base import ExecutionResult


class Hooking:
    """Every hook's command is a name; it prints what was prepared for that name, or nothing."""

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
        """Settings that attach one command to each event."""
        return {event: [{"command": [command]}] for event, command in commands.items()}
