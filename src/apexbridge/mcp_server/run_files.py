"""Files that scripts made, as MCP resources: `run://{id}/{path}`."""

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

import anyio.to_thread
from mcp import types

from apexbridge.errors import RequestError
from apexbridge.mcp_server.skill_files import media_type, to_contents
from apexbridge.paths import printable_path
from apexbridge.runtime.file_store import FileStore, StoredFile

RUN_SCHEME = "run://"
RUN_TEMPLATE = "run://{id}/{+path}"
_URI = re.compile(r"run://([a-z0-9_]{1,64})/(.{1,4096})", re.DOTALL)


def run_file_uri(run_id: str, path: str) -> str:
    """Return the URI of a file."""
    return f"{RUN_SCHEME}{run_id}/{quote(printable_path(path), safe='/')}"


def resource_links(data: Mapping[str, Any]) -> Sequence[types.ResourceLink]:
    """Return links to the files of a `run_skill` result, so that clients offer them."""
    return [
        types.ResourceLink(
            type="resource_link",
            name=file["name"],
            uri=file["uri"],
            size=file["size"],
            mime_type=media_type(file["name"]),
        )
        for file in data.get("files", ())
        if file.get("uri")
    ]


async def read_run_file(store: FileStore, uri: str, owner: str) -> types.ReadResourceResult:
    """Read a file that a script of this caller made.

    Raises:
        RequestError: If there is none of that URI, or it belongs to another caller.
    """
    match = _URI.fullmatch(uri)
    found = None
    if match is not None:
        path = unquote(match[2])
        found = await anyio.to_thread.run_sync(_find, store, match[1], path, owner)
    if found is None:
        raise RequestError(code="record_unknown", kind="file", id=uri[:200])
    data = await anyio.to_thread.run_sync(found.location.read_bytes)
    return types.ReadResourceResult(contents=[to_contents(uri, found.path, data)])


def _find(store: FileStore, run_id: str, path: str, owner: str) -> StoredFile | None:
    belongs_to = store.owner(run_id)
    if belongs_to is None or not belongs_to.startswith(owner):
        return None
    return next((file for file in store.list(run_id) if printable_path(file.path) == path), None)
