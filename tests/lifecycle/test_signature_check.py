"""Signatures at installation and update: valid, wrong, of a stranger, missing, required."""

import io
import json
import os
import tarfile
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from apexbridge.errors import SignatureError
from apexbridge.lifecycle.signature_check import content_message, find_signature
from apexbridge.lifecycle.source_records import InstallOrigin
from apexbridge.runtime import Runtime
from apexbridge.settings import load
from apexbridge.signatures import SUFFIX, SecretKey
from apexbridge.testing import make_zip, skill_md

pytestmark = pytest.mark.anyio

KEY, STRANGER = SecretKey.generate(), SecretKey.generate()
Open = Callable[..., AbstractAsyncContextManager[Runtime]]


@pytest.fixture
def opened(home: Path, tmp_path: Path) -> Open:
    (tmp_path / "project").mkdir()
    environment = {
        "HOME": str(home),
        "APEXBRIDGE_DATA_DIR": str(tmp_path / "data"),
        "APEXBRIDGE_INDEX__EMBEDDER": "hash",
        "APEXBRIDGE_INSTALL__TRUSTED_KEYS": KEY.public.text,
    }

    @asynccontextmanager
    async def open_with(**install: object) -> AsyncGenerator[Runtime]:
        flags = {"install": install}
        config = load(project=tmp_path / "project", environment=environment, flags=flags)
        async with Runtime.open(config) as runtime:
            yield runtime

    return open_with


def _archive(place: Path, text: str = "Grows tomatoes.", version: str = "1.0") -> Path:
    entries = {"garden/SKILL.md": skill_md("garden", text, version=version)}
    return make_zip(place / "garden.zip", {**entries, "garden/scripts/main.py": b"print(1)\n"})


def _sign(path: Path, key: SecretKey = KEY, comment: str = "garden 1.0") -> None:
    text = key.sign(path.read_bytes(), comment)
    path.with_name(path.name + SUFFIX).write_text(text, encoding="utf-8")


async def test_a_valid_signature_is_in_result_report_record_and_show(
    opened: Open, tmp_path: Path
) -> None:
    archive = _archive(tmp_path)
    _sign(archive)
    async with opened() as runtime:
        report = await runtime.manager.inspect(archive)
        done = await runtime.manager.install(archive)
        assert report.signature == done.signature
        shown = runtime.manager.signature_of(runtime.catalog.get("garden"))
        assert shown == done.signature
        assert (shown.status, shown.key, shown.comment) == ("valid", KEY.public.name, "garden 1.0")
        log = runtime.config.data / "audit.jsonl"
        (record,) = [r for r in map(json.loads, log.read_text(encoding="utf-8").splitlines())
                     if r["action"] == "install"]  # fmt: skip
        assert record["facts"]["signed_by"] == KEY.public.name


async def test_a_wrong_signature_refuses_the_skill_and_leaves_nothing(
    opened: Open, tmp_path: Path
) -> None:
    archive = _archive(tmp_path)
    _sign(archive)
    _archive(tmp_path, "Grows weeds.")
    async with opened() as runtime:
        for attempt in (runtime.manager.inspect, runtime.manager.install):
            with pytest.raises(SignatureError) as caught:
                await attempt(archive)
            assert caught.value.code == "signature_invalid"
        assert list((runtime.config.data / "skills").glob("[!.]*")) == []
        staging = runtime.config.data / "skills/.staging"
        assert [path.name for path in staging.iterdir()] == [".lock"]


async def test_a_file_that_is_no_signature_refuses_the_skill(opened: Open, tmp_path: Path) -> None:
    archive = _archive(tmp_path)
    archive.with_name("garden.zip.minisig").write_bytes(b"\xff" * 20_000)
    async with opened() as runtime:
        with pytest.raises(SignatureError, match="wrong"):
            await runtime.manager.install(archive)
        archive.with_name("garden.zip.minisig").write_bytes(b"trust me\n")
        with pytest.raises(SignatureError, match="wrong"):
            await runtime.manager.install(archive)
        archive.with_name("garden.zip.minisig").write_bytes(b"")
        with pytest.raises(SignatureError, match="empty"):
            await runtime.manager.install(archive)


