"""Time zones by the names people use: IANA names, cities, offsets. Pure but for the zone files."""

import difflib
import functools
import re
import warnings
import zoneinfo
from datetime import timedelta, timezone, tzinfo

_OFFSET = re.compile(r"(?:UTC|GMT)?\s*([+-])(\d{1,2})(?::?([0-5]\d))?", re.IGNORECASE)
_CITIES = {
    "北京": "Asia/Shanghai", "上海": "Asia/Shanghai", "中国": "Asia/Shanghai",
    "beijing": "Asia/Shanghai", "china": "Asia/Shanghai", "香港": "Asia/Hong_Kong",
    "台北": "Asia/Taipei", "东京": "Asia/Tokyo", "日本": "Asia/Tokyo", "首尔": "Asia/Seoul",
    "新加坡": "Asia/Singapore", "伦敦": "Europe/London", "巴黎": "Europe/Paris",
    "柏林": "Europe/Berlin", "莫斯科": "Europe/Moscow", "纽约": "America/New_York",
    "洛杉矶": "America/Los_Angeles", "芝加哥": "America/Chicago", "悉尼": "Australia/Sydney",
    "z": "UTC", "zulu": "UTC",
}  # fmt: skip
_MAX_CHARS = 64


def find_zone(name: str) -> tzinfo:
    """Find a zone by its IANA name, a city, or an offset such as +08:00.

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
    known = _CITIES.get(key) or _by_name().get(key)
    if known:
        return zoneinfo.ZoneInfo(known)
    near = difflib.get_close_matches(key[:_MAX_CHARS], _by_name(), n=3)
    names = ", ".join(_by_name()[match] for match in near)
    hint = f"did you mean {names}?" if near else "give an IANA name such as Asia/Shanghai"
    raise ValueError(f"there is no time zone {wanted[:_MAX_CHARS]!r}; {hint}")


@functools.cache
def _by_name() -> dict[str, str]:
    """Every zone by its name and by its city, in small letters; a whole name goes first."""
    with warnings.catch_warnings():
        # The standard library reads the list of names without saying how it is encoded.
        warnings.simplefilter("ignore", EncodingWarning)
        names = sorted(zoneinfo.available_timezones())
    cities = {name.rpartition("/")[2].casefold(): name for name in reversed(names)}
    return cities | {name.casefold(): name for name in names}
