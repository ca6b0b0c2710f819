"""What the addresses of skills take as JSON."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import anyio.to_thread
from pydantic import BaseModel, ConfigDict, Field
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect

from apexbridge.errors import RequestError
from apexbridge.lifecycle.transactions import enter_in_thread
from apexbridge.lifecycle.zip.archive import ArchiveLimits, pack_files
from apexbridge.lifecycle.zip.limits import limit_exceeded
from apexbridge.paths import storage_errors
from apexbridge.server.routing import RequestContext


class EditRequest(BaseModel):
    """What of a skill can be changed in its place."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)

    description: str


class DefaultVersionRequest(BaseModel):
    """Which version is to be used."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)

    default_version: str = Field(min_length=1, max_length=200)
    """A version, its id, its hash or the beginning of that, or `latest`."""


class VersionRequest(BaseModel):
    """Which version is meant."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)

    version: str = Field(default="", max_length=200)
    """Empty for the one that is most likely meant: see the route."""


class RunRequest(BaseModel):
    """What to run."""

    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)

    script: str = Field(default="", max_length=1_000)
    """Its path in the skill; empty for the only one, or the main one."""
    arguments: list[str] = Field(default_factory=list[str], max_length=10_000)
    stdin: str = ""
    timeout: float | None = Field(default=None, gt=0)
    """Seconds; more than the settings allow is no more than that."""


MULTIPART = "multipart/form-data"
FILE_FIELDS = frozenset({"file", "files", "files[]", "file[]"})
_MULTIPART_OVERHEAD = 1_000_000
"""What a form may have beside its files."""
_MAX_PART_HEADER_BYTES = 16_384
_MAX_FIELD_BYTES = 65_536
_MAX_FIELDS = 32
_ZIP_MAGIC = b"PK"


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A zip on disk, and what else the form said."""

    path: Path
    fields: Mapping[str, str]


@asynccontextmanager
async def receive_upload(call: RequestContext) -> AsyncGenerator[Upload]:
    """Take the skill that a request brings; its files are gone after the block.

    Raises:
        RequestError: If it is no form, holds no file, or is too large.
        ArchiveError: If a folder cannot be packed.
        StorageError: If the disk refuses.
    """
    kind, options = parse_options_header(call.request.headers.get("content-type"))
    if kind.decode("latin-1") != MULTIPART:
        raise RequestError(
            code="content_type_unsupported", kind=kind.decode("latin-1"), wanted=MULTIPART
        )
    limits = call.runtime.manager.policy.limits
    async with enter_in_thread(call.runtime.store.staging()) as place:
        form = await _read_form(
            call, _MultipartReader(place, options.get(b"boundary", b""), limits)
        )
        path = await anyio.to_thread.run_sync(form.as_zip)
        yield Upload(path=path, fields=form.fields)


async def _read_form(call: RequestContext, form: "_MultipartReader") -> "_MultipartReader":
    try:
        async for chunk in call.request.stream():
            await anyio.to_thread.run_sync(form.take, chunk)
    except ClientDisconnect:
        raise RequestError("the client went away") from None
    except FormParserError as error:
        raise RequestError(f"the form cannot be read: {error}") from None
    finally:
        form.close()
    return form


@dataclass(slots=True)
class _Part:
    """A part of the form, while it is read."""

    head: bytearray = field(default_factory=bytearray)
    name: bytearray = field(default_factory=bytearray)
    disposition: bytes = b""
    field: str = ""
    value: bytearray | None = None
    file: BinaryIO | None = None


class _MultipartReader:
    """Reads a form piece by piece. Every method blocks."""

    def __init__(self, place: Path, boundary: bytes, limits: ArchiveLimits) -> None:
        if not boundary:
            raise RequestError("the form has no boundary")
        self._place, self._limits = place, limits
        self._open = ExitStack()
        self._part = _Part()
        self._size = 0
        self._is_whole = False
        self._files: list[tuple[str, Path]] = []
        self.fields: dict[str, str] = {}
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._begin,
                    "on_header_field": self._head_name,
                    "on_header_value": self._head_value,
                    "on_header_end": self._head_end,
                    "on_headers_finished": self._open_part,
                    "on_part_data": self._data,
                    "on_part_end": self._end,
                    "on_end": self._finish,
                },
            )
        except FormParserError as error:
            raise RequestError(f"the form cannot be read: {error}") from None

    def take(self, chunk: bytes) -> None:
        """Read another piece."""
        self._size += len(chunk)
        limit = self._limits.packed_bytes + _MULTIPART_OVERHEAD
        if self._size > limit:
            raise RequestError(code="body_too_large", limit=limit)
        self._parser.write(chunk)

    def close(self) -> None:
        """Let go of a file that was not read to its end."""
        self._open.close()

    def as_zip(self) -> Path:
        """The one zip that was sent, or a zip of the files that were."""
        if not self._is_whole:
            raise RequestError("the form has no end")
        if not self._files:
            raise RequestError("no file came with the form", param="files")
        name, path = self._files[0]
        if len(self._files) == 1 and _is_zip(name, path):
            return path
        target = self._place / "folder.zip"
        with ExitStack() as stack, storage_errors(target):
            # Files are opened one after the other: a folder may hold more than can be open.
            pack_files(((name, _open_next(path, stack)) for name, path in self._files), target)
        return target

    def _begin(self) -> None:
        self._part = _Part()

    def _head_name(self, data: bytes, start: int, end: int) -> None:
        self._part.name += data[start:end]
        self._refuse_long_head()

    def _head_value(self, data: bytes, start: int, end: int) -> None:
        self._part.head += data[start:end]
        self._refuse_long_head()

    def _refuse_long_head(self) -> None:
        if len(self._part.head) + len(self._part.name) > _MAX_PART_HEADER_BYTES:
            raise RequestError("a part of the form has too long a head")

    def _head_end(self) -> None:
        if bytes(self._part.name).lower() == b"content-disposition":
            self._part.disposition = bytes(self._part.head)
        self._part.name, self._part.head = bytearray(), bytearray()

    def _open_part(self) -> None:
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
            raise RequestError("files are taken as 'files'", param=self._part.field)
        if len(self._files) >= self._limits.entries:
            raise limit_exceeded(f"more than {self._limits.entries} files")
        path = self._place / f"part-{len(self._files)}"  # never the name that was sent
        with storage_errors(path):
            self._part.file = self._open.enter_context(path.open("xb"))
        self._files.append((name, path))

    def _finish(self) -> None:
        self._is_whole = True

    def _data(self, data: bytes, start: int, end: int) -> None:
        part = self._part
        if part.file is not None:
            with storage_errors(self._place):
                part.file.write(data[start:end])
        elif part.value is not None:
            part.value += data[start:end]
            if len(part.value) > _MAX_FIELD_BYTES:
                raise RequestError("a field of the form is too long", param=part.field)

    def _end(self) -> None:
        with storage_errors(self._place):
            self._open.close()
        if self._part.value is not None:
            self.fields[self._part.field] = self._part.value.decode("utf-8", "replace")


def _is_zip(name: str, path: Path) -> bool:
    """A lone file is a zip, unless it says that it lies in a folder or is a SKILL.md."""
    with path.open("rb") as file:
        if file.read(len(_ZIP_MAGIC)) == _ZIP_MAGIC:
            return True
    return "/" not in name and not name.lower().endswith(".md")


def _open_next(path: Path, stack: ExitStack) -> BinaryIO:
    stack.close()
    return stack.enter_context(path.open("rb"))
