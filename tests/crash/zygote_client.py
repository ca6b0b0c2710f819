"""Client of the fault injection zygote, and the choice of fault points."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.crash.fault_injection import Order, Outcome


@dataclass(frozen=True, slots=True)
class Asking:
    """Asks a zygote; it answers in order."""

    process: "subprocess.Popen[str]"

    def moments(self, operation: str, *, by_calls: bool = False) -> list[str]:
        """All moments of an operation at which the disk is changed."""
        return self._ask(Order(operation=operation, call="all" if by_calls else ""))

    def interrupt(self, order: Order) -> Outcome:
        """Let a fault be met at one moment."""
        return Outcome(**self._ask(order))

    def _ask(self, order: Order) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(asdict(order)) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"no answer to {order}"
        return json.loads(answer)


@contextmanager
def scratch(otherwise: Path) -> Generator[Path]:
    """A place in memory, where there is one: thousands of syncs need no disk to be counted."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield otherwise
        return
    with tempfile.TemporaryDirectory(prefix="crash-", dir=memory) as place:
        yield Path(place)


@contextmanager
def zygote(place: Path) -> Generator[Asking]:
    """Start one; it is not measured for coverage, which would take longer than the work."""
    keep = ("PATH", "HOME", "LANG")
    environment = {name: os.environ[name] for name in keep if name in os.environ}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.crash.zygote", str(place)],
        cwd=Path(__file__).parents[2],
        env={**environment, "PYTHONDONTWRITEBYTECODE": "1", "OPENBLAS_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as process:
        yield Asking(process)
        assert process.stdin is not None
        process.stdin.close()


def chosen(moments: Sequence[str], limit: int, *, with_end: bool) -> list[int]:
    """Those around the commit and the marker, the last, the first, and some between."""
    last = len(moments)
    renames = [n for n, seen in enumerate(moments, start=1) if seen == "os.rename"]
    commits = [n for n, seen in enumerate(moments, start=1) if seen == "rename"] or renames
    around = list(dict.fromkeys((*commits, *renames[-1:])))
    wanted = [last + 1] if with_end else []
    wanted += [*around, *(n + 1 for n in around), last, 1]
    wanted += [1 + round(number * (last - 1) / limit) for number in range(1, limit)]
    return sorted(list(dict.fromkeys(wanted))[:limit])
