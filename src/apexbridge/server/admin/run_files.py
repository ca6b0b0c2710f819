"""Files that scripts made: listing and download, for the API key whose request or chat ran them."""

from collections.abc import Sequence
from typing import Literal
from urllib.parse import quote

import anyio.to_thread
from starlette.responses import FileResponse, Response

from apexbridge.paths import printable_path
from apexbridge.runtime.file_store import StoredFile
from apexbridge.server.admin.history import record_not_found, visible_prefix
from apexbridge.server.routing import RequestContext, Router, json_response
from apexbridge.server.skills.schemas import ResponseModel

router = Router("/v1/runs", scope="exec", alternative_scope="chat")


class RunFileSchema(ResponseModel):
    """File that a script made."""

    path: str
    size: int
    url: str
    """Address for the download, below this server's."""


class RunFileList(ResponseModel):
    """Files that a script made, by path."""

    object: Literal["list"] = "list"
    data: list[RunFileSchema]


def file_url(run_id: str, path: str) -> str:
    """Return the address of a file by its printable path, below this server's."""
    return f"/v1/runs/{run_id}/files/{quote(path, safe='/')}"


@router.get("/{id}/files", response=RunFileList, errors=(404,))
async def list_files(ctx: RequestContext) -> Response:
    """List the files that a script made, while they are kept."""
    found = await _visible_files(ctx)
    return json_response(
        RunFileList(
            data=[
                RunFileSchema(path=path, size=size, url=file_url(ctx.path_param("id"), path))
                for path, size in ((printable_path(file.path), file.size) for file in found)
            ]
        )
    )


@router.get("/{id}/files/{path:path}", media_type="application/octet-stream", errors=(404,))
async def download_file(ctx: RequestContext) -> Response:
    """Download a file that a script made."""
    path = ctx.path_param("path")
    for file in await _visible_files(ctx):
        if printable_path(file.path) == path:
            # Stored XSS: HTML that a script made must not run in our origin.
            name = quote(printable_path(file.location.name), safe="")
            headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{name}"}
            return FileResponse(
                file.location, headers=headers, media_type="application/octet-stream"
            )
    raise record_not_found("file", path)


async def _visible_files(ctx: RequestContext) -> Sequence[StoredFile]:
    """Return the files of a run.

    Raises:
        RequestError: `record_unknown` if there are none, or they belong to another key.
    """
    run_id, store = ctx.path_param("id"), ctx.runtime.script_runner.files
    owner = await anyio.to_thread.run_sync(store.owner, run_id)
    if owner is None or not owner.startswith(visible_prefix(ctx)):
        raise record_not_found("run", run_id)
    return await anyio.to_thread.run_sync(store.list, run_id)
