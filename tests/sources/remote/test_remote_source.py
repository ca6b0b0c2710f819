"""Remote source: names, digests, pins, and the cache when a server is down."""

import io
import json
import tarfile
import zipfile
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

import anyio
import pytest

from apexbridge.errors import SkillNotFoundError, SourceError
from apexbridge.lifecycle.zip.contents import read_skill_archive
from apexbridge.skills.model import Fingerprint, Origin, Skill
from apexbridge.skills.parser import MAX_SKILL_MD_BYTES
from apexbridge.skills.tree import fingerprint
from apexbridge.sources.base import Scan
from apexbridge.sources.remote.discovery import LEGACY_WELL_KNOWN, SCHEMA, WELL_KNOWN
from apexbridge.sources.remote.download_cache import PinStore, sha256_hex
from apexbridge.sources.remote.http_client import FetchLimits
from apexbridge.sources.remote.source import RemoteLocations, RemoteSource, remote_sources
from apexbridge.testing import make_skill, skill_md
from tests.sources.remote.http_site import Answer, Site, digest, publish, publish_index, redirect

pytestmark = pytest.mark.anyio

PDF, DOCX = skill_md("pdf", body="Read it."), skill_md("docx")
LIMITS = FetchLimits.from_cidr(seconds=5, max_bytes=100_000, allow_networks=["127.0.0.1/32"])


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    with Site() as serving:
        yield serving


@pytest.fixture
def pins(tmp_path: Path) -> PinStore:
    return PinStore(tmp_path / "remote")


def _index(site: Site, pins: PinStore, limits: FetchLimits = LIMITS) -> RemoteSource:
    (source,) = remote_sources(RemoteLocations(indexes=(site.url(),)), limits, pins)
    return source


def _single(pins: PinStore, *urls: str, limits: FetchLimits = LIMITS) -> RemoteSource:
    (source,) = remote_sources(RemoteLocations(skills=urls), limits, pins)
    return source


async def _scan(source: RemoteSource) -> Scan:
    with anyio.fail_after(30):
        return await source.scan()


def _names(scan: Scan) -> list[str]:
    return [skill.name for skill in scan.skills]


def _codes(scan: Scan) -> list[tuple[str, str]]:
    return [(problem.code, problem.severity) for problem in scan.problems]


def _files(**skills: bytes) -> Mapping[str, Mapping[str, bytes]]:
    return {name: {"SKILL.md": data} for name, data in skills.items()}


async def test_skills_of_an_index_are_untrusted(site: Site, pins: PinStore) -> None:
    publish(site, _files(pdf=PDF, docx=DOCX))
    source = _index(site, pins)
    scan = await _scan(source)
    assert (_names(scan), scan.problems) == (["_canonical_pdf", "_canonical_docx"], ())
    skill = scan.skills[0]
    assert skill.provenance.origin is Origin.REMOTE
    assert skill.provenance.source_id == source.id == f"remote:{site.url()}"
    assert (skill.provenance.needs_trust, skill.is_trusted) == (True, False)
    assert (skill.provenance.may_run_shell, skill.provenance.writable) == (False, False)
    assert (skill.root, source.roots) == (None, ())
    await source.close()


async def test_nothing_in_a_body_is_expanded(site: Site, pins: PinStore) -> None:
    body = "Do $ARGUMENTS and !`rm -rf /` in ${CLAUDE_SKILL_DIR}"
    publish(site, _files(pdf=skill_md("pdf", body=body)))
    source = _index(site, pins)
    scan = await _scan(source)
    assert (await source.content(scan.skills[0], "this")).body == body


async def test_ids_are_stable_and_two_of_the_same_are_one(pins: PinStore) -> None:
    places = RemoteLocations(
        skills=("https://a.example/SKILL.md?token=geheim",),
        indexes=("https://u:p@b.example/", "https://b.example", "https://c.example/sub"),
    )
    sources = remote_sources(places, LIMITS, pins)
    ids = [source.id for source in sources]
    assert ids == ["remote:https://b.example", "remote:https://c.example/sub", "remote:addresses"]
    assert remote_sources(RemoteLocations(), LIMITS, pins) == ()


