"""TCP server for tests that writes raw bytes."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
from anyio.abc import SocketAttribute, SocketStream

Talk = Callable[[SocketStream], Awaitable[None]]


@asynccontextmanager
async def raw_server(talk: Talk) -> AsyncGenerator[str]:
    """Let `talk` have every connection; the address is without a path."""

    async def serve(stream: SocketStream) -> None:
        async with stream:
            await talk(stream)

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as group,
    ):
        group.start_soon(listener.serve, serve)
        yield f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
        group.cancel_scope.cancel()
