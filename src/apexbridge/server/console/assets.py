"""The console's files: read once, served with a policy under which nothing foreign can act."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.responses import RedirectResponse, Response

from apexbridge.errors import RequestError
from apexbridge.server.routing import RequestContext, Route

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_HOME = "/console/"
_MEDIA_TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asset:
    content: bytes
    kind: str
    etag: str


async def _redirect(call: RequestContext) -> Response:
    """Send whoever comes to the bare address to the console."""
    _require_enabled(call)
    return RedirectResponse(_HOME, 302)


async def _asset(call: RequestContext) -> Response:
    """A file of the console: only the names that there are lead to one."""
    _require_enabled(call)
    found = _assets().get(call.at("path") or "index.html")
    if found is None:
        raise RequestError(code="route_unknown", path=call.request.url.path)
    headers = {
        "Content-Security-Policy": CONTENT_SECURITY_POLICY,
        "ETag": found.etag,
        "Cache-Control": "no-cache",
    }
    known = call.request.headers.get("if-none-match", "")
    if found.etag in {tag.strip().removeprefix("W/") for tag in known.split(",")}:
        return Response(status_code=304, headers=headers)
    return Response(found.content, headers=headers, media_type=found.kind)


def _require_enabled(call: RequestContext) -> None:
    if not call.house.settings.console:
        raise RequestError(code="route_unknown", path=call.request.url.path)


@cache
def _assets() -> Mapping[str, _Asset]:
    """Every file by its path; there are few and they are small, so they stay in memory."""
    return dict(_walk(files("apexbridge.server") / "console", ""))


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, _Asset]]:
    for entry in folder.iterdir():
        name = prefix + entry.name
        suffix = entry.name[entry.name.rfind(".") :]
        if entry.is_dir():
            yield from _walk(entry, f"{name}/")
        elif suffix in _MEDIA_TYPES:
            content = entry.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            yield name, _Asset(content=content, kind=_MEDIA_TYPES[suffix], etag=etag)


ROUTES: tuple[Route, ...] = (
    Route(
        method="GET",
        path="/",
        endpoint=_redirect,
        summary="Go to the console",
        scope=None,
        media="text/html",
        status=302,
    ),
    Route(
        method="GET",
        path="/console",
        endpoint=_redirect,
        summary="Go to the console",
        scope=None,
        media="text/html",
        status=302,
    ),
    Route(
        method="GET",
        path="/console/{path:path}",
        endpoint=_asset,
        summary="The console's files",
        scope=None,
        media="text/html",
        errors=(404,),
    ),
)
