"""One asynchronous call on an opened `Runtime`, from a synchronous command."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from apexbridge.cli.output import Output
from apexbridge.runtime import Runtime

T = TypeVar("T")


def with_runtime(out: Output, call: Callable[[Runtime], Awaitable[T]]) -> T:
    """Open the runtime in a new event loop, await the call, and close the runtime."""

    async def opened() -> T:
        async with Runtime.open(out.config) as runtime:
            return await call(runtime)

    return anyio.run(opened)
