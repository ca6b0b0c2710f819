"""Calculate, Now and Platform: small facts that a model would else make up."""

import os
import platform
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime

import anyio.to_thread
from pydantic import AliasChoices, Field

from apexbridge.errors import ApexBridgeError, ToolInputError
from apexbridge.policy.rules import PermissionRequest
from apexbridge.toolbox import arithmetic
from apexbridge.toolbox.arithmetic_functions import CalculationError
from apexbridge.toolbox.zones import find_zone
from apexbridge.tools.base import ToolContext, ToolResult, ToolSpec
from apexbridge.tools.capping import cap_text
from apexbridge.tools.typed import Arguments, TypedTool, schema_of

_CHINESE_DAYS = "一二三四五六日"


class CalculateArguments(Arguments):
    """What to work out."""

    expression: str = Field(
        validation_alias=AliasChoices("expression", "expr", "formula", "input", "query"),
        description="Such as '(1 + 2) * 3 ** 2 / 4', 'sqrt(2)', 'max(3, 5)' or '15% of 80'.",
        min_length=1,
    )


class CalculateTool(TypedTool[CalculateArguments]):
    """Works out arithmetic."""

    def __init__(self) -> None:
        description = (
            "Work out an arithmetic expression exactly: + - * / // % ** ( ) ! and functions such "
            "as sqrt, sin (radians), log(x, base), ln, round, min, max, mean, gcd. 50% is 0.5."
        )
        schema = schema_of(CalculateArguments)
        super().__init__(
            ToolSpec(
                name="Calculate", description=description, input_schema=schema, read_only=True
            ),
            CalculateArguments,
        )

    def asks(
        self, arguments: CalculateArguments, context: ToolContext
    ) -> Sequence[PermissionRequest]:
        """It touches nothing."""
        summary = f"Calculate {arguments.expression[:100]}"
        return (PermissionRequest(tool="Calculate", summary=summary, harmless=True),)

    async def act(self, arguments: CalculateArguments, context: ToolContext) -> ToolResult:
        """Work it out."""
        try:
            value = arithmetic.show(arithmetic.calculate(arguments.expression))
        except CalculationError as error:
            raise ToolInputError(str(error), name=self.spec.name) from None
        text = f"{arguments.expression.strip().rstrip('=').strip()} = {value}"
        return ToolResult(text=cap_text(text), data={"value": value})


class NowArguments(Arguments):
    """Which time."""

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
    """Tells the time."""

    def __init__(self, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._clock = clock
        schema = schema_of(NowArguments)
        description = "Tell the date, the time and the day of the week, in any time zone."
        super().__init__(
            ToolSpec(name="Now", description=description, input_schema=schema, read_only=True),
            NowArguments,
        )

    def asks(self, arguments: NowArguments, context: ToolContext) -> Sequence[PermissionRequest]:
        """It touches nothing."""
        return (PermissionRequest(tool="Now", summary="Tell the time", harmless=True),)

    async def act(self, arguments: NowArguments, context: ToolContext) -> ToolResult:
        """Tell it."""
        now = self._clock()
        if "\0" in arguments.format:
            raise ToolInputError("'format' holds NUL", name=self.spec.name)
        if arguments.timezone.strip():
            try:
                zone = await anyio.to_thread.run_sync(find_zone, arguments.timezone)
            except ValueError as error:
                raise ToolInputError(str(error), name=self.spec.name) from None
            now = now.astimezone(zone)
        else:
            now = now.astimezone()
        text = now.strftime(arguments.format) if arguments.format else _forms(now)
        return ToolResult(text=text, data={"iso": now.isoformat(timespec="seconds")})


def _forms(now: datetime) -> str:
    week = now.isocalendar()
    name = getattr(now.tzinfo, "key", None) or now.tzname()
    return "\n".join((
        now.isoformat(timespec="seconds"),
        f"{now:%A}, {now.day} {now:%B %Y}, {now:%H:%M:%S} ({name})",
        f"{now.year}年{now.month}月{now.day}日 星期{_CHINESE_DAYS[now.weekday()]} {now:%H:%M:%S}",
        f"Day {now:%j} of the year, ISO week {week.week} of {week.year}, "
        f"Unix time {int(now.timestamp())}",
    ))  # fmt: skip


class PlatformArguments(Arguments):
    """Nothing is needed."""


class PlatformTool(TypedTool[PlatformArguments]):
    """Tells what machine this is, without naming it or its user."""

    def __init__(self, isolation: Callable[[], Awaitable[str]]) -> None:
        self._isolation = isolation
        description = (
            "Tell the operating system, the processor, the Python version, how commands are "
            "isolated, and the folders that can be worked in."
        )
        schema = schema_of(PlatformArguments)
        super().__init__(
            ToolSpec(name="Platform", description=description, input_schema=schema, read_only=True),
            PlatformArguments,
        )

    def asks(
        self, arguments: PlatformArguments, context: ToolContext
    ) -> Sequence[PermissionRequest]:
        """It touches nothing."""
        return (PermissionRequest(tool="Platform", summary="Tell the platform", harmless=True),)

    async def act(self, arguments: PlatformArguments, context: ToolContext) -> ToolResult:
        """Tell it."""
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
            "writable": ", ".join(map(str, context.reach.write)) or "nothing",
            "readable": ", ".join(map(str, context.reach.read)) or "nothing more",
        }
        text = cap_text("\n".join(f"{name}: {fact}" for name, fact in facts.items()))
        return ToolResult(text=text, data=facts)
