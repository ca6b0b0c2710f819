"""Console endpoints: static files with a strict Content-Security-Policy, and sign-in."""

import hashlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from importlib.resources.abc import Traversable

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import RedirectResponse, Response

from apexbridge.api_keys import SCOPES, Scope
from apexbridge.errors import RequestError
from apexbridge.locales import Language
from apexbridge.server.auth import SESSION_COOKIE, SESSION_SECONDS, read_session_cookie
from apexbridge.server.routing import RequestContext, RequestModel, Router, json_response

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HOME = "/console/"
_SESSION_PATH = "/v1/console/session"
_MEDIA_TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

router = Router(scope=None)


class SignInRequest(RequestModel):
    """Credentials for the console."""

    token: str = Field(max_length=500)
    """The one-time token that the server printed at start, or an API key."""


class SignInResponse(BaseModel):
    """Scopes and lifetime of the session cookie."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    expires: int
    """Unix time."""
    scopes: list[Scope]


class SessionInfo(BaseModel):
    """The current caller."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    signed_in: bool
    id: str
    """Id of the API key, or `console`: the prefix of the caller's session ids."""
    scopes: list[Scope]
    version: str
    language: Language


class SignOutResponse(BaseModel):
    """Confirmation that the session has ended."""

    signed_in: bool = False


@router.post(_SESSION_PATH, body=SignInRequest, response=SignInResponse)
async def sign_in(ctx: RequestContext) -> Response:
    """Exchange a one-time token or an API key for a session cookie."""
    token, state = (await ctx.body(SignInRequest)).token.strip(), ctx.state
    key = state.keys.find(token)
    sessions = state.sessions
    cookie = sessions.sign_in(token) if key is None else sessions.sign_in_with_key(key)
    if cookie is None:
        raise RequestError(code="token_invalid")
    sessions.sign_out(_session_cookie(ctx))
    scopes = SCOPES if key is None else key.scopes
    info = SignInResponse(expires=int(time.time()) + SESSION_SECONDS, scopes=list(scopes))
    return _cookie_response(ctx, info, cookie, SESSION_SECONDS)


@router.get(_SESSION_PATH, response=SessionInfo)
async def show_session(ctx: RequestContext) -> Response:
    """Show the current caller and its scopes."""
    info = SessionInfo(
        signed_in=bool(ctx.caller.id),
        id=ctx.caller.id,
        scopes=[scope for scope in SCOPES if ctx.caller.has_scope(scope)],
        version=_version(),
        language=ctx.runtime.config.language,
    )
    return json_response(info)


@router.delete(_SESSION_PATH, response=SignOutResponse)
async def sign_out(ctx: RequestContext) -> Response:
    """End the session on the server, so that copies of the cookie are void as well."""
    ctx.state.sessions.sign_out(_session_cookie(ctx))
    return _cookie_response(ctx, SignOutResponse(), "", 0)


@cache
def _version() -> str:
    return version("apexbridge")


def _session_cookie(ctx: RequestContext) -> str:
    return read_session_cookie(ctx.request.scope["state"]["headers"])


def _cookie_response(ctx: RequestContext, info: BaseModel, cookie: str, seconds: int) -> Response:
    response = json_response(info)
    # Behind a TLS-terminating proxy the scheme is http, but the browser's Origin says https.
    origin = ctx.request.headers.get("origin", "")
    response.set_cookie(
        SESSION_COOKIE,
        cookie,
        max_age=seconds,
        path="/",
        secure=ctx.request.url.scheme == "https" or origin.startswith("https://"),
        httponly=True,
        samesite="strict",
    )
    return response


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asset:
    content: bytes
    media_type: str
    etag: str


@router.get("/", media_type="text/html", status=302)
@router.get("/console", media_type="text/html", status=302)
async def redirect_to_console(ctx: RequestContext) -> Response:
    """Redirect to the console."""
    _require_enabled(ctx)
    return RedirectResponse(_HOME, 302)


@router.get("/console/{path:path}", media_type="text/html", errors=(404,))
async def show_asset(ctx: RequestContext) -> Response:
    """Serve a static file; a lookup by name, so that no path traversal can leave the folder."""
    _require_enabled(ctx)
    found = _assets().get(ctx.path_param("path") or "index.html")
    if found is None:
        raise RequestError(code="route_unknown", path=ctx.request.url.path)
    headers = {
        "Content-Security-Policy": CONTENT_SECURITY_POLICY,
        "ETag": found.etag,
        "Cache-Control": "no-cache",
    }
    cached = ctx.request.headers.get("if-none-match", "")
    if found.etag in {tag.strip().removeprefix("W/") for tag in cached.split(",")}:
        return Response(status_code=304, headers=headers)
    return Response(found.content, headers=headers, media_type=found.media_type)


def _require_enabled(ctx: RequestContext) -> None:
    if not ctx.state.settings.console:
        raise RequestError(code="route_unknown", path=ctx.request.url.path)


@cache
def _assets() -> Mapping[str, _Asset]:
    """Load all static files by path; few and small, they stay in memory."""
    return dict(_walk(files("apexbridge.server.console") / "static", ""))


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, _Asset]]:
    for entry in folder.iterdir():
        name = prefix + entry.name
        suffix = entry.name[entry.name.rfind(".") :]
        if entry.is_dir():
            yield from _walk(entry, f"{name}/")
        elif suffix in _MEDIA_TYPES:
            content = entry.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            yield name, _Asset(content=content, media_type=_MEDIA_TYPES[suffix], etag=etag)