async def test_single_addresses_give_skills(site: Site, pins: PinStore) -> None:
    site.answers["/x/SKILL.md"] = Answer(body=PDF)
    site.answers["/%E6%96%87/skill.md"] = Answer(body=b"---\ndescription: d\n---\nb")
    site.answers["/plain.md"] = Answer(body=b"---\ndescription: d\n---\nb")
    urls = [site.url(path) for path in ("/x/SKILL.md", "/文/skill.md", "/plain.md", "/x/SKILL.md")]
    scan = await _scan(_single(pins, *urls))
    assert _names(scan) == ["_canonical_pdf", "_canonical_文", "_canonical_plain"]
    assert scan.problems == ()


async def test_a_skill_without_any_name_is_called_after_its_host(
    site: Site, pins: PinStore
) -> None:
    site.answers["/SKILL.md"] = Answer(body=b"---\ndescription: d\n---\nb")
    scan = await _scan(_single(pins, site.url("/SKILL.md")))
    assert _names(scan) == [f"_canonical_127-0-0-1-{site.port}"]


async def test_of_two_with_one_name_the_second_is_a_problem(site: Site, pins: PinStore) -> None:
    site.answers["/a"] = Answer(body=PDF)
    site.answers["/b"] = Answer(body=skill_md("pdf", body="Evil."))
    source = _single(pins, site.url("/a"), site.url("/b"))
    scan = await _scan(source)
    assert _codes(scan) == [("remote_name_taken", "error")]
    assert scan.problems[0].where == site.url("/b")
    assert (await source.content(scan.skills[0])).body == "Read it."


async def test_a_broken_file_is_a_problem_that_names_its_address(
    site: Site, pins: PinStore
) -> None:
    site.answers["/a"] = Answer(body=b"nothing")
    site.answers["/b"] = Answer(body=PDF)
    scan = await _scan(_single(pins, site.url("/a"), site.url("/b")))
    assert _names(scan) == ["_canonical_pdf"]
    assert [(p.code, p.where) for p in scan.problems] == [("frontmatter_missing", site.url("/a"))]


async def test_a_name_that_differs_from_the_index_is_reported(site: Site, pins: PinStore) -> None:
    publish(site, _files(other=PDF))
    scan = await _scan(_index(site, pins))
    assert (_names(scan), _codes(scan)) == (["_canonical_pdf"], [("name_mismatch", "warning")])


async def test_a_file_above_the_size_limit_is_reported(site: Site, pins: PinStore) -> None:
    site.answers["/a"] = Answer(body=PDF + bytes(MAX_SKILL_MD_BYTES))
    large = replace(LIMITS, max_bytes=10 * MAX_SKILL_MD_BYTES)
    assert _codes(await _scan(_single(pins, site.url("/a"), limits=large))) == [
        ("skill_md_too_large", "error")
    ]


async def test_the_fingerprint_is_that_of_a_folder_with_the_same_files(
    site: Site, pins: PinStore, tmp_path: Path
) -> None:
    files = {"SKILL.md": PDF, "a-b.md": b"1", "a/z.md": b"2", "scripts/x": b"3", "a.md": b"4"}
    root = make_skill(tmp_path, "pdf", raw=PDF, files={k: files[k] for k in list(files)[1:]})
    publish(site, {"pdf": files})
    mark, local = (await _scan(_index(site, pins))).skills[0].fingerprint, fingerprint(root)
    assert isinstance(mark, Fingerprint)
    assert isinstance(local, Fingerprint)
    assert (mark.sha256, mark.files) == (local.sha256, local.files)


# What an index lists


