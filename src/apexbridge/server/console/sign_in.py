"""Signing in at the console, and out again."""

import time
from functools import cache
from importlib.metadata import version

import orjson
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from apexbridge.api_keys import SCOPES, Scope
from apexbridge.errors import RequestError
from apexbridge.locales import Language
from apexbridge.server.auth import read_session_cookie
from apexbridge.server.routing import RequestContext, Route
from apexbridge.server.sessions import SESSION_COOKIE, SESSION_SECONDS

_PATH = "/v1/console/session"


class SignInRequest(BaseModel):
    """What opens the console."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    token: str = Field(max_length=500)
    """The token that the server printed when it began, or a key."""


class SignInResponse(BaseModel):
    """What the cookie is good for."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    expires: int
    """When it ends, in seconds since 1970."""
    scopes: list[Scope]


class SessionInfo(BaseModel):
    """Who asks."""

    signed_in: bool
    id: str
    """The key's, or the console's: names of conversations begin with it."""
    scopes: list[Scope]
    version: str
    language: Language


class SignOutResponse(BaseModel):
    """That nobody is signed in any more."""

    signed_in: bool = False


async def sign_in(call: RequestContext) -> Response:
    """Take a token, once, or a key; from then on the cookie says who it is."""
    token, house = (await call.body(SignInRequest)).token.strip(), call.house
    key = house.keys.find(token)
    cookie = house.sessions.sign_in(token) if key is None else house.sessions.sign_in_with(key)
    if cookie is None:
        raise RequestError(code="token_invalid")
    house.sessions.sign_out(_session_cookie(call))
    scopes = SCOPES if key is None else key.scopes
    told = SignInResponse(expires=int(time.time()) + SESSION_SECONDS, scopes=list(scopes))
    return _cookie_response(call, told, cookie, SESSION_SECONDS)


async def show_session(call: RequestContext) -> Response:
    """Whoever asks is told what they may."""
    told = SessionInfo(
        signed_in=bool(call.caller.id),
        id=call.caller.id,
        scopes=[scope for scope in SCOPES if call.caller.may(scope)],
        version=_version(),
        language=call.runtime.config.language,
    )
    return Response(orjson.dumps(told.model_dump()), media_type="application/json")


async def sign_out(call: RequestContext) -> Response:
    """The cookie is worth nothing from now on, wherever it is kept."""
    call.house.sessions.sign_out(_session_cookie(call))
    return _cookie_response(call, SignOutResponse(), "", 0)


@cache
def _version() -> str:
    return version("apexbridge")


def _session_cookie(call: RequestContext) -> str:
    return read_session_cookie(call.request.scope["state"]["seen"])


def _cookie_response(call: RequestContext, told: BaseModel, cookie: str, seconds: int) -> Response:
    answer = Response(orjson.dumps(told.model_dump()), media_type="application/json")
    origin = call.request.headers.get("origin", "")
    answer.set_cookie(
        SESSION_COOKIE,
        cookie,
        max_age=seconds,
        path="/",
        secure=call.request.url.scheme == "https" or origin.startswith("https://"),
        httponly=True,
        samesite="strict",
    )
    return answer


ROUTES = (
    Route(
        method="GET",
        path=_PATH,
        endpoint=show_session,
        summary="Who is signed in, and what they may do.",
        scope=None,
        gives=SessionInfo,
    ),
    Route(
        method="POST",
        path=_PATH,
        endpoint=sign_in,
        summary="Sign in with the token that the server printed, or with a key.",
        scope=None,
        takes=SignInRequest,
        gives=SignInResponse,
    ),
    Route(
        method="DELETE",
        path=_PATH,
        endpoint=sign_out,
        summary="Sign out.",
        scope=None,
        gives=SignOutResponse,
    ),
)
