"""Detached signatures, and the program `minisign` as a judge of them."""

from pathlib import Path

import anyio
import pytest

from apexbridge.errors import SignatureError
from apexbridge.signatures import SUFFIX, PublicKey, SecretKey, find_key, parse_signature

pytestmark = pytest.mark.anyio

DATA = b"an archive\n" * 1_000


def _lines(text: str, number: int, line: str) -> str:
    lines = text.splitlines()
    lines[number] = line
    return "\n".join(lines)


@pytest.fixture(scope="module")
def key() -> SecretKey:
    return SecretKey.generate()


def test_what_a_key_signed_is_verified(key: SecretKey) -> None:
    signature = parse_signature(key.sign(DATA, "garden 1.0"))
    assert signature.verify(DATA, key.public)
    assert (signature.comment, signature.key_name) == ("garden 1.0", key.public.name)
    assert find_key(signature, (SecretKey.generate().public, key.public)) == key.public


def test_other_bytes_another_key_or_another_comment_are_not_verified(key: SecretKey) -> None:
    text = key.sign(DATA, "garden 1.0")
    signature, other = parse_signature(text), SecretKey.generate().public
    assert not signature.verify(DATA + b"x", key.public)
    assert not signature.verify(DATA, other)
    assert not signature.verify(DATA, PublicKey(key.id, other.raw))
    assert not signature.verify(DATA, PublicKey(other.id, key.public.raw))
    forged = _lines(text, 2, "trusted comment: garden 2.0")
    assert not parse_signature(forged).verify(DATA, key.public)


def test_line_ends_of_windows_are_read(key: SecretKey) -> None:
    text = key.sign(DATA, "a comment").replace("\n", "\r\n")
    assert parse_signature(text).verify(DATA, key.public)


def test_a_comment_is_one_line(key: SecretKey) -> None:
    assert parse_signature(key.sign(DATA, "a\nb\t c")).comment == "a b c"


@pytest.mark.parametrize(
    "text",
    ["", "x", "a\nb\nc\nd", "\n" * 3, "untrusted comment: x\n!!\ntrusted comment: y\n!!",
     "untrusted comment: x\nRWQ=\ntrusted comment: y\nRWQ="],
)  # fmt: skip
def test_what_is_no_signature_is_refused(text: str) -> None:
    with pytest.raises(SignatureError) as caught:
        parse_signature(text)
    assert caught.value.code == "signature_invalid"


def test_a_signature_of_another_algorithm_is_refused(key: SecretKey) -> None:
    text = key.sign(DATA, "")
    with pytest.raises(SignatureError):
        parse_signature(_lines(text, 1, text.splitlines()[1].replace("RU", "RV", 1)))


def test_keys_are_read_as_they_are_written(key: SecretKey) -> None:
    assert PublicKey.parse(key.public.file()) == PublicKey.parse(key.public.text) == key.public
    assert SecretKey.parse(key.file()) == key


@pytest.mark.parametrize("text", ["", "x", "RWQ=", "a\nb\nc", "RUQ" + "A" * 53])
def test_what_is_no_public_key_is_refused(text: str) -> None:
    with pytest.raises(SignatureError) as caught:
        PublicKey.parse(text)
    assert caught.value.code == "signing_key_invalid"


def test_a_damaged_secret_key_is_refused(key: SecretKey) -> None:
    line = key.file().splitlines()[1]
    for text in ("", "x", line[:-8], line[:110] + "AAAA" + line[114:]):
        with pytest.raises(SignatureError):
            SecretKey.parse(f"untrusted comment: x\n{text}\n")


async def _minisign(folder: Path, *arguments: str, typed: bytes = b"") -> int:
    with anyio.fail_after(60):
        done = await anyio.run_process(
            ["minisign", *arguments], input=typed, check=False, cwd=folder
        )
    return done.returncode


@pytest.mark.needs("minisign")
async def test_minisign_verifies_our_signatures(key: SecretKey, tmp_path: Path) -> None:
    file = tmp_path / "garden.zip"
    file.write_bytes(DATA)
    file.with_name(file.name + SUFFIX).write_text(key.sign(DATA, "garden 1.0"), encoding="utf-8")
    (tmp_path / "our.pub").write_text(key.public.file(), encoding="utf-8")
    verify = ("-V", "-m", "garden.zip")
    assert await _minisign(tmp_path, *verify, "-p", "our.pub") == 0
    assert await _minisign(tmp_path, *verify, "-P", key.public.text) == 0
    file.write_bytes(DATA + b"x")
    assert await _minisign(tmp_path, *verify, "-p", "our.pub") != 0


@pytest.mark.needs("minisign")
@pytest.mark.parametrize("style", ["-H", "-l"], ids=["prehashed", "legacy"])
async def test_signatures_of_minisign_are_verified(tmp_path: Path, style: str) -> None:
    (tmp_path / "garden.zip").write_bytes(DATA)
    assert await _minisign(tmp_path, "-G", "-W", "-p", "its.pub", "-s", "its.key") == 0
    sign = ("-S", style, "-s", "its.key", "-m", "garden.zip", "-t", "garden \u56ed 1.0")
    assert await _minisign(tmp_path, *sign) == 0
    public = PublicKey.parse((tmp_path / "its.pub").read_text(encoding="utf-8"))
    signature = parse_signature((tmp_path / "garden.zip.minisig").read_text(encoding="utf-8"))
    assert signature.verify(DATA, public)
    assert signature.comment == "garden \u56ed 1.0"
    assert not signature.verify(DATA + b"x", public)
    assert public.name in (tmp_path / "its.pub").read_text(encoding="utf-8")


@pytest.mark.needs("minisign")
async def test_secret_keys_are_those_of_minisign(key: SecretKey, tmp_path: Path) -> None:
    assert await _minisign(tmp_path, "-G", "-W", "-p", "its.pub", "-s", "its.key") == 0
    its = SecretKey.parse((tmp_path / "its.key").read_text(encoding="utf-8"))
    assert its.public == PublicKey.parse((tmp_path / "its.pub").read_text(encoding="utf-8"))
    (tmp_path / "our.key").write_text(key.file(), encoding="utf-8")
    (tmp_path / "x").write_bytes(DATA)
    assert await _minisign(tmp_path, "-S", "-W", "-s", "our.key", "-m", "x") == 0
    assert parse_signature((tmp_path / "x.minisig").read_text(encoding="utf-8")).verify(
        DATA, key.public
    )
