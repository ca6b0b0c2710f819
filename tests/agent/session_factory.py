"""Session factory for unit tests of the agent."""

from pathlib import Path

from apexbridge.agent.session import Session
from apexbridge.catalog.path_activation import PathActivation
from apexbridge.hooks.commands import HookCommand
from apexbridge.hooks.runner import HookRunner
from apexbridge.sandbox.base import ExecutionResult


async def _run(command: HookCommand) -> ExecutionResult:
    raise AssertionError(f"no hook is expected here: {command.argv}")


def new_session(session_id: str = "s", cwd: Path = Path("/w")) -> Session:
    """Create a session without hooks."""
    return Session(
        id=session_id, cwd=cwd, path_activation=PathActivation(cwd), hooks=HookRunner(_run)
    )
