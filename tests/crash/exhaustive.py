"""Every operation, interrupted at every system call that changes the disk: `make crash`."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from typing import get_args

from tests.crash.fault_injection import Fault, Order, Outcome
from tests.crash.operations import OPERATIONS
from tests.crash.zygote_client import Asking, zygote

NEVER = 65_535
"""No operation has so many calls of a kind, and strace counts no further."""
FAULTS: tuple[Fault, ...] = ("kill", "ENOSPC", "EDQUOT", "EIO")


def main() -> int:
    """Try them all and tell; 1 if anything is wrong afterwards, 2 if it cannot be tried."""
    chosen = _arguments()
    if reason := _why_not():
        print(f"No system call can be interrupted: {reason}", file=sys.stderr)  # noqa: T201
        return 2
    if chosen.only_look:
        return 0
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=chosen.place)))
        free = SimpleQueue[Asking]()
        for number in range(chosen.jobs):
            free.put(stack.enter_context(zygote(place / str(number))))
        pool = stack.enter_context(ThreadPoolExecutor(chosen.jobs))
        count = sum(_try_all(o, chosen, free, pool) for o in chosen.operations)
    print(f"violations in all: {count}")  # noqa: T201
    return 1 if count else 0


def _why_not() -> str:
    """Why strace cannot be used here; empty if it can."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    command = ["strace", "-qq", "-o", os.devnull, "-e", "inject=write:error=EIO:when=65535", "true"]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8").stderr.strip()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", nargs="+", choices=OPERATIONS, default=list(OPERATIONS))
    parser.add_argument("--faults", nargs="+", choices=get_args(Fault), default=list(FAULTS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--every", type=int, default=1, help="try every n-th moment only")
    parser.add_argument("--only-look", action="store_true", help="say whether it can be tried")
    parser.add_argument("--place", type=Path, help="where the folders are made")
    return parser.parse_args()


def _try_all(
    operation: str,
    chosen: argparse.Namespace,
    free: "SimpleQueue[Asking]",
    pool: ThreadPoolExecutor,
) -> int:
    """One operation with each fault at each moment; how many of them left something wrong."""
    asking = free.get()
    moments = asking.moments(operation, by_calls=True)
    free.put(asking)
    kinds = Counter(moment.split()[0] for moment in moments)
    reported = ", ".join(f"{call} {count}" for call, count in kinds.most_common())
    print(f"{operation}: {len(moments)} calls change the disk ({reported})", flush=True)  # noqa: T201

    def attempt(order: Order) -> Outcome:
        asking = free.get()
        try:
            return asking.interrupt(order)
        finally:
            free.put(asking)

    violations = 0
    for fault in chosen.faults:
        begun = time.monotonic()
        orders = list(_orders(operation, fault, moments))[:: chosen.every]
        bad, ignored = 0, Counter[str]()
        for order, outcome in zip(orders, pool.map(attempt, orders), strict=True):
            bad += bool(outcome.wrong)
            if outcome.ended == "done" and not outcome.wrong:
                ignored[order.call] += 1
            for line in outcome.wrong:
                print(f"  {fault} at {order.call} {order.at}: {line}", flush=True)  # noqa: T201
        seconds = time.monotonic() - begun
        reported = ", ".join(f"{call} {count}" for call, count in ignored.most_common())
        print(  # noqa: T201
            f"{operation:10} {fault:7} points {len(orders):4}  violations {bad:3}  {seconds:3.0f} s"
            f"  done all the same: {reported or '-'}",
            flush=True,
        )
        violations += bad
    return violations


def _orders(operation: str, fault: Fault, moments: list[str]) -> Iterator[Order]:
    for moment in moments:
        call, number = moment.split()
        yield Order(operation=operation, fault=fault, call=call, at=int(number))
    if fault == "kill":  # never met: killed right after it was reported done
        yield Order(operation=operation, fault=fault, call="rename", at=NEVER)


if __name__ == "__main__":
    sys.exit(main())
