"""Calculate, Now and Platform tools: facts that a model would otherwise hallucinate."""

import difflib
import functools
import os
import platform
import re
import sys
import warnings
import zoneinfo
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo

import anyio.to_thread
from pydantic import AliasChoices, Field

from apexbridge.errors import ApexBridgeError, ToolInputError
from apexbridge.permissions.rules import PermissionRequest
from apexbridge.tools.base import ToolContext, ToolResult
from apexbridge.tools.builtin import calculator
from apexbridge.tools.builtin.math_notation import CalculationError
from apexbridge.tools.truncation import truncate_text
from apexbridge.tools.typed import Arguments, TypedTool

_OFFSET = re.compile(r"(?:UTC|GMT)?\s*([+-])(\d{1,2})(?::?([0-5]\d))?", re.IGNORECASE)
_CITY_ZONES = {
    "北京": "Asia/Shanghai", "上海": "Asia/Shanghai", "中国": "Asia/Shanghai",
    "beijing": "Asia/Shanghai", "china": "Asia/Shanghai", "香港": "Asia/Hong_Kong",
    "台北": "Asia/Taipei", "东京": "Asia/Tokyo", "日本": "Asia/Tokyo", "首尔": "Asia/Seoul",
    "新加坡": "Asia/Singapore", "伦敦": "Europe/London", "巴黎": "Europe/Paris",
    "柏林": "Europe/Berlin", "莫斯科": "Europe/Moscow", "纽约": "America/New_York",
    "洛杉矶": "America/Los_Angeles", "芝加哥": "America/Chicago", "悉尼": "Australia/Sydney",
    "z": "UTC", "zulu": "UTC",
}  # fmt: skip
_MAX_CHARS = 64


def find_timezone(name: str) -> tzinfo:
    """Find a time zone by its IANA name, a city, or a UTC offset such as +08:00.

    Raises:
        ValueError: If there is none; it says which come near.
    """
    wanted = name.strip().removesuffix("时间").strip()
    offset = _OFFSET.fullmatch(wanted)
    if offset:
        hours, minutes = int(offset[2]), int(offset[3] or 0)
        if hours > 14:
            raise ValueError(f"no time zone is {hours} hours away")
        ahead = timedelta(hours=hours, minutes=minutes)
        return timezone(ahead if offset[1] == "+" else -ahead)
    key = wanted.replace(" ", "_").casefold()
    known = _CITY_ZONES.get(key) or _zones_by_name().get(key)
    if known:
        return zoneinfo.ZoneInfo(known)
    near = difflib.get_close_matches(key[:_MAX_CHARS], _zones_by_name(), n=3)
    names = ", ".join(_zones_by_name()[match] for match in near)
    hint = f"did you mean {names}?" if near else "give an IANA name such as Asia/Shanghai"
    raise ValueError(f"there is no time zone {wanted[:_MAX_CHARS]!r}; {hint}")


@functools.cache
def _zones_by_name() -> dict[str, str]:
    """Map case-folded IANA names and cities to IANA names; a full name wins over a city."""
    with warnings.catch_warnings():
        # The standard library reads the list of names without saying how it is encoded.
        warnings.simplefilter("ignore", EncodingWarning)
        names = sorted(zoneinfo.available_timezones())
    cities = {name.rpartition("/")[2].casefold(): name for name in reversed(names)}
    return cities | {name.casefold(): name for name in names}


_CHINESE_WEEKDAYS = "一二三四五六日"


class CalculateArguments(Arguments):
    """Arguments of Calculate."""

    expression: str = Field(
        validation_alias=AliasChoices("expression", "expr", "formula", "input", "query"),
        description="Such as '(1 + 2) * 3 ** 2 / 4', 'sqrt(2)', 'max(3, 5)' or '15% of 80'.",
        min_length=1,
    )


class CalculateTool(TypedTool[CalculateArguments]):
    """Evaluate arithmetic."""

    def __init__(self) -> None:
        description = (
            "Work out an arithmetic expression exactly: + - * / // % ** ( ) ! and functions such "
            "as sqrt, sin (radians), log(x, base), ln, round, min, max, mean, gcd. 50% is 0.5."
        )
        super().__init__("Calculate", description, CalculateArguments, read_only=True)

    def required_permissions(
        self, arguments: CalculateArguments, context: ToolContext
    ) -> Sequence[PermissionRequest]:
        """Request nothing that needs approval."""
        summary = f"Calculate {arguments.expression[:100]}"
        return (PermissionRequest(tool="Calculate", summary=summary, harmless=True),)

    async def run(self, arguments: CalculateArguments, context: ToolContext) -> ToolResult:
        """Evaluate the expression."""
        try:
            value = calculator.format_number(calculator.calculate(arguments.expression))
        except CalculationError as error:
            raise ToolInputError(str(error), name=self.spec.name) from None
        text = f"{arguments.expression.strip().rstrip('=').strip()} = {value}"
        return ToolResult(text=truncate_text(text), data={"value": value})