def test_a_signature_that_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    archive = _archive(tmp_path)
    beside = archive.with_name(archive.name + SUFFIX)
    os.mkfifo(beside)  # opening it would wait for a writer
    with pytest.raises(SignatureError, match="regular"):
        find_signature(archive)
    beside.unlink()
    beside.symlink_to("/dev/zero")
    with pytest.raises(SignatureError, match="regular"):
        find_signature(archive)


def _tar(place: Path, *names: str) -> Path:
    archive = place / "skills.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name in names:
            data = skill_md(name, f"Does {name}.")
            entry = tarfile.TarInfo(f"{name}/SKILL.md")
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return archive


def _zip_of_two(place: Path) -> Path:
    entries = {f"{name}/SKILL.md": skill_md(name, f"Does {name}.") for name in ("a", "b")}
    return make_zip(place / "skills.zip", entries)


@pytest.mark.parametrize("kind", ["tar with one", "tar with two", "zip with two"])
async def test_the_signature_of_an_archive_counts_for_all_of_its_skills(
    opened: Open, tmp_path: Path, kind: str
) -> None:
    names = ["a"] if kind == "tar with one" else ["a", "b"]
    archive = _zip_of_two(tmp_path) if kind == "zip with two" else _tar(tmp_path, *names)
    async with opened(require_signature=True) as runtime:
        installer = runtime.installer()
        (missing, *_) = await installer.install(str(archive), every=True)
        assert missing.error is not None
        assert missing.error.code == "signature_missing"
        _sign(archive)
        async with installer.open(str(archive)) as offers:
            for skill in offers.skills:
                assert (await installer.inspect(offers, skill)).signature.status == "valid"
        done = await installer.install(str(archive), every=True)
        assert [outcome.name for outcome in done if outcome.error is None] == names
        for name in names:
            assert runtime.manager.signature_of(runtime.catalog.get(name)).key == KEY.public.name


@pytest.mark.parametrize("kind", ["tar", "zip"])
async def test_a_wrong_signature_of_an_archive_refuses_all_of_its_skills(
    opened: Open, tmp_path: Path, kind: str
) -> None:
    archive = _zip_of_two(tmp_path) if kind == "zip" else _tar(tmp_path, "a", "b")
    archive.with_name(archive.name + SUFFIX).write_text(KEY.sign(b"x", "c"), encoding="utf-8")
    async with opened() as runtime:
        done = await runtime.installer().install(str(archive), every=True)
        codes = [outcome.error and outcome.error.code for outcome in done]
        assert codes == ["signature_invalid", "signature_invalid"]
        assert [s for s in runtime.catalog.skills if s.provenance.origin == "installed"] == []


async def test_a_missing_signature_is_said_and_refused_only_if_one_is_required(
    opened: Open, tmp_path: Path
) -> None:
    archive = _archive(tmp_path)
    async with opened(require_signature=True) as runtime:
        with pytest.raises(SignatureError) as caught:
            await runtime.manager.install(archive)
        assert caught.value.code == "signature_missing"
    async with opened() as runtime:
        assert (await runtime.manager.install(archive)).signature.status == "absent"
        assert runtime.manager.signature_of(runtime.catalog.get("garden")).status == "absent"


async def test_a_signature_of_a_key_that_nobody_trusts_proves_nothing(
    opened: Open, tmp_path: Path
) -> None:
    archive = _archive(tmp_path)
    _sign(archive, STRANGER)
    async with opened(require_signature=True) as runtime:
        with pytest.raises(SignatureError) as caught:
            await runtime.manager.install(archive)
        assert caught.value.code == "signature_untrusted"
        assert STRANGER.public.name in caught.value.message
    async with opened() as runtime:
        found = (await runtime.manager.install(archive)).signature
        assert (found.status, found.key, found.comment) == ("untrusted", STRANGER.public.name, "")


