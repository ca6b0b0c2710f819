"""The Now and Platform tools: time zones, time formats, platform facts."""

import platform
import zoneinfo
from datetime import UTC, datetime
from pathlib import Path

import pytest

from apexbridge.errors import SandboxUnavailableError, ToolInputError
from apexbridge.tools.builtin.system import CalculateTool, NowTool, PlatformTool, find_timezone
from tests.tools.tool_calls import context, use

pytestmark = pytest.mark.anyio


MOMENT = datetime(2026, 2, 28, 16, 30, 5, tzinfo=UTC)


async def test_now_returns_every_format(tmp_path: Path) -> None:
    now = NowTool(lambda: MOMENT)
    result = await use(now, context(tmp_path), {"timezone": "Asia/Shanghai"})
    assert result.text.splitlines() == [
        "2026-03-01T00:30:05+08:00",
        "Sunday, 1 March 2026, 00:30:05 (Asia/Shanghai)",
        "2026年3月1日 星期日 00:30:05",
        "Day 060 of the year, ISO week 9 of 2026, Unix time 1772296205",
    ]
    assert result.data["iso"] == "2026-03-01T00:30:05+08:00"
    shown = await use(now, context(tmp_path), {"tz": "UTC", "format": "%Y年%m月%d日 %H:%M"})
    assert shown.text == "2026年02月28日 16:30"


async def test_without_a_zone_it_is_this_machines(tmp_path: Path) -> None:
    result = await use(NowTool(), context(tmp_path), {})
    moment = datetime.fromisoformat(result.data["iso"])
    assert moment.utcoffset() == moment.astimezone().utcoffset()
    assert abs((datetime.now(UTC) - moment).total_seconds()) < 60


@pytest.mark.parametrize(
    ("name", "hours"),
    [
        ("Asia/Tokyo", 9), ("tokyo", 9), ("东京", 9), ("北京时间", 8), ("Beijing", 8),
        ("UTC", 0), ("z", 0), ("UTC+8", 8), ("+05:30", 5.5), ("gmt-3", -3), ("-0330", -3.5),
        ("Los Angeles", -8), ("america/new_york", -5), ("Asia/Kathmandu", 5.75),
    ],
)  # fmt: skip
def test_zones_have_many_names(name: str, hours: float) -> None:
    offset = MOMENT.astimezone(find_timezone(name)).utcoffset()
    assert offset is not None
    assert offset.total_seconds() == hours * 3_600


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"timezone": "Asia/Shanghia"}, "did you mean Asia/Shanghai"),
        ({"timezone": "../../etc/passwd"}, "no time zone"),
        ({"timezone": "\0"}, "no time zone"),
        ({"timezone": "UTC+25"}, "25 hours away"),
        ({"timezone": "x" * 200}, "at most 100"),
        ({"format": "x" * 200}, "at most 100"),
        ({"format": "a\0b"}, "holds NUL"),
        ({"zone_name": "UTC"}, "is no argument"),
    ],
)
async def test_an_unknown_zone_or_form_is_reported(
    tmp_path: Path, arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(ToolInputError, match=message):
        await use(NowTool(), context(tmp_path), arguments)


@pytest.mark.filterwarnings("ignore::EncodingWarning")  # the standard library's own reading
def test_every_zone_there_is_can_be_found() -> None:
    for name in zoneinfo.available_timezones():
        assert find_timezone(name)


async def test_the_platform_is_reported_without_names(tmp_path: Path) -> None:
    async def isolation() -> str:
        return "bubblewrap"

    result = await use(PlatformTool(isolation), context(tmp_path, read=(Path("/opt/skill"),)), {})
    assert f"system: {platform.system()}" in result.text
    assert "sandbox: bubblewrap" in result.text
    assert f"writable: {tmp_path}" in result.text
    assert "readable: /opt/skill" in result.text
    assert platform.node() not in result.data.values()


async def test_a_platform_without_a_sandbox_is_reported(tmp_path: Path) -> None:
    async def none() -> str:
        raise SandboxUnavailableError("nothing isolates")

    result = await use(PlatformTool(none), context(tmp_path), {})
    assert "nothing isolates" in result.data["sandbox"]


async def test_none_of_them_needs_a_question(tmp_path: Path) -> None:
    async def isolation() -> str:
        return "x"

    for made, arguments in (
        (CalculateTool(), {"expression": "1"}),
        (NowTool(), {}),
        (PlatformTool(isolation), {}),
    ):
        (asked,) = made.permissions(arguments, context(tmp_path))
        assert (asked.tool, asked.harmless) == (made.spec.name, True)