async def test_a_file_that_does_not_fit_its_digest_is_not_used(site: Site, pins: PinStore) -> None:
    publish(site, _files(pdf=PDF, docx=DOCX))
    site.answers["/.well-known/agent-skills/pdf/SKILL.md"] = Answer(body=skill_md("pdf", body="x"))
    source = _index(site, pins)
    scan = await _scan(source)
    assert (_names(scan), _codes(scan)) == (["_canonical_docx"], [("remote_digest", "error")])
    assert sha256_hex(PDF) in scan.problems[0].message
    assert pins.pinned(site.url("/.well-known/agent-skills/pdf/SKILL.md")) == ""


@pytest.mark.promise("R01")
@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.2/SKILL.md", "file:///etc/passwd", "s3://bucket/SKILL.md",
     "gs://bucket/SKILL.md", "http://169.254.169.254/", "https://0x7f.1/"],
)  # fmt: skip
async def test_an_index_cannot_make_us_ask_what_is_not_allowed(
    site: Site, pins: PinStore, url: str
) -> None:
    entry = {"name": "x", "type": "skill-md", "url": url, "digest": digest(b"x")}
    publish_index(site, {"$schema": SCHEMA, "skills": [entry]})
    assert _codes(await _scan(_index(site, pins))) == [("remote_refused", "error")]


async def test_files_that_were_fetched_once_are_not_fetched_again(
    site: Site, pins: PinStore
) -> None:
    publish(site, _files(pdf=PDF))
    await _scan(_index(site, pins))
    site.requests.clear()
    assert _names(await _scan(_index(site, pins))) == ["_canonical_pdf"]
    assert site.paths() == [WELL_KNOWN]


async def test_addresses_are_relative_to_where_the_index_was_found(
    site: Site, pins: PinStore
) -> None:
    publish(site, _files(pdf=PDF))
    site.answers["/moved/index.json"] = site.answers[WELL_KNOWN]
    site.answers["/moved/pdf/SKILL.md"] = Answer(body=PDF)
    site.answers[WELL_KNOWN] = redirect("/moved/index.json")
    assert _names(await _scan(_index(site, pins))) == ["_canonical_pdf"]
    assert "/moved/pdf/SKILL.md" in site.paths()


async def test_a_skill_that_leaves_the_index_is_gone(site: Site, pins: PinStore) -> None:
    publish(site, _files(pdf=PDF, docx=DOCX))
    source = _index(site, pins)
    scan = await _scan(source)
    publish(site, _files(docx=DOCX))
    assert _names(await _scan(source)) == ["_canonical_docx"]
    with pytest.raises(SkillNotFoundError):
        await source.content(scan.skills[0])


async def test_many_entries_are_fetched_a_few_at_a_time(site: Site, pins: PinStore) -> None:
    publish(site, _files(**{f"s{number}": skill_md(f"s{number}") for number in range(40)}))
    scan = await _scan(_index(site, pins))
    assert _names(scan) == [f"_canonical_s{number}" for number in range(40)]


# Held to what they were


@pytest.mark.promise("R07")
async def test_changed_bytes_are_refused_until_the_change_is_accepted(
    site: Site, pins: PinStore
) -> None:
    url = site.url("/SKILL.md")
    evil = skill_md("pdf", body="Evil.")
    site.answers["/SKILL.md"] = Answer(body=PDF)
    await _scan(_single(pins, url))
    site.answers["/SKILL.md"] = Answer(body=evil)
    source = _single(pins, url)
    scan = await _scan(source)
    assert _codes(scan) == [("remote_changed", "error")]
    assert sha256_hex(PDF) in scan.problems[0].message
    assert sha256_hex(evil) in scan.problems[0].message
    assert (await source.content(scan.skills[0])).body == "Read it."
    assert pins.offered(url) == evil
    assert pins.accept_change(url)
    after = await _scan(source)
    assert after.problems == ()
    assert (await source.content(after.skills[0])).body == "Evil."
    with pytest.raises(SourceError, match="changed since it was listed"):
        await source.content(scan.skills[0])


