"""Source of an MCP server's skills: its prompts and its skills extension."""

import base64
import binascii
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath
from typing import Any, Literal, TypeVar

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import httpx2
from mcp import Client, MCPError, StdioServerParameters, stdio_client, types
from mcp.client.extension import advertise
from mcp.client.session import IncomingMessage
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from pydantic import ValidationError

from apexbridge.errors import SourceError
from apexbridge.skills.document import SKILL_MD
from apexbridge.skills.model import Origin, Problem, Provenance, Skill, SkillContent, SkillResource
from apexbridge.sources.base import BaseSource, Scan
from apexbridge.sources.mcp.connection import (
    ConnectionClosedError,
    ConnectionLostError,
    ServerAddress,
    SharedConnection,
    StderrTail,
    sanitize_line,
)
from apexbridge.sources.mcp.prompts import Parameter, Prompt, PromptSkill, bind_arguments
from apexbridge.sources.mcp.skills_extension import (
    EXTENSION,
    ExtensionSkill,
    McpListing,
    SkillsPage,
    all_pages,
    build_listing,
    mismatch_error,
)

__all__ = ["McpSource", "ServerAddress"]

MAX_CONTENT = 1024 * 1024
MAX_MESSAGE = 32 * 1024 * 1024
MAX_DETAIL = 600
LISTEN_AGAIN_SECONDS = 1.0

# An expired session is answered as an invalid request.
_CONNECTION_LOST_CODES = frozenset({types.CONNECTION_CLOSED, types.INVALID_REQUEST})
_CHANGES = (types.PromptListChangedNotification, types.ResourceListChangedNotification)

_ERROR_RESPONSE = "error response: "

log = logging.getLogger(__name__)
# The SDK logs lines that are not JSON-RPC with a traceback: without a handler they would be printed
# to the terminal.
logging.getLogger("mcp").addHandler(logging.NullHandler())

R = TypeVar("R")


class _ListSkills(types.PaginatedRequest[Literal["skills/list"]]):
    method: Literal["skills/list"] = "skills/list"