async def test_a_signature_of_the_content_hash_is_valid_for_every_form(
    opened: Open, tmp_path: Path
) -> None:
    """For a folder, a repacked archive and an upload: the bytes differ, the content does not."""
    async with opened(require_signature=True) as runtime:
        folder = tmp_path / "garden"
        (folder / "scripts").mkdir(parents=True)
        (folder / "SKILL.md").write_bytes(skill_md("garden", "Grows tomatoes."))
        (folder / "scripts/main.py").write_bytes(b"print(1)\n")
        async with opened() as lenient:
            sha256 = (await lenient.manager.inspect(folder)).sha256
        text = KEY.sign(content_message(sha256), "")
        assert (await runtime.manager.inspect(folder, signature=text)).signature.status == "valid"
        (tmp_path / f"garden{SUFFIX}").write_text(text, encoding="utf-8")
        done = await runtime.manager.install(folder)
        assert done.signature.status == "valid"
        repacked = tmp_path / "other.zip"
        repacked.write_bytes(await runtime.manager.export("garden"))
        assert (
            await runtime.manager.update(repacked, origin=InstallOrigin(signature=text))
        ).signature.key
        (folder / "scripts/main.py").write_bytes(b"print(2)\n")
        with pytest.raises(SignatureError):
            await runtime.manager.update(folder)


async def test_an_update_is_verified_like_an_installation(opened: Open, tmp_path: Path) -> None:
    archive = _archive(tmp_path)
    _sign(archive)
    async with opened(require_signature=True) as runtime:
        await runtime.manager.install(archive)
        _archive(tmp_path, version="2.0")
        for attempt in (
            runtime.manager.update(archive),
            runtime.manager.versions.add("garden", archive),
        ):
            with pytest.raises(SignatureError):
                await attempt
        _sign(archive, comment="garden 2.0")
        assert (await runtime.manager.update(archive)).signature.comment == "garden 2.0"
        await runtime.manager.versions.rollback("garden")
        shown = runtime.manager.signature_of(runtime.catalog.get("garden"))
        assert shown.comment == "garden 1.0"


async def test_an_edit_ends_a_signature_and_a_key_that_is_removed_too(
    opened: Open, tmp_path: Path
) -> None:
    archive = _archive(tmp_path)
    _sign(archive)
    async with opened() as runtime:
        await runtime.manager.install(archive)
    async with opened(trusted_keys=[STRANGER.public.text]) as runtime:
        shown = runtime.manager.signature_of(runtime.catalog.get("garden"))
        assert (shown.status, shown.key, shown.comment) == ("untrusted", KEY.public.name, "")
    async with opened() as runtime:
        await runtime.manager.edit_description("garden", "Grows peas.")
        assert runtime.manager.signature_of(runtime.catalog.get("garden")).status == "absent"


async def test_an_uninstall_takes_the_signature_and_an_undo_brings_it_back(
    opened: Open, tmp_path: Path
) -> None:
    archive = _archive(tmp_path)
    _sign(archive)
    async with opened() as runtime:
        await runtime.manager.install(archive)
        await runtime.manager.uninstall("garden")
        assert list((runtime.config.data / "signatures").iterdir()) == []
        await runtime.manager.restore("garden")
        shown = runtime.manager.signature_of(runtime.catalog.get("garden"))
        assert shown.status == "valid"


def test_a_trusted_key_that_is_none_is_refused_by_the_settings(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "APEXBRIDGE_INSTALL__TRUSTED_KEYS": "RWQ="}
    with pytest.raises(Exception, match="public key of minisign"):
        load(project=tmp_path, environment=environment)
