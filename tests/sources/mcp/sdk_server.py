"""A real MCP server, written with the official SDK, that offers what its folder says.

`offer.json` is read at every request: `prompts` with their answers, `page` for the size of a page,
`entries` and `served` to lie about skills, `die` and `words` to end badly. Skills lie in `skills/`.
"""

import base64
import contextlib
import hashlib
import json
import os
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import anyio
import uvicorn
import yaml
from mcp import MCPError, stdio_server, types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.subscriptions import PromptsListChanged

E = TypeVar("E")
EXTENSION = "io.modelcontextprotocol/skills"
PLACE = Path(sys.argv[1])
BUS = InMemorySubscriptionBus()
Context = ServerRequestContext[Any, Any]


def offer(method: str) -> dict[str, Any]:
    """What there is now; the end of the process, if that is what this method is to bring."""
    found: dict[str, Any] = json.loads((PLACE / "offer.json").read_text(encoding="utf-8"))
    if method in found.get("die", ()):
        sys.stderr.write(found.get("words", ""))
        sys.stderr.flush()
        os._exit(3)
    return found


def page(items: Sequence[E], params: types.PaginatedRequestParams | None, size: int) -> Any:
    start = int(params.cursor or 0) if params else 0
    following = str(start + size) if start + size < len(items) else None
    return list(items[start : start + size]), following


async def list_prompts(
    _: Context, params: types.PaginatedRequestParams | None
) -> types.ListPromptsResult:
    now = offer("prompts/list")
    prompts, following = page(now["prompts"], params, now.get("page", 50))
    listed = [types.Prompt.model_validate(p, extra="ignore") for p in prompts]
    return types.ListPromptsResult(prompts=listed, next_cursor=following)


async def get_prompt(_: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    now = offer("prompts/get")
    prompt = next((p for p in now["prompts"] if p["name"] == params.name), None)
    if prompt is None:
        raise MCPError(types.INVALID_PARAMS, f"no prompt {params.name}")
    if prompt.get("announces"):
        await BUS.publish(PromptsListChanged())
    given = json.dumps(params.arguments or {}, ensure_ascii=False)
    answers = prompt.get("answer", [{"type": "text", "text": f"{params.name} {given}"}])
    messages = [{"role": "user", "content": content} for content in answers]
    return types.GetPromptResult.model_validate({"messages": messages})


def entry(folder: Path) -> dict[str, Any]:
    """The entry of a skill, as the extension wants it."""
    text = (folder / "SKILL.md").read_text(encoding="utf-8")
    matter = yaml.safe_load(text.split("---")[1]) if text.startswith("---") else None
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {
        "uri": f"skill://{folder.name}/SKILL.md",
        "frontmatter": matter,
        "resources": [
            {
                "uri": f"skill://{folder.name}/{path.relative_to(folder).as_posix()}",
                "digest": f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}",
                "size": path.stat().st_size,
            }
            for path in files
        ],
    }


async def list_skills(_: Context, params: types.PaginatedRequestParams) -> dict[str, Any]:
    now = offer("skills/list")
    folders = sorted((PLACE / "skills").glob("*"))
    entries = now.get("entries", [entry(folder) for folder in folders])
    skills, following = page(entries, params, now.get("page", 50))
    cursor = {"nextCursor": following} if following else {}
    hints = {"resultType": "complete", "ttlMs": 60_000, "cacheScope": "public"}
    return {"skills": skills, **hints, **cursor}


async def read_resource(
    _: Context, params: types.ReadResourceRequestParams
) -> types.ReadResourceResult:
    uri = str(params.uri)
    served = offer("resources/read").get("served", {})
    path = PLACE / "skills" / uri.removeprefix("skill://")
    if uri in served:
        contents = served[uri]
    elif path.is_file():
        data = path.read_bytes()
        try:
            contents = [{"uri": uri, "text": data.decode()}]
        except UnicodeDecodeError:
            contents = [{"uri": uri, "blob": base64.b64encode(data).decode()}]
    else:
        raise MCPError(types.INVALID_PARAMS, f"no {uri}")
    return types.ReadResourceResult.model_validate({"contents": contents})


def build() -> Server[Any]:
    now = offer("start")
    has_prompts, has_skills = "prompts" in now, (PLACE / "skills").is_dir() or "entries" in now
    server = Server[Any](
        "folder",
        on_list_prompts=list_prompts if has_prompts else None,
        on_get_prompt=get_prompt if has_prompts else None,
        on_read_resource=read_resource if has_skills else None,
        on_subscriptions_listen=ListenHandler(BUS) if now.get("listens", True) else None,
    )
    if has_skills:
        server.extensions[EXTENSION] = {}
        server.add_request_handler("skills/list", types.PaginatedRequestParams, list_skills)
    return server


async def on_streams(server: Server[Any]) -> None:
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


def on_socket(server: Server[Any], port: int) -> None:
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", port))
    listening.listen()
    sys.stdout.write(f"{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    config = uvicorn.Config(
        server.streamable_http_app(), log_level="critical", timeout_graceful_shutdown=1
    )
    uvicorn.Server(config).run(sockets=[listening])


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    with (PLACE / "pids").open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")
    with contextlib.suppress(KeyboardInterrupt):
        if len(sys.argv) > 2:
            on_socket(build(), int(sys.argv[2]))
        else:
            anyio.run(on_streams, build())