@pytest.mark.promise("R07")
async def test_an_index_that_agrees_with_changed_bytes_does_not_help(
    site: Site, pins: PinStore
) -> None:
    publish(site, _files(pdf=PDF))
    await _scan(_index(site, pins))
    publish(site, _files(pdf=skill_md("pdf", body="Evil.")))
    source = _index(site, pins)
    for _ in range(2):
        scan = await _scan(source)
        assert _codes(scan) == [("remote_changed", "error")]
        assert (await source.content(scan.skills[0])).body == "Read it."
    assert site.paths().count("/.well-known/agent-skills/pdf/SKILL.md") == 2
    assert pins.accept_change(site.url("/.well-known/agent-skills/pdf/SKILL.md"))
    scan = await _scan(source)
    assert (await source.content(scan.skills[0])).body == "Evil."


@pytest.mark.promise("R07")
async def test_changed_bytes_are_refused_where_the_old_ones_are_lost(
    site: Site, pins: PinStore, tmp_path: Path
) -> None:
    site.answers["/a"] = Answer(body=PDF)
    site.answers["/b"] = Answer(body=DOCX)
    await _scan(_single(pins, site.url("/a"), site.url("/b")))
    (tmp_path / "remote/kept" / sha256_hex(PDF)).unlink()
    site.answers["/a"] = Answer(body=skill_md("pdf", body="Evil."))
    scan = await _scan(_single(pins, site.url("/a"), site.url("/b")))
    assert (_names(scan), _codes(scan)) == (["_canonical_docx"], [("remote_changed", "error")])


# When it is down


async def test_a_source_that_is_down_serves_what_it_had(site: Site, pins: PinStore) -> None:
    publish(site, _files(pdf=PDF, docx=DOCX))
    site.answers["/one"] = Answer(body=skill_md("one", body="Mine."))
    places = RemoteLocations(indexes=(site.url(),), skills=(site.url("/one"),))
    for source in remote_sources(places, LIMITS, pins):
        await _scan(source)
    site.close()
    index, single = remote_sources(places, LIMITS, pins)
    scan = await _scan(index)
    assert _names(scan) == ["_canonical_pdf", "_canonical_docx"]
    assert _codes(scan) == [("source_stale", "warning")]
    assert (await index.content(scan.skills[0])).body == "Read it."
    scan = await _scan(single)
    assert (_names(scan), _codes(scan)) == (["_canonical_one"], [("source_stale", "warning")])
    assert (await single.content(scan.skills[0])).body == "Mine."


@pytest.mark.promise("R06")
async def test_a_login_page_instead_of_an_index_is_no_index(site: Site, pins: PinStore) -> None:
    page = Answer(body=b"<!doctype html>", headers={"Content-Type": "application/json"})
    site.answers[WELL_KNOWN] = page
    with pytest.raises(SourceError, match="HTML page"):
        await _scan(_index(site, pins))
    publish(site, _files(pdf=PDF))
    await _scan(_index(site, pins))
    site.answers[WELL_KNOWN] = page
    assert _codes(await _scan(_index(site, pins))) == [("source_stale", "warning")]


async def test_a_source_that_never_worked_is_an_error(site: Site, pins: PinStore) -> None:
    with pytest.raises(SourceError) as caught:
        await _scan(_single(pins, site.url("/a")))
    assert caught.value.code == "remote_unreachable"
    assert caught.value.details["url"] == site.url("/a")
    with pytest.raises(SourceError, match=r"status 404.*; .*SSRF protection") as caught:
        await _scan(
            _single(pins, site.url("/a"), "file:///etc/passwd", "https://[x", "https://a/?\ud800")
        )
    assert caught.value.code == "source_unreadable"
    with pytest.raises(SourceError) as caught:
        await _scan(_index(site, pins))
    assert caught.value.code == "remote_unreachable"