class McpSource(BaseSource):
    """One MCP server, connected lazily and kept until the connection is lost or closed.

    `changed` is called with the source's id, in the event loop of the latest caller, whenever the
    server sends a list-changed notification; only while connected.
    """

    def __init__(
        self, name: str, address: ServerAddress, *, changed: Callable[[str], None] | None = None
    ) -> None:
        self._server = name
        self._address = address
        self._changed = changed
        self.provenance = Provenance(origin=Origin.MCP, source_id=f"mcp:{name}")
        self._connection = SharedConnection(self._connect, seconds=address.seconds)
        self._listing = McpListing()
        self._stderr = StderrTail()
        self._has_invalid_output = False
        self._loop: anyio.lowlevel.EventLoopToken | None = None

    async def scan(self) -> Scan:
        """List prompts and skills; a server may offer neither."""
        self._listing = listing = await self._call(self._list)
        found = (*listing.skills.values(), *listing.prompts.values())
        return Scan(skills=tuple(entry.skill for entry in found), problems=listing.problems)

    async def content(self, skill: Skill, arguments: str = "") -> SkillContent:
        """Load the body: the verified SKILL.md, or the prompt rendered with the arguments."""
        entry = self._listing.entry(skill)
        if isinstance(entry, PromptSkill):
            values = bind_arguments(entry, arguments)
            text = await self._call(partial(_get_prompt, name=entry.prompt.name, values=values))
            if len(text) > MAX_CONTENT:
                raise SourceError(f"more than {MAX_CONTENT} characters", source=self.id)
            return SkillContent(skill=skill, body=text)
        body = entry.body(await self._file(entry, SKILL_MD))
        if body is None:
            raise mismatch_error(self.id, SKILL_MD, "its frontmatter differs from the listed one")
        return SkillContent(skill=skill, body=body)

    async def resource(self, skill: Skill, path: PurePosixPath) -> SkillResource:
        """Load a file that the skill's entry announces."""
        entry = self._listing.entry(skill)
        if isinstance(entry, PromptSkill) or str(path) not in entry.files:
            raise SourceError(f"there is no {sanitize_line(str(path), 200)}", source=self.id)
        return SkillResource(skill=skill, path=path, data=await self._file(entry, str(path)))

    async def close(self) -> None:
        """Close the connection, and end the server process."""
        await self._connection.close()

    async def _file(self, entry: ExtensionSkill, path: str) -> bytes:
        file = entry.files[path]
        data = await self._call(partial(_read_resource, uri=file.uri))
        difference = file.difference(data)
        if difference:
            raise mismatch_error(self.id, path, difference)
        return data

    async def _list(self, client: Client) -> McpListing:
        offers = client.server_capabilities
        entries, prompts, problems = list[Any](), list[types.Prompt](), list[Problem]()
        if EXTENSION in (offers.extensions or {}):
            entries, cut = await all_pages(partial(_skills_page, client), self.id)
            problems += cut
        if offers.prompts is not None:
            prompts, cut = await all_pages(partial(_prompts_page, client), self.id)
            problems += cut
        listing = build_listing(
            entries, map(_prompt, prompts), server=self._server, provenance=self.provenance
        )
        return replace(listing, problems=(*problems, *listing.problems))

    async def _call(self, work: Callable[[Client], Awaitable[R]]) -> R:
        """Call the server; every failure becomes a source error with a reason."""
        self._loop = anyio.lowlevel.current_token()
        try:
            return await self._connection.run(partial(_detect_connection_loss, work))
        except ConnectionClosedError:
            raise SourceError("the source is closed", source=self.id) from None
        except TimeoutError:
            reason = f"no response within {self._address.seconds:g} seconds"
            raise self._error(reason) from None
        except Exception as error:  # noqa: BLE001  # a server's nonsense can raise anything
            raise self._error(self._reason(error)) from None

    def _error(self, reason: str) -> SourceError:
        """Build the error message: the reason, and stderr if the process did not answer."""
        if not reason.startswith(_ERROR_RESPONSE):
            reason += "; its output is not MCP" if self._has_invalid_output else ""
            reason += f"; stderr: {self._stderr.text}" if self._stderr.text else ""
        return SourceError(sanitize_line(self._address.redact(reason), MAX_DETAIL), source=self.id)

    def _reason(self, error: BaseException | None) -> str:
        match _root_cause(error):
            case MCPError(code=code, message=message) if code != types.CONNECTION_CLOSED:
                reason = f"{_ERROR_RESPONSE}{message}"
            case None | MCPError():
                reason = "the connection was closed"
            case OSError(strerror=words) as leaf if self._address.command:
                reason = f"'{self._address.command}' cannot be started: {words or leaf}"
            case ValidationError() as leaf:
                reason = f"its response is invalid ({leaf.error_count()} errors in {leaf.title})"
            case httpx2.HTTPError() as leaf:
                reason = f"it cannot be reached: {leaf or type(leaf).__name__}"
            case leaf:
                reason = f"{type(leaf).__name__}: {leaf}"
        return reason

    @asynccontextmanager
    async def _connect(self) -> AsyncGenerator[Client]:
        self._has_invalid_output, self._stderr = False, StderrTail()
        client = Client(
            self._process() if self._address.command else self._http(),
            message_handler=self._on_message,
            client_info=types.Implementation(name="apexbridge", version=""),
            extensions=[advertise(EXTENSION)],
            cache=None,  # a scan must see the current lists
        )
        async with client, anyio.create_task_group() as tasks:
            if self._changed is not None:
                tasks.start_soon(self._listen, client)
            yield client  # SharedConnection exits by cancelling, which ends the subscription too

    @asynccontextmanager
    async def _process(self) -> AsyncGenerator[Any]:
        server = StdioServerParameters(
            command=self._address.command,
            args=list(self._address.args),
            env=dict(self._address.env),
            encoding_error_handler="replace",
        )
        async with (
            self._stderr.open_pipe() as errors,
            stdio_client(server, errlog=errors) as streams,
        ):
            errors.close()
            yield streams

    @asynccontextmanager
    async def _http(self) -> AsyncGenerator[Any]:
        # SharedConnection has the deadline of reads.
        timeout = httpx2.Timeout(self._address.seconds, read=None)
        headers = dict(self._address.headers)
        async with (
            httpx2.AsyncClient(headers=headers, timeout=timeout) as http,
            streamable_http_client(
                self._address.url, http_client=http, max_sse_event_size=MAX_MESSAGE
            ) as streams,
        ):
            yield streams

    async def _listen(self, client: Client) -> None:
        """Subscribe to list changes on newer servers; older ones send notifications unasked."""
        with suppress(MCPError, ListenNotSupportedError):
            while True:
                with suppress(SubscriptionLost):
                    async with client.listen(
                        prompts_list_changed=True, resources_list_changed=True
                    ) as subscription:
                        async for _ in subscription:
                            log.debug("the lists of %s changed", self.id)
                await anyio.sleep(LISTEN_AGAIN_SECONDS)

    async def _on_message(self, message: IncomingMessage) -> None:
        if isinstance(message, Exception):
            self._has_invalid_output = True
        elif isinstance(message, _CHANGES) and self._changed is not None:
            notify = partial(self._changed, self.id)
            try:
                await anyio.to_thread.run_sync(
                    partial(anyio.from_thread.run_sync, notify, token=self._loop),
                    abandon_on_cancel=True,
                )
            except anyio.RunFinishedError:
                log.debug("the event loop that watched %s has ended", self.id)


