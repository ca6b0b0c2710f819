"""Counts the disk operations of a process, and kills it or injects an error at one of them."""

import builtins
import errno
import io
import os
import signal
import sqlite3
import sys
from dataclasses import dataclass, field
from typing import Any, Literal

Fault = Literal["none", "kill", "ENOSPC", "EDQUOT", "EIO", "full"]
"""`full` is a disk on which nothing more can be put, from one moment on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Which operation meets which fault, and at which moment, from 1."""

    operation: str
    fault: Fault = "none"
    at: int = 0
    call: str = ""
    """The system call that is counted; without one, what Python tells is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an interrupted operation ended, and what is wrong afterwards."""

    ended: str
    """`done`, the error's code, or nothing if it was killed before."""
    seen: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()


_EVENTS = frozenset({
    "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate",
    "os.chmod", "os.utime",
})  # fmt: skip
_GROWS = frozenset({"open", "write", "os.mkdir", "os.link", "os.symlink", "sqlite"})
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_RENAMES = frozenset({"renameat2", "renamex_np"})
_CHANGING = ("INSERT", "DELETE", "UPDATE", "CREATE", "COMMIT", "DROP", "REPLACE")


@dataclass(slots=True)
class Points:
    """The moments of one process, in their order; from 1."""

    fault: Fault
    at: int
    is_armed: bool = False
    seen: list[str] = field(default_factory=list[str])

    def meet(self, kind: str) -> None:
        """Come to the next moment.

        Raises:
            OSError: If the disk refuses at this one.
        """
        if not self.is_armed:
            return
        self.seen.append(kind)
        number = len(self.seen)
        if self.fault == "full" and number >= self.at and kind in _GROWS:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if number != self.at or self.fault in {"none", "full"}:
            return
        if self.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        code: int = getattr(errno, self.fault)
        raise OSError(code, os.strerror(code))

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Audit hook of the interpreter."""
        if event == "open":
            if isinstance(arguments[2], int) and arguments[2] & _WRITING:
                self.meet("open")
        elif event in _EVENTS:
            self.meet(event)
        elif event == "ctypes.dlsym" and arguments[1] in _RENAMES:
            self.meet("rename")

    def install(self) -> None:
        """Install the hooks; they cannot be removed from this process."""
        sys.addaudithook(self.hook)
        self._wrap_calls()
        self._wrap_files()
        self._wrap_sqlite()

    def _wrap_calls(self) -> None:
        """Python tells nothing of these."""
        write, sync = os.write, os.fsync

        def counted_write(descriptor: int, data: bytes) -> int:
            self.meet("write")
            return write(descriptor, data)

        def counted_sync(descriptor: int) -> None:
            self.meet("fsync")
            sync(descriptor)

        os.write, os.fsync = counted_write, counted_sync

    def _wrap_files(self) -> None:
        plain, meet = io.open, self.meet

        class Counted(io.FileIO):
            def write(self, data: Any, /) -> int:
                meet("write")
                return super().write(data)

        def opened(file: Any, mode: str = "r", *rest: Any, **named: Any) -> Any:
            if "b" in mode and set(mode) & set("wxa+") and rest[:1] in {(), (-1,)}:
                return io.BufferedWriter(Counted(file, mode.replace("b", "")))
            return plain(file, mode, *rest, **named)

        io.open = builtins.open = opened

    def _wrap_sqlite(self) -> None:
        connect, meet = sqlite3.connect, self.meet

        def reached(statement: str) -> None:
            if statement.lstrip().upper().startswith(_CHANGING):
                try:
                    meet("sqlite")
                except OSError as error:
                    is_full = error.errno != errno.EIO
                    refused = sqlite3.OperationalError(
                        "database or disk is full" if is_full else "disk I/O error"
                    )
                    refused.sqlite_errorcode = (
                        sqlite3.SQLITE_FULL if is_full else sqlite3.SQLITE_IOERR
                    )
                    raise refused from None

        class Counted(sqlite3.Connection):
            def execute(self, statement: str, *rest: Any) -> sqlite3.Cursor:
                reached(statement)
                return super().execute(statement, *rest)

            def executemany(self, statement: str, *rest: Any) -> sqlite3.Cursor:
                reached(statement)
                return super().executemany(statement, *rest)

        def connected(*given: Any, **named: Any) -> sqlite3.Connection:
            return connect(*given, **{"factory": Counted, **named})

        sqlite3.connect = connected