async def test_one_address_that_never_worked_is_a_problem_beside_the_others(
    site: Site, pins: PinStore
) -> None:
    site.answers["/b"] = Answer(body=PDF)
    scan = await _scan(_single(pins, site.url("/a"), site.url("/b")))
    assert (_names(scan), _codes(scan)) == (["_canonical_pdf"], [("remote_unreachable", "error")])


@pytest.mark.promise("R05")
async def test_a_source_with_many_slow_files_ends(site: Site, pins: PinStore) -> None:
    site.answers["/last"] = Answer(body=PDF)
    await _scan(_single(pins, site.url("/last")))
    slow = [f"/{number}" for number in range(47)]
    for path in slow:
        site.answers[path] = Answer(body=site.trickle())
    urls = [site.url(path) for path in (*slow, "/last")]
    scan = await _scan(_single(pins, *urls, limits=replace(LIMITS, seconds=0.2)))
    assert _names(scan) == ["_canonical_pdf"]
    assert _codes(scan) == [("remote_unreachable", "error")] * 47 + [("source_stale", "warning")]
    assert "deadline has passed" in scan.problems[-1].message


async def test_a_memory_that_cannot_be_used_stops_the_source(
    site: Site, pins: PinStore, tmp_path: Path
) -> None:
    publish(site, _files(pdf=PDF))
    site.answers["/one"] = Answer(body=PDF)
    (tmp_path / "remote").mkdir()
    (tmp_path / "remote/pins.json").write_bytes(b"{")
    for source in (_index(site, pins), _single(pins, site.url("/one"))):
        with pytest.raises(SourceError) as caught:
            await _scan(source)
        assert caught.value.code == "pins_unreadable"
    (tmp_path / "other").mkdir()
    (tmp_path / "other/kept").write_bytes(b"")
    nowhere = PinStore(tmp_path / "other")
    for source in (_index(site, nowhere), _single(nowhere, site.url("/one"))):
        with pytest.raises(SourceError, match="Cannot write"):
            await _scan(source)


# Files beside a skill


async def _listed(site: Site, pins: PinStore) -> tuple[RemoteSource, Skill]:
    publish(site, {"pdf": {"SKILL.md": PDF, "references/a.md": "甲".encode()}})
    source = _index(site, pins)
    return source, (await _scan(source)).skills[0]


async def test_a_listed_file_is_fetched_when_it_is_read(site: Site, pins: PinStore) -> None:
    source, skill = await _listed(site, pins)
    path = PurePosixPath("references/a.md")
    assert "/.well-known/agent-skills/pdf/references/a.md" not in site.paths()
    assert (await source.resource(skill, path)).data.decode() == "甲"
    assert (await source.resource(skill, PurePosixPath("SKILL.md"))).data == PDF
    site.close()
    assert (await source.resource(skill, path)).data.decode() == "甲"


async def test_a_listed_file_that_does_not_fit_its_digest_is_refused(
    site: Site, pins: PinStore
) -> None:
    source, skill = await _listed(site, pins)
    site.answers["/.well-known/agent-skills/pdf/references/a.md"] = Answer(body=b"evil")
    with pytest.raises(SourceError, match="Digest mismatch"):
        await source.resource(skill, PurePosixPath("references/a.md"))


async def test_a_file_beside_a_single_address_is_not_fetched(site: Site, pins: PinStore) -> None:
    site.answers["*"] = Answer(body=PDF)
    source = _single(pins, site.url("/SKILL.md"))
    skill = (await _scan(source)).skills[0]
    with pytest.raises(SourceError, match="not listed in the index"):
        await source.resource(skill, PurePosixPath("references/a.md"))
    assert site.paths() == ["/SKILL.md"]


async def test_bytes_that_were_lost_are_fetched_again_if_they_are_the_same(
    site: Site, pins: PinStore, tmp_path: Path
) -> None:
    source, skill = await _listed(site, pins)
    kept = tmp_path / "remote/kept" / sha256_hex(PDF)
    kept.write_bytes(b"evil")
    assert (await source.content(skill)).body == "Read it."
    kept.unlink()
    site.close()
    with pytest.raises(SourceError):
        await source.content(skill)


