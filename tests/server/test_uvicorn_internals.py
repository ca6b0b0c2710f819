"""uvicorn internals that `connections.py` and `uvicorn_server.py` subclass are where they were.

When one fails after an upgrade: read the named module of uvicorn, adapt the subclass, and raise
the ceiling of `uvicorn` in pyproject.toml.
"""

import asyncio
import inspect
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import uvicorn
from packaging.requirements import Requirement
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

_PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
_SIGNATURES = {
    "connection_made": ["self", "transport"],
    "data_received": ["self", "data"],
    "on_message_begin": ["self"],
    "on_headers_complete": ["self"],
    "on_message_complete": ["self"],
    "on_response_complete": ["self"],
    "send_400_response": ["self", "msg"],
}


def _moved(what: str) -> str:
    return (
        f"uvicorn {version('uvicorn')} no longer has {what}, which "
        "apexbridge.server.connections or uvicorn_server relies on (Slowloris protection, "
        "connection limit, signals). Adapt them, or lower the ceiling of uvicorn in pyproject.toml."
    )


@pytest.mark.parametrize("method", _SIGNATURES)
def test_overridden_methods_have_their_signatures(method: str) -> None:
    found = getattr(HttpToolsProtocol, method, None)
    assert found is not None, _moved(f"HttpToolsProtocol.{method}")
    parameters = list(inspect.signature(found).parameters)
    assert parameters == _SIGNATURES[method], _moved(f"HttpToolsProtocol.{method}{parameters}")


async def _app(scope: Scope, receive: Receive, send: Send) -> None: ...


@pytest.mark.anyio
async def test_a_connection_has_the_attributes_that_are_read() -> None:
    state = ServerState()
    config = uvicorn.Config(_app, interface="asgi3", lifespan="off", log_config=None)
    protocol = HttpToolsProtocol(config, state, {}, asyncio.get_running_loop())
    for name in ("loop", "connections", "transport", "flow", "cycle"):
        assert hasattr(protocol, name), _moved(f"HttpToolsProtocol.{name}")
    begun = inspect.getsource(HttpToolsProtocol.on_message_begin)
    for name in ("self.url = ", "self.headers = "):
        assert name in begun, _moved(f"HttpToolsProtocol.{name}")
    assert protocol.connections is state.connections, _moved("ServerState.connections, shared")


def test_flow_control_and_response_cycle_have_the_attributes_that_are_read() -> None:
    assert "write_paused" in inspect.getsource(FlowControl.__init__), _moved(
        "FlowControl.write_paused"
    )
    assert "response_complete" in inspect.getsource(RequestResponseCycle.__init__), _moved(
        "RequestResponseCycle.response_complete"
    )


def test_the_server_captures_signals_in_one_method() -> None:
    assert hasattr(uvicorn.Server, "capture_signals"), _moved("Server.capture_signals")
    assert "capture_signals" in inspect.getsource(uvicorn.Server.serve), _moved(
        "the call of capture_signals in Server.serve"
    )


def test_the_declared_range_has_a_ceiling_and_holds_the_installed_version() -> None:
    project = tomllib.loads(_PYPROJECT.read_text(encoding="utf-8"))["project"]
    declared = next(
        requirement
        for requirement in map(Requirement, project["dependencies"])
        if requirement.name == "uvicorn"
    )
    assert any(part.operator == "<" for part in declared.specifier), declared
    assert declared.specifier.contains(version("uvicorn")), declared