class NowArguments(Arguments):
    """Arguments of Now."""

    timezone: str = Field(
        default="",
        validation_alias=AliasChoices("timezone", "time_zone", "tz", "zone"),
        description="An IANA name, a city or an offset; this machine's own if empty.",
        max_length=100,
    )
    format: str = Field(
        default="",
        validation_alias=AliasChoices("format", "fmt"),
        description="A pattern such as '%Y-%m-%d %H:%M'; all forms if empty.",
        max_length=100,
    )


class NowTool(TypedTool[NowArguments]):
    """Return the current date and time."""

    def __init__(self, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._clock = clock
        description = "Tell the date, the time and the day of the week, in any time zone."
        super().__init__("Now", description, NowArguments, read_only=True)

    def required_permissions(
        self, arguments: NowArguments, context: ToolContext
    ) -> Sequence[PermissionRequest]:
        """Request nothing that needs approval."""
        return (PermissionRequest(tool="Now", summary="Tell the time", harmless=True),)

    async def run(self, arguments: NowArguments, context: ToolContext) -> ToolResult:
        """Format the current time."""
        now = self._clock()
        if "\0" in arguments.format:
            raise ToolInputError("'format' holds NUL", name=self.spec.name)
        if arguments.timezone.strip():
            try:
                zone = await anyio.to_thread.run_sync(find_timezone, arguments.timezone)
            except ValueError as error:
                raise ToolInputError(str(error), name=self.spec.name) from None
            now = now.astimezone(zone)
        else:
            now = now.astimezone()
        text = now.strftime(arguments.format) if arguments.format else _time_formats(now)
        return ToolResult(text=text, data={"iso": now.isoformat(timespec="seconds")})


def _time_formats(now: datetime) -> str:
    week = now.isocalendar()
    name = getattr(now.tzinfo, "key", None) or now.tzname()
    return "\n".join((
        now.isoformat(timespec="seconds"),
        f"{now:%A}, {now.day} {now:%B %Y}, {now:%H:%M:%S} ({name})",
        f"{now.year}年{now.month}月{now.day}日 "
        f"星期{_CHINESE_WEEKDAYS[now.weekday()]} {now:%H:%M:%S}",
        f"Day {now:%j} of the year, ISO week {week.week} of {week.year}, "
        f"Unix time {int(now.timestamp())}",
    ))  # fmt: skip


class PlatformArguments(Arguments):
    """Arguments of Platform (none)."""


class PlatformTool(TypedTool[PlatformArguments]):
    """Describe the platform, without the host name or the user's name."""

    def __init__(self, isolation: Callable[[], Awaitable[str]]) -> None:
        self._isolation = isolation
        description = (
            "Tell the operating system, the processor, the Python version, how commands are "
            "isolated, and the folders that can be worked in."
        )
        super().__init__("Platform", description, PlatformArguments, read_only=True)

    def required_permissions(
        self, arguments: PlatformArguments, context: ToolContext
    ) -> Sequence[PermissionRequest]:
        """Request nothing that needs approval."""
        return (PermissionRequest(tool="Platform", summary="Tell the platform", harmless=True),)

    async def run(self, arguments: PlatformArguments, context: ToolContext) -> ToolResult:
        """Describe the platform."""
        try:
            isolation = await self._isolation()
        except ApexBridgeError as error:
            isolation = f"none ({error.message})"
        facts = {
            "system": f"{platform.system()} {platform.release()}",
            "processor": platform.machine(),
            "cpus": str(os.cpu_count() or 1),
            "python": f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}",
            "sandbox": isolation,
            "working folder": str(context.cwd),
            "writable": ", ".join(map(str, context.scope.write)) or "nothing",
            "readable": ", ".join(map(str, context.scope.read)) or "nothing more",
        }
        text = truncate_text("\n".join(f"{name}: {fact}" for name, fact in facts.items()))
        return ToolResult(text=text, data=facts)