async def test_a_body_that_cannot_be_remembered_is_an_error(
    site: Site, pins: PinStore, tmp_path: Path
) -> None:
    source, skill = await _listed(site, pins)
    kept = tmp_path / "remote/kept"
    kept.rename(tmp_path / "away")
    kept.write_bytes(b"")
    with pytest.raises(SourceError, match="Cannot write"):
        await source.content(skill)


async def test_a_skill_of_another_index_is_not_read(site: Site, pins: PinStore) -> None:
    source, skill = await _listed(site, pins)
    other = replace(skill.provenance, source_id="remote:https://other.example")
    with pytest.raises(SkillNotFoundError):
        await source.content(replace(skill, provenance=other))


async def test_an_index_of_nothing_is_empty(site: Site, pins: PinStore) -> None:
    site.answers[WELL_KNOWN] = Answer(body=json.dumps({"skills": []}).encode())
    scan = await _scan(_index(site, pins))
    assert (scan.skills, scan.problems) == ((), ())


_WHOLE = {
    "SKILL.md": PDF,
    "scripts/main.py": b"print(1)\n",
    "assets/page.html": b"<!doctype html><p>",
    "assets/dot.png": bytes(range(256)),
}


def _zipped(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, data in files.items():
            archive.writestr(zipfile.ZipInfo(path), data)
    return buffer.getvalue()


def _tarred(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path, data in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def _publish_archive(
    site: Site, data: bytes, content_type: str = "application/zip", **entry: object
) -> None:
    headers = {"Content-Type": content_type}
    site.answers["/.well-known/agent-skills/pdf.bin"] = Answer(body=data, headers=headers)
    about = {"name": "pdf", "type": "archive", "description": "…", "url": "pdf.bin"}
    publish_index(site, {"$schema": SCHEMA, "skills": [{**about, "digest": digest(data), **entry}]})


def _whole(site: Site, pins: PinStore, limits: FetchLimits = LIMITS) -> RemoteSource:
    places = RemoteLocations(indexes=(site.url(),))
    (source,) = remote_sources(places, limits, pins, read_archive=read_skill_archive)
    return source


@pytest.mark.parametrize(
    ("pack", "content_type"),
    [
        (_zipped, "application/zip"),
        (_tarred, "application/gzip"),
        (_tarred, "application/octet-stream"),
    ],
)
async def test_an_archive_brings_the_whole_skill(
    site: Site,
    pins: PinStore,
    tmp_path: Path,
    pack: Callable[[Mapping[str, bytes]], bytes],
    content_type: str,
) -> None:
    _publish_archive(site, pack(_WHOLE), content_type)
    source = _whole(site, pins)
    scan = await _scan(source)
    assert (_names(scan), scan.problems) == (["_canonical_pdf"], ())
    (skill,) = scan.skills
    for path, data in _WHOLE.items():
        assert (await source.resource(skill, PurePosixPath(path))).data == data
    assert (await source.content(skill)).body == "Read it."
    with pytest.raises(SourceError):
        await source.resource(skill, PurePosixPath("scripts/other.py"))
    root = tmp_path / "pdf"
    for path, data in _WHOLE.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    folder = fingerprint(root)
    assert isinstance(folder, Fingerprint)
    assert skill.fingerprint is not None
    assert skill.fingerprint.sha256 == folder.sha256  # an approval is for these files


async def test_an_archive_whose_digest_differs_is_not_used(site: Site, pins: PinStore) -> None:
    _publish_archive(site, _zipped(_WHOLE), digest=digest(b"other"))
    scan = await _scan(_whole(site, pins))
    assert (scan.skills, _codes(scan)) == ((), [("remote_digest", "error")])


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (_zipped({**_WHOLE, "../x": b""}), "zip_path_traversal"),
        (_tarred({**_WHOLE, "../x": b""}), "zip_path_traversal"),
        (_zipped({"README.md": b""}), "zip_no_root_folder"),
        (b"not an archive", "zip_invalid"),
    ],
)
async def test_a_hostile_archive_is_a_problem_beside_the_others(
    site: Site, pins: PinStore, data: bytes, code: str
) -> None:
    _publish_archive(site, data)
    scan = await _scan(_whole(site, pins))
    assert (scan.skills, _codes(scan)) == ((), [(code, "error")])
    assert scan.problems[0].where == site.url("/.well-known/agent-skills/pdf.bin")


