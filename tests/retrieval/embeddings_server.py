"""Scripted `/embeddings` server on a loopback socket."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from apexbridge.retrieval.embedders.hashing import HashEmbedder

Answering = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def honest(request: web.Request) -> web.StreamResponse:
    """Answer as OpenAI does."""
    return web.json_response(answer(await vectors(request)))


async def vectors(request: web.Request) -> list[list[float]]:
    """The right vectors for a request."""
    asked: dict[str, Any] = await request.json()
    rows = await HashEmbedder(asked.get("dimensions", 64)).embed(asked["input"], kind="document")
    return rows.tolist()


def answer(rows: Sequence[object]) -> dict[str, object]:
    """Put vectors the way OpenAI puts them."""
    listed = [{"index": at, "embedding": row} for at, row in enumerate(rows)]
    return {"object": "list", "data": listed, "usage": {"total_tokens": 1}}


@asynccontextmanager
async def serving(answering: Answering = honest) -> AsyncGenerator[str]:
    """Serve on a free port; the base address."""
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/v1/embeddings", answering)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()
