"""Multipart uploads: stream a form to disk and hand it on as one zip archive.

A form holds one zip archive, or the files of a folder with their paths as file names. A folder is
packed first, so that the checks of archives (zip slip, zip bomb, symlinks) apply to both.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import anyio.to_thread
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect

from apexbridge.errors import RequestError
from apexbridge.lifecycle.transactions import enter_in_thread
from apexbridge.lifecycle.zip.archive import ArchiveLimits, pack_files
from apexbridge.lifecycle.zip.limits import limit_exceeded
from apexbridge.paths import storage_errors
from apexbridge.server.routing import RequestContext

UPLOAD_ERRORS = (409, 413, 415, 422, 507)
MULTIPART = "multipart/form-data"
FILE_FIELDS = frozenset({"file", "files", "files[]", "file[]"})
_MULTIPART_OVERHEAD = 1_000_000
"""Allowance for boundaries, part headers and other fields."""
_MAX_PART_HEADER_BYTES = 16_384
_MAX_FIELD_BYTES = 65_536
_MAX_FIELDS = 32
_ZIP_MAGIC = b"PK"


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """Uploaded archive on disk, and the other fields of the form."""

    path: Path
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Files of a form with the names that the client sent, and its other fields."""

    files: Sequence[tuple[str, Path]]
    fields: Mapping[str, str]


@asynccontextmanager
async def receive_upload(ctx: RequestContext) -> AsyncGenerator[Upload]:
    """Receive an archive, or the files of a skill's folder, until the end of the block.

    The block is cancelled when the client disconnects.

    Raises:
        RequestError: If it is not a form, has no file, or is too large.
        ArchiveError: If a folder cannot be packed.
        StorageError: If it cannot be written to disk.
    """
    async with _receive(ctx) as form:
        path = await anyio.to_thread.run_sync(form.as_zip)
        with ctx.cancel_on_disconnect():
            yield Upload(path=path, fields=form.fields)


@asynccontextmanager
async def receive_form(ctx: RequestContext) -> AsyncGenerator[Form]:
    """Receive the files of a form as they are, until the end of the block.

    Raises:
        RequestError: If it is not a form, or is too large.
        StorageError: If it cannot be written to disk.
    """
    async with _receive(ctx) as form:
        yield Form(files=form.files(), fields=form.fields)


@asynccontextmanager
async def _receive(ctx: RequestContext) -> "AsyncGenerator[_MultipartReader]":
    """Receive a form into a staging folder, which is deleted after the block."""
    kind, options = parse_options_header(ctx.request.headers.get("content-type"))
    if kind.decode("latin-1") != MULTIPART:
        raise RequestError(
            code="content_type_unsupported", kind=kind.decode("latin-1"), wanted=MULTIPART
        )
    limits = ctx.runtime.manager.policy.limits
    async with enter_in_thread(ctx.runtime.store.staging()) as folder:
        form = _MultipartReader(folder, options.get(b"boundary", b""), limits)
        await _read_form(ctx, form)
        yield form


async def _read_form(ctx: RequestContext, form: "_MultipartReader") -> None:
    try:
        async for chunk in ctx.request.stream():
            await anyio.to_thread.run_sync(form.feed, chunk)
    except ClientDisconnect:
        raise RequestError("the client disconnected") from None
    except FormParserError as error:
        raise RequestError(f"malformed multipart form: {error}") from None
    finally:
        form.close()


@dataclass(slots=True)
class _Part:
    """Part of the form that is being parsed."""

    head: bytearray = field(default_factory=bytearray)
    name: bytearray = field(default_factory=bytearray)
    disposition: bytes = b""
    field: str = ""
    value: bytearray | None = None
    file: BinaryIO | None = None


