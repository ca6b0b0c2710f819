"""Object storage downloads with the real SDKs against a minimal S3 and GCS server."""

import gzip
import itertools
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from apexbridge.errors import SourceError
from apexbridge.sources.remote.download_cache import PinStore
from apexbridge.sources.remote.http_client import FetchLimits
from apexbridge.sources.remote.object_storage import is_object, read_object
from apexbridge.sources.remote.source import RemoteLocations, remote_sources
from apexbridge.testing import skill_md
from tests.sources.remote.http_site import Answer, Site

pytestmark = pytest.mark.anyio

LIMITS = FetchLimits(seconds=10, max_bytes=1_000)
BOTH = pytest.mark.parametrize("scheme", ["s3", "gs"])


@pytest.fixture
async def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Site]:
    """A store, with the environment in which both clients find it and credentials for it."""
    with Site() as serving:
        settings = {
            "AWS_ENDPOINT_URL": serving.url(),
            "AWS_ACCESS_KEY_ID": "someone",
            "AWS_SECRET_ACCESS_KEY": "geheim",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": str(tmp_path / "none"),
            "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
            "STORAGE_EMULATOR_HOST": serving.url(),
            "NO_GCE_CHECK": "true",
        }
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        yield serving


async def _refusal(url: str, limits: FetchLimits = LIMITS) -> SourceError:
    with anyio.fail_after(60), pytest.raises(SourceError) as caught:
        await read_object(url, limits)
    return caught.value


def _error(status: int, code: str) -> Answer:
    """A refusal in the way of both."""
    body = f"<Error><Code>{code}</Code><Message>geheim</Message></Error>".encode()
    return Answer(status=status, body=body, headers={"Content-Type": "application/xml"})


@BOTH
async def test_an_object_is_read_whole(site: Site, scheme: str) -> None:
    site.answers["*"] = Answer(body="甲".encode())
    data = await read_object(f"{scheme}://my-bucket/a b/技能/SKILL.md", LIMITS)
    assert data.decode() == "甲"
    (path,) = site.paths()
    assert "my-bucket" in path
    assert "SKILL.md" in path


async def test_the_usual_credentials_are_used(site: Site) -> None:
    site.answers["*"] = Answer(body=b"x")
    await read_object("s3://my-bucket/a", LIMITS)
    assert "Credential=someone/" in site.requests[0].headers["Authorization"]


@BOTH
async def test_a_missing_object_is_reported(site: Site, scheme: str) -> None:
    site.answers["*"] = _error(404, "NoSuchKey")
    error = await _refusal(f"{scheme}://my-bucket/a")
    assert (error.code, "no such object" in error.message) == ("remote_unreachable", True)


@BOTH
async def test_a_denied_object_is_reported(site: Site, scheme: str) -> None:
    site.answers["*"] = _error(403, "AccessDenied")
    error = await _refusal(f"{scheme}://my-bucket/a")
    assert (error.code, "denied" in error.message) == ("remote_unusable", True)
    assert "geheim" not in error.message


@BOTH
async def test_a_server_error_of_object_storage_is_reported(site: Site, scheme: str) -> None:
    site.answers["*"] = _error(418, "Teapot")
    error = await _refusal(f"{scheme}://my-bucket/a")
    code = {"s3": "Teapot", "gs": "418"}[scheme]
    assert error.code == "remote_unreachable"
    assert error.message == f"Cannot fetch {scheme}://my-bucket/a: error {code}"


@BOTH
async def test_object_storage_that_is_down_is_reported(site: Site, scheme: str) -> None:
    site.close()
    assert (await _refusal(f"{scheme}://my-bucket/a")).code == "remote_unreachable"


@BOTH
@pytest.mark.promise("R05")
async def test_an_object_that_is_too_large_is_refused(site: Site, scheme: str) -> None:
    site.answers["*"] = Answer(body=bytes(1_000))
    assert len(await read_object(f"{scheme}://my-bucket/a", LIMITS)) == 1_000
    for body in (bytes(1_001), itertools.repeat(bytes(65_536))):
        site.answers["*"] = Answer(body=body)
        error = await _refusal(f"{scheme}://my-bucket/a")
        assert (error.code, "more than 1000 bytes" in error.message) == ("remote_unusable", True)


@BOTH
@pytest.mark.promise("R05")
async def test_a_slow_object_times_out(site: Site, scheme: str) -> None:
    site.answers["*"] = Answer(body=b"warm")
    await read_object(f"{scheme}://my-bucket/a", LIMITS)
    site.answers["*"] = Answer(body=site.trickle())
    error = await _refusal(f"{scheme}://my-bucket/a", FetchLimits(seconds=0.5, max_bytes=10**9))
    assert (error.code, "within 0.5 s" in error.message) == ("remote_unreachable", True)


@BOTH
async def test_an_object_that_is_stored_compressed_is_refused(site: Site, scheme: str) -> None:
    headers = {"Content-Encoding": "gzip", "Content-Type": "text/plain"}
    site.answers["*"] = Answer(body=gzip.compress(bytes(100_000)), headers=headers)
    error = await _refusal(f"{scheme}://my-bucket/a")
    assert (error.code, "compressed" in error.message) == ("remote_unusable", True)


@BOTH
async def test_missing_credentials_are_reported(
    site: Site, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for gone in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "STORAGE_EMULATOR_HOST"):
        monkeypatch.delenv(gone)
    error = await _refusal(f"{scheme}://my-bucket/a")
    assert (error.code, "no credentials" in error.message) == ("remote_unusable", True)
    assert site.requests == []


@pytest.mark.parametrize(("scheme", "package"), [("s3", "boto3"), ("gs", "google.cloud.storage")])
async def test_a_client_that_is_not_installed_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, scheme: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    error = await _refusal(f"{scheme}://my-bucket/a")
    assert error.code == "extra_missing"
    assert f"pip install 'apexbridge[{scheme}]'" in error.hint


@pytest.mark.promise("R04")
@pytest.mark.parametrize(
    "url",
    ["s3://bucket", "s3://bucket/", "s3:///key", "s3://../key", "s3://a..b/key", "s3://B/key",
     "gs://user@bucket/key", "s3://bucket:80/key", "s3://bucket/key?versionId=1", "s3://buck\n/k",
     "s3://arn:aws:s3:::x/key", "gs://bucket/\x1b", "https://bucket/key", f"s3://abc/{'x' * 1025}",
     "s3://[x/key"],
    ids=lambda url: ascii(url)[1:40],
)  # fmt: skip
async def test_an_address_that_names_no_object_is_refused(url: str) -> None:
    assert (await _refusal(url)).code == "remote_refused"


def test_object_urls_are_recognised() -> None:
    assert [is_object(url) for url in ("s3://a/b", "gs://a/b", "https://s3/b", "s3:a")] == [
        True, True, False, False,
    ]  # fmt: skip


@BOTH
async def test_a_skill_in_a_bucket_is_one_of_the_single_addresses(
    site: Site, scheme: str, tmp_path: Path
) -> None:
    site.answers["*"] = Answer(body=skill_md("pdf", body="Read it."))
    places = RemoteLocations(skills=(f"{scheme}://my-bucket/skills/x/SKILL.md",))
    (source,) = remote_sources(places, LIMITS, PinStore(tmp_path / "pins"))
    scan = await source.scan()
    assert [skill.name for skill in scan.skills] == ["_canonical_pdf"]
    site.close()
    scan = await source.scan()
    assert [problem.code for problem in scan.problems] == ["source_stale"]
    assert (await source.content(scan.skills[0])).body == "Read it."
