"""Download objects from S3 and Google Cloud Storage with their SDKs.

The SDKs find endpoint and credentials as their users expect. They are imported at the first call:
they are extras, and slow to load. Of their exceptions only the type is reported: messages may hold
URLs and keys.
"""

import re
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from urllib.parse import urlsplit

import anyio
import anyio.to_thread

from apexbridge.errors import SourceError
from apexbridge.sources.remote.http_client import FetchLimits
from apexbridge.ssrf import display_url, url_refused

_SCHEMES = ("s3", "gs")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_MAX_KEY = 1024
_CHUNK_BYTES = 1 << 16
_UNCOMPRESSED = frozenset({"", "identity", "aws-chunked"})
_MISSING = frozenset({"NoSuchKey", "NoSuchBucket", "404"})
_DENIED = frozenset({"AccessDenied", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Object:
    scheme: str
    bucket: str
    key: str
    url: str


def is_object(url: str) -> bool:
    """Return whether a URL is one of object storage."""
    return url.partition("://")[0] in _SCHEMES


async def read_object(url: str, limits: FetchLimits) -> bytes:
    """Download `s3://bucket/key` or `gs://bucket/key`.

    Raises:
        SourceError: `remote_refused` for an invalid URL, `extra_missing` without the SDK,
            `remote_unreachable` or `remote_unusable` if the object cannot be downloaded.
    """
    location = _parse(url)
    read = _read_s3 if location.scheme == "s3" else _read_gs
    buffer = _BoundedBuffer(url, limits)
    try:
        with anyio.fail_after(limits.seconds):
            await anyio.to_thread.run_sync(read, location, buffer, abandon_on_cancel=True)
    except TimeoutError:
        raise buffer.deadline_error() from None
    return bytes(buffer.data)


def _parse(url: str) -> _Object:
    if not url.isprintable():
        raise url_refused(url, "it contains characters that are not allowed in a URL")
    try:
        parts = urlsplit(url, allow_fragments=False)
    except ValueError:
        raise url_refused(url, "it is not a valid URL") from None
    scheme, _, rest = url.partition("://")
    bucket, _, key = rest.partition("/")
    if scheme not in _SCHEMES or not _BUCKET.fullmatch(bucket) or ".." in bucket or parts.query:
        raise url_refused(url, "it is not s3://bucket/key or gs://bucket/key")
    if not key or len(key.encode()) > _MAX_KEY:
        raise url_refused(url, "it has no object key")
    return _Object(scheme=scheme, bucket=bucket, key=key, url=url)


class _BoundedBuffer:
    """Write buffer with a size limit and a deadline."""

    def __init__(self, url: str, limits: FetchLimits) -> None:
        self.data = bytearray()
        self._url = url
        self.limits = limits
        self._ends = time.monotonic() + limits.seconds

    def write(self, chunk: bytes) -> int:
        """Append a chunk."""
        self.data += chunk
        if len(self.data) > self.limits.max_bytes:
            raise self.unusable(f"it has more than {self.limits.max_bytes} bytes")
        if time.monotonic() > self._ends:
            raise self.deadline_error()
        return len(chunk)

    def deadline_error(self) -> SourceError:
        """Build the error for a missed deadline."""
        return self.unreachable(f"no response within {self.limits.seconds:g} s")

    def unreachable(self, detail: str) -> SourceError:
        """Build the error for an object that is not available now."""
        return SourceError(detail, code="remote_unreachable", url=display_url(self._url))

    def unusable(self, detail: str) -> SourceError:
        """Build the error for unacceptable content."""
        return SourceError(detail, code="remote_unusable", url=display_url(self._url))


def _import_client(package: str, *, extra: str) -> ModuleType:
    try:
        return import_module(package)
    except ImportError:
        raise SourceError(code="extra_missing", name=package, extra=extra) from None


def _read_s3(location: _Object, buffer: _BoundedBuffer) -> None:
    boto3 = _import_client("boto3", extra="s3")
    config = import_module("botocore.config").Config(
        connect_timeout=buffer.limits.seconds,
        read_timeout=buffer.limits.seconds,
        retries={"total_max_attempts": 2},
    )
    exceptions = import_module("botocore.exceptions")
    with _map_s3_errors(exceptions, buffer):
        client = boto3.session.Session().client("s3", config=config)
        try:
            response = client.get_object(Bucket=location.bucket, Key=location.key)
            with response["Body"] as body:
                _check_encoding(str(response.get("ContentEncoding", "")), buffer)
                while chunk := body.read(_CHUNK_BYTES):
                    buffer.write(chunk)
        finally:
            client.close()


@contextmanager
def _map_s3_errors(exceptions: ModuleType, buffer: _BoundedBuffer) -> Generator[None]:
    try:
        yield
    except exceptions.ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        raise _status_error(code, buffer) from None
    except (exceptions.NoCredentialsError, exceptions.PartialCredentialsError):
        raise buffer.unusable("no credentials found") from None
    except (exceptions.BotoCoreError, exceptions.HTTPClientError) as error:
        raise buffer.unreachable(type(error).__name__) from None


def _read_gs(location: _Object, buffer: _BoundedBuffer) -> None:
    storage = _import_client("google.cloud.storage", extra="gs")
    with _map_gcs_errors(buffer):
        client = storage.Client(project=None)
        # Its tracing would request bucket metadata too, in a thread without a timeout.
        client._bucket_metadata_cache = None
        try:
            blob = client.bucket(location.bucket).blob(location.key)
            blob.download_to_file(
                buffer, raw_download=True, timeout=buffer.limits.seconds, retry=None, checksum=None
            )
        finally:
            client.close()
        _check_encoding(str(blob.content_encoding or ""), buffer)


@contextmanager
def _map_gcs_errors(buffer: _BoundedBuffer) -> Generator[None]:
    api, auth = import_module("google.api_core.exceptions"), import_module("google.auth.exceptions")
    web = import_module("requests.exceptions")
    try:
        yield
    except api.GoogleAPICallError as error:
        raise _status_error(str(int(error.code or 0)), buffer) from None
    except auth.DefaultCredentialsError:
        raise buffer.unusable("no credentials found") from None
    except (auth.GoogleAuthError, web.RequestException) as error:
        raise buffer.unreachable(type(error).__name__) from None


def _status_error(code: str, buffer: _BoundedBuffer) -> SourceError:
    if code in _MISSING:
        return buffer.unreachable("there is no such object")
    if code in _DENIED | {"401"}:
        return buffer.unusable("access denied")
    return buffer.unreachable(f"error {display_url(code)}")


def _check_encoding(written: str, buffer: _BoundedBuffer) -> None:
    if written.strip().lower() not in _UNCOMPRESSED:
        raise buffer.unusable("it is stored compressed")
