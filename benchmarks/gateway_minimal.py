"""Minimal gateway for comparison: starlette server, aiohttp client.

python -m benchmarks.gateway_minimal PORT UPSTREAM
"""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import aiohttp
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route


def main(port: int, upstream: str) -> None:
    """Proxy every request."""
    sessions = list[aiohttp.ClientSession]()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with aiohttp.ClientSession() as session:
            sessions.append(session)
            yield

    async def chat(request: Request) -> Response:
        body = await request.body()
        headers = {"Content-Type": "application/json"}
        address = f"{upstream}/chat/completions"
        reply = await sessions[0].post(address, data=body, headers=headers)
        if reply.content_type != "text/event-stream":
            async with reply:
                return Response(await reply.read(), reply.status, media_type="application/json")

        async def pieces() -> AsyncGenerator[bytes]:
            async with reply:
                async for piece in reply.content.iter_any():
                    yield piece

        return StreamingResponse(pieces(), media_type="text/event-stream")

    app = Starlette(
        routes=[Route("/v1/chat/completions", chat, methods=["POST"])], lifespan=lifespan
    )
    uvicorn.run(app, port=port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
