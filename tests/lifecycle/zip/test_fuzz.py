"""Fuzzing: a randomly damaged archive is refused with a reason, or extracted as planned."""

import io
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apexbridge.errors import ArchiveError
from apexbridge.lifecycle.zip.archive import ExtractionPlan, extract_archive, inspect_archive
from tests.lifecycle.zip.raw_zip import FOLDER, SKILL, Raw, descriptor, raw_zip

TEXT = Raw(name="pdf/references/a.md", data=b"some text, " * 40, deflated=True)
STREAMED = replace(TEXT, flags=8, header={"crc": 0, "packed": 0, "size": 0})
SOUND = [
    raw_zip([Raw(name="pdf/", mode=FOLDER), SKILL, TEXT], comment=b"comment"),
    raw_zip([SKILL, replace(STREAMED, tail=descriptor(STREAMED)), Raw(name="pdf/.DS_Store")]),
    raw_zip([SKILL, Raw(name="pdf/scripts/x", data=b"#!", mode=0o104755)], wide={}),
    raw_zip([SKILL, Raw(name="pdf/中文".encode("gbk"), data=b"1"), Raw(name="pdf/图", data=b"2")]),
    raw_zip([SKILL, Raw(name="pdf/inner.zip", data=raw_zip([SKILL]))]),
]
_INTERESTING = [0, 1, 2, 8, 9, 0x2E, 0x2F, 0x5C, 0x50, 0x4B, 0x7F, 0x80, 0xA1, 0xFE, 0xFF]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A sound zip with bytes changed, cut out or repeated."""
    data = bytearray(draw(st.sampled_from(SOUND)))
    places = st.integers(0, len(data) - 1)
    for _ in range(draw(st.integers(1, 4))):
        match draw(st.sampled_from(["byte", "byte", "byte", "cut", "repeat"])):
            case "byte":
                at = draw(places)
                value = draw(st.sampled_from(_INTERESTING) | st.integers(0, 255))
                data[at : at + 1] = bytes([value])
            case "cut":
                at = draw(places)
                del data[at : at + draw(st.integers(1, 64))]
            case _:
                at, target = draw(places), draw(places)
                data[target:target] = data[at : at + draw(st.integers(1, 64))]
    return bytes(data)


@st.composite
def odd(draw: st.DrawFn) -> bytes:
    """A zip that is whole, with odd names, kinds and ways of packing."""
    parts = st.text(st.sampled_from("aAbB.é中:\\ \u0301\u200b~"), min_size=1, max_size=3)
    names = st.lists(parts, min_size=1, max_size=3).map(lambda found: "pdf/" + "/".join(found))
    modes = st.sampled_from([0, 0o100644, 0o104777, 0o040755, 0o120777, 0o010644])
    entries = list[Raw]()
    for _ in range(draw(st.integers(1, 3))):
        name = draw(names)
        entry = Raw(
            name=draw(st.sampled_from([name, name.encode(), name.encode("gb18030")])),
            data=b"x" + draw(st.binary(max_size=20)),
            deflated=draw(st.booleans()),
            mode=draw(st.sampled_from([0o100644, 0o100755]) | modes),
        )
        if draw(st.booleans()):
            entry = replace(entry, flags=8, tail=descriptor(entry, signed=draw(st.booleans())))
        entries.append(entry)
    return raw_zip(draw(st.permutations([SKILL, *entries])))


Verdict = ExtractionPlan | tuple[str, str]


def _verdict(judge: Callable[[], ExtractionPlan]) -> Verdict:
    try:
        return judge()
    except ArchiveError as error:
        return error.code, error.message


def _hold(data: bytes) -> Verdict:
    """Look and unpack; nothing but what was planned may have been written, and no other bytes."""
    with TemporaryDirectory() as place:
        archive, into = Path(place, "x.zip"), Path(place, "into")
        into.mkdir()
        archive.write_bytes(data)
        verdict = _verdict(lambda: inspect_archive(archive))
        assert verdict == _verdict(lambda: extract_archive(archive, into))
        assert {path.name for path in Path(place).iterdir()} == {"into", "x.zip"}
        if not isinstance(verdict, ExtractionPlan):
            assert list(into.iterdir()) == []
            return verdict
        found = {path for path in into.rglob("*") if not path.is_dir()}
        assert found == {into / file.path for file in verdict.files}
        assert not any(path.is_symlink() for path in found)
        assert [(into / file.path).stat().st_size for file in verdict.files] == [
            file.size for file in verdict.files
        ]
        assert (into / "SKILL.md").read_bytes() == verdict.skill_md
        contents = sorted(path.read_bytes() for path in found)
    with zipfile.ZipFile(io.BytesIO(data)) as other:
        seen = sorted(other.read(info) for info in other.infolist() if not info.is_dir())
    # What another program reads, without the entries that we drop: they are the empty ones here.
    dropped = len(seen) - len(contents)
    assert seen == [b""] * dropped + contents
    return verdict


@given(damaged())
def test_damage_is_refused_or_harmless(data: bytes) -> None:
    verdict = _hold(data)
    assert isinstance(verdict, ExtractionPlan) or all(verdict)


@given(odd())
def test_odd_entries_are_refused_or_unpacked_as_planned(data: bytes) -> None:
    verdict = _hold(data)
    assert isinstance(verdict, ExtractionPlan) or verdict[0] != "zip_ambiguous"


@pytest.mark.parametrize("number", range(len(SOUND)))
def test_what_is_damaged_was_sound(number: int) -> None:
    assert isinstance(_hold(SOUND[number]), ExtractionPlan)
