"""Startup time of the command line, as a ratio to starting Python."""

import subprocess
import sys
from pathlib import Path

from benchmarks.interleaved import measure

ROUNDS = 40


def main() -> None:
    """Print the table."""
    program = str(Path(sys.executable).with_name("apexbridge"))
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "apexbridge --help": [program, "--help"],
        "apexbridge ls": [program, "ls"],
    }

    def run(command: list[str]) -> None:
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)

    times = measure({name: lambda c=c: run(c) for name, c in commands.items()}, ROUNDS)
    base = times["python -c pass"]
    print(f"\nStarting, {ROUNDS} interleaved rounds (goal for --help: at most 8 times)")
    print(f"{'':22}{'min ms':>9}{'median ms':>11}{'min ratio':>11}{'median ratio':>14}")
    for name, (least, median) in times.items():
        ratios = f"{least / base[0]:>11.2f}{median / base[1]:>14.2f}"
        print(f"{name:22}{least * 1e3:>9.1f}{median * 1e3:>11.1f}{ratios}")
