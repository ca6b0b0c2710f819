"""The macOS seatbelt profile, checked as text only."""

import re
from pathlib import Path

import pytest

from apexbridge.sandbox.backends import SeatbeltSandbox, seatbelt_argv, seatbelt_profile
from apexbridge.sandbox.base import Access, ExecRequest

pytestmark = pytest.mark.anyio


def _forms(text: str) -> list[list[str]]:
    """The profile's expressions at the top, each as its words; fails where brackets do not pair."""
    forms, depth, start = list[list[str]](), 0, 0
    for position, letter in enumerate(text):
        if letter == "(":
            start = position if depth == 0 else start
            depth += 1
        elif letter == ")":
            depth -= 1
            assert depth >= 0
            if depth == 0:
                forms.append(re.findall(r'"[^"]*"|[^\s()]+', text[start : position + 1]))
    assert depth == 0
    return forms


async def test_everything_is_denied_first() -> None:
    forms = _forms(seatbelt_profile(1, 1))
    assert forms[:2] == [["version", "1"], ["deny", "default"]]
    assert all(form[0] == "allow" for form in forms[2:-1])


async def test_no_file_becomes_a_set_uid_program() -> None:
    assert _forms(seatbelt_profile(2, 1))[-1] == ["deny", "file-write-setugid"]


async def test_there_is_no_network_and_no_way_to_other_programs() -> None:
    granted = {word for form in _forms(seatbelt_profile(3, 2))[2:] for word in form[1:]}
    operations = {word for word in granted if not word.startswith('"')}
    for kind in ("network", "mach-", "ipc-", "iokit", "system-", "default", "appleevent"):
        assert not [word for word in operations if word.startswith(kind)], kind


async def test_only_named_folders_can_be_written() -> None:
    writing = [form for form in _forms(seatbelt_profile(2, 1)) if "file-write*" in form]
    assert writing == [["allow", "file-read*", "file-write*", "subpath", "param", '"WRITE_0"']]
    reading = [form for form in _forms(seatbelt_profile(0, 0)) if "file-read*" in form]
    named = {word for form in reading for word in form if word.startswith('"')}
    private = ('"/Users', '"/private/tmp', '"/Volumes')
    assert not [path for path in named if path.startswith(private)]


async def test_70_a_path_is_a_parameter_and_never_part_of_the_profile(tmp_path: Path) -> None:
    odd = tmp_path / 'x")) (allow default) ("'
    odd.mkdir()
    request = ExecRequest(
        argv=("true", "-D", "WRITE_0=/"),
        cwd=odd,
        access=Access(read=(odd, Path("/usr")), write=(odd,)),
    )
    words = seatbelt_argv(request)
    assert words[:3] == ["/usr/bin/sandbox-exec", "-p", seatbelt_profile(2, 1)]
    real = odd.resolve()
    given = (f"READ_0={real}", "READ_1=/usr", f"WRITE_0={real}")
    assert words[3:] == [*(word for path in given for word in ("-D", path)), "--"]


async def test_where_there_is_no_seatbelt_nothing_runs(tmp_path: Path) -> None:
    request = ExecRequest(argv=("true",), cwd=tmp_path, env={"PATH": "/usr/bin:/bin"})
    result = await SeatbeltSandbox().run(request)
    assert result.outcome != "ok"
    hosts = ExecRequest(argv=("true",), cwd=tmp_path, access=Access(hosts=("example.org",)))
    assert (await SeatbeltSandbox().run(hosts)).outcome == "not_started"
