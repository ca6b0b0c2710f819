"""What every sandbox promises, over every implementation.

The real ones join this suite when they are built; the double keeps the promises a double can.
"""

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from apexbridge.sandbox.base import ExecRequest, ExecutionResult, Sandbox
from apexbridge.testing import RecordingSandbox

pytestmark = pytest.mark.anyio

IMPLEMENTATIONS: dict[str, Callable[[], Sandbox]] = {"recording": RecordingSandbox}


@pytest.fixture(params=IMPLEMENTATIONS)
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return IMPLEMENTATIONS[request.param]()


async def test_a_command_that_works_is_ok(sandbox: Sandbox, tmp_path: Path) -> None:
    with anyio.fail_after(5):
        result = await sandbox.run(ExecRequest(argv=("true",), cwd=tmp_path))
    assert (result.outcome, result.exit_code) == ("ok", 0)


async def test_a_sandbox_has_a_name_for_reports(sandbox: Sandbox) -> None:
    assert sandbox.name


async def test_the_double_gives_what_was_prepared_and_remembers(tmp_path: Path) -> None:
    prepared = ExecutionResult(outcome="timeout", exit_code=124)
    double = RecordingSandbox(prepared)
    request = ExecRequest(argv=("sleep", "9"), cwd=tmp_path)
    assert await double.run(request) is prepared
    assert double.requests == [request]