def _root_cause(error: BaseException | None) -> BaseException | None:
    """Find the innermost exception of nested exception groups."""
    if isinstance(error, ConnectionLostError):
        return _root_cause(error.__cause__)
    if isinstance(error, BaseExceptionGroup):
        return _root_cause(error.exceptions[0])  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    return error


async def _detect_connection_loss(work: Callable[[Client], Awaitable[R]], client: Client) -> R:
    try:
        return await work(client)
    except MCPError as error:
        if error.code in _CONNECTION_LOST_CODES:
            raise ConnectionLostError from error
        raise


async def _prompts_page(
    client: Client, cursor: str | None
) -> tuple[Sequence[types.Prompt], str | None]:
    page = await client.list_prompts(cursor=cursor)
    return page.prompts, page.next_cursor


async def _skills_page(client: Client, cursor: str | None) -> tuple[Sequence[Any], str | None]:
    params = types.PaginatedRequestParams(cursor=cursor)
    page = await client.session.send_request(_ListSkills(params=params), SkillsPage)
    return page.skills, page.next_cursor


def _prompt(prompt: types.Prompt) -> Prompt:
    return Prompt(
        name=prompt.name,
        description=prompt.description or prompt.title or "",
        parameters=tuple(
            Parameter(name=argument.name, is_required=bool(argument.required))
            for argument in prompt.arguments or ()
        ),
    )


async def _get_prompt(client: Client, *, name: str, values: dict[str, str]) -> str:
    result = await client.get_prompt(name, values)
    return "\n\n".join(_text(message.content) for message in result.messages)


def _text(content: types.ContentBlock) -> str:
    match content:
        case types.TextContent():
            return content.text
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            return resource.text
        case types.EmbeddedResource():
            return f"[resource: {sanitize_line(content.resource.uri, 200)}]"
        case types.ResourceLink():
            return f"[resource: {sanitize_line(content.uri, 200)}]"
        case _:
            return f"[{content.type}: {sanitize_line(content.mime_type, 100)}]"


async def _read_resource(client: Client, *, uri: str) -> bytes:
    contents = (await client.read_resource(uri)).contents
    same = [content for content in contents if content.uri == uri] or contents
    if len(same) != 1:
        raise MCPError(types.INTERNAL_ERROR, f"{len(same)} contents for one URI")
    match same[0]:
        case types.TextResourceContents() as content:
            return content.text.encode()
        case content:
            try:
                return base64.b64decode(content.blob, validate=True)
            except binascii.Error as error:
                raise MCPError(types.INTERNAL_ERROR, f"invalid base64: {error}") from None
