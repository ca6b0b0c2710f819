"""Clock by which uninstalled skills expire: a jump of the system clock must not delete them.

Time counts while the data folder is in use. Where the clock is further ahead of the newest file
than a day, the difference is left out, for as long as the clock does not go back: it was wrong, or
nothing ran for that long, and then what can be restored is kept a little longer.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel

from apexbridge.errors import StateDamagedError
from apexbridge.state_files import StateFile

CLOCK_FILE = "clock.json"
_LARGEST_STEP = 86_400.0


class ClockFile(BaseModel):
    """Content of `clock.json`, which there is only after a jump."""

    jumped_at: float = 0.0
    """The time after the last jump."""
    skipped: float = 0.0
    """Seconds that do not count."""


class ExpiryClock:
    """The clock of a data folder. Methods block and raise StorageError."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._file = StateFile(data / CLOCK_FILE, ClockFile)

    def now(self) -> float:
        """Return seconds since the epoch, without those that the clock jumped ahead.

        They are 0, at which nothing has expired, if the file that has them is damaged.
        """
        now = time.time()
        newest = max((at for at in self._modified() if at <= now), default=now)
        try:
            known = self._file.read()
            if now < known.jumped_at or now - newest > _LARGEST_STEP:
                known = self._adjust(now, newest)
        except StateDamagedError:
            return 0.0
        return now - known.skipped

    def _adjust(self, now: float, newest: float) -> ClockFile:
        with self._file.change() as known:
            if now < known.jumped_at:  # it was put right
                known.jumped_at = known.skipped = 0.0
            if now - newest > _LARGEST_STEP:
                known.jumped_at, known.skipped = now, known.skipped + now - newest
        return known

    def _modified(self) -> Iterator[float]:
        with suppress(OSError):
            for path in self._data.iterdir():
                with suppress(OSError):
                    yield path.lstat().st_mtime