async def test_a_larger_archive_than_allowed_is_not_downloaded(
    site: Site, pins: PinStore, tmp_path: Path
) -> None:
    large = {**_WHOLE, "assets/big.bin": bytes(range(256)) * 1_000}
    _publish_archive(site, _zipped(large))
    assert (await _scan(_whole(site, pins))).problems == ()  # larger than a single file may be
    small = replace(LIMITS, archive_bytes=1_000)
    again = await _scan(_whole(site, PinStore(tmp_path / "other"), small))
    assert (again.skills, _codes(again)) == ((), [("remote_unusable", "error")])


async def test_an_archive_is_served_from_the_cache_while_its_host_is_down(
    site: Site, pins: PinStore
) -> None:
    _publish_archive(site, _zipped(_WHOLE))
    await _scan(_whole(site, pins))
    site.close()
    source = _whole(site, pins)
    scan = await _scan(source)
    assert _names(scan) == ["_canonical_pdf"]
    path = PurePosixPath("scripts/main.py")
    assert (await source.resource(scan.skills[0], path)).data == b"print(1)\n"


def _publish_0_1(site: Site, files: Mapping[str, bytes], **extra: object) -> None:
    base = LEGACY_WELL_KNOWN.removesuffix("index.json")
    for path, data in files.items():
        headers = {"Content-Type": "image/png" if path.endswith("png") else "text/html"}
        headers = {"Content-Type": "text/markdown"} if path == "SKILL.md" else headers
        site.answers[f"{base}pdf/{path}"] = Answer(body=data, headers=headers)
    index = {"skills": [{"name": "pdf", "description": "…", "files": list(files)}]}
    body = json.dumps({**index, **extra}).encode()
    site.answers[LEGACY_WELL_KNOWN] = Answer(
        body=body, headers={"Content-Type": "application/json"}
    )


async def test_a_host_with_an_index_of_0_1_alone_brings_whole_skills(
    site: Site, pins: PinStore
) -> None:
    files = {path: data for path, data in _WHOLE.items() if not path.endswith(".py")}
    _publish_0_1(site, files)
    source = _whole(site, pins)
    scan = await _scan(source)
    assert (_names(scan), scan.problems) == (["_canonical_pdf"], ())
    for path, data in files.items():
        assert (await source.resource(scan.skills[0], PurePosixPath(path))).data == data
    site.close()
    again = await _scan(_whole(site, pins))
    assert again.skills[0].fingerprint == scan.skills[0].fingerprint


async def test_a_file_that_an_index_of_0_1_promises_and_is_missing_is_a_problem(
    site: Site, pins: PinStore
) -> None:
    _publish_0_1(site, _WHOLE)
    del site.answers[LEGACY_WELL_KNOWN.removesuffix("index.json") + "pdf/assets/dot.png"]
    site.answers[LEGACY_WELL_KNOWN.removesuffix("index.json") + "pdf/scripts/main.py"] = Answer(
        body=b"<!doctype html><p>Sign in", headers={"Content-Type": "text/html"}
    )
    scan = await _scan(_whole(site, pins))
    assert _names(scan) == ["_canonical_pdf"]
    assert [(p.code, p.where.rsplit("/", 1)[1]) for p in scan.problems] == [
        ("remote_unusable", "main.py"),
        ("remote_unreachable", "dot.png"),
    ]