class _MultipartReader:
    """Incremental multipart parser that writes files to disk; its methods block on I/O."""

    def __init__(self, folder: Path, boundary: bytes, limits: ArchiveLimits) -> None:
        if not boundary:
            raise RequestError("the multipart form has no boundary")
        self._folder, self._limits = folder, limits
        self._open = ExitStack()
        self._part = _Part()
        self._size = 0
        self._is_complete = False
        self._files: list[tuple[str, Path]] = []
        self.fields: dict[str, str] = {}
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._on_part_begin,
                    "on_header_field": self._on_header_field,
                    "on_header_value": self._on_header_value,
                    "on_header_end": self._on_header_end,
                    "on_headers_finished": self._on_headers_finished,
                    "on_part_data": self._on_part_data,
                    "on_part_end": self._on_part_end,
                    "on_end": self._on_end,
                },
            )
        except FormParserError as error:
            raise RequestError(f"malformed multipart form: {error}") from None

    def feed(self, chunk: bytes) -> None:
        """Parse the next chunk of the body."""
        self._size += len(chunk)
        limit = self._limits.packed_bytes + _MULTIPART_OVERHEAD
        if self._size > limit:
            raise RequestError(code="body_too_large", limit=limit)
        self._parser.write(chunk)

    def close(self) -> None:
        """Close a file that is still open."""
        self._open.close()

    def files(self) -> Sequence[tuple[str, Path]]:
        """Return the uploaded files with the names that the client sent."""
        if not self._is_complete:
            raise RequestError("the multipart form is truncated")
        return tuple(self._files)

    def as_zip(self) -> Path:
        """Return the uploaded archive, or pack the uploaded files into one."""
        files = self.files()
        if not files:
            raise RequestError("the form has no file", param="files")
        name, path = files[0]
        if len(files) == 1 and _is_zip(name, path):
            return path
        target = self._folder / "folder.zip"
        with ExitStack() as stack, storage_errors(target):
            # One open file descriptor at a time: a folder may hold more files than the limit.
            pack_files(((name, _open_next(path, stack)) for name, path in self._files), target)
        return target

    def _on_part_begin(self) -> None:
        self._part = _Part()

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._part.name += data[start:end]
        self._check_header_size()

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._part.head += data[start:end]
        self._check_header_size()

    def _check_header_size(self) -> None:
        if len(self._part.head) + len(self._part.name) > _MAX_PART_HEADER_BYTES:
            raise RequestError("the headers of a form part are too long")

    def _on_header_end(self) -> None:
        if bytes(self._part.name).lower() == b"content-disposition":
            self._part.disposition = bytes(self._part.head)
        self._part.name, self._part.head = bytearray(), bytearray()

    def _on_headers_finished(self) -> None:
        _, options = parse_options_header(self._part.disposition)
        self._part.field = options.get(b"name", b"").decode("utf-8", "replace")
        if b"filename" in options:
            self._open_file(options[b"filename"].decode("utf-8", "surrogateescape"))
            return
        if len(self.fields) >= _MAX_FIELDS:
            raise RequestError("the form has too many fields")
        self._part.value = bytearray()

    def _open_file(self, name: str) -> None:
        if self._part.field not in FILE_FIELDS:
            raise RequestError("unexpected file field, use 'files'", param=self._part.field)
        if len(self._files) >= self._limits.entries:
            raise limit_exceeded(f"more than {self._limits.entries} files")
        # Never the client's file name: path traversal.
        path = self._folder / f"part-{len(self._files)}"
        with storage_errors(path):
            self._part.file = self._open.enter_context(path.open("xb"))
        self._files.append((name, path))

    def _on_end(self) -> None:
        self._is_complete = True

    def _on_part_data(self, data: bytes, start: int, end: int) -> None:
        part = self._part
        if part.file is not None:
            with storage_errors(self._folder):
                part.file.write(data[start:end])
        elif part.value is not None:
            part.value += data[start:end]
            if len(part.value) > _MAX_FIELD_BYTES:
                raise RequestError("a field of the form is too long", param=part.field)

    def _on_part_end(self) -> None:
        with storage_errors(self._folder):
            self._open.close()
        if self._part.value is not None:
            self.fields[self._part.field] = self._part.value.decode("utf-8", "replace")


def _is_zip(name: str, path: Path) -> bool:
    """Return whether a single file is an archive, and not a SKILL.md or a file of a folder."""
    with path.open("rb") as file:
        if file.read(len(_ZIP_MAGIC)) == _ZIP_MAGIC:
            return True
    return "/" not in name and not name.lower().endswith(".md")


def _open_next(path: Path, stack: ExitStack) -> BinaryIO:
    stack.close()
    return stack.enter_context(path.open("rb"))
