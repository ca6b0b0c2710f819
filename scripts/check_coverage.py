"""Hold the measured coverage against the house's numbers: all of it, and each pure room."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

WHOLE = 92.0
PURE = (
    "wording/",
    "policy/",
    "errors.py",
    "events.py",
    "messages.py",
    "catalog/merge.py",
    "catalog/markup.py",
    "skills/document.py",
    "skills/edit.py",
    "skills/frontmatter.py",
    "skills/interpret.py",
    "skills/manifest.py",
    "skills/model.py",
    "skills/names.py",
    "skills/patterns.py",
    "skills/repair.py",
    "skills/validate.py",
)


def main() -> int:
    """Print what falls short; 1 if anything does."""
    report = Path("build/coverage.json")
    command = [sys.executable, "-m", "coverage", "json", "--quiet", "-o", str(report)]
    subprocess.run(command, check=True)
    measured: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    failures = list[str]()
    checked = 0
    for path, file in measured["files"].items():
        room = path.removeprefix("src/apexbridge/")
        # What lies elsewhere is a copy that a test made, such as the package in a zip.
        if room != path and room.startswith(PURE):
            checked += 1
            percent = file["summary"]["percent_covered"]
            missing = file["missing_lines"] or file.get("missing_branches")
            if percent < 100:
                failures.append(f"{room}: {percent:.1f} % of a pure room, missing {missing}")
    total = measured["totals"]["percent_covered"]
    if total < WHOLE:
        failures.append(f"all: {total:.1f} %, at least {WHOLE} % are needed")
    if checked < len(PURE):
        failures.append(f"only {checked} files of pure rooms were measured")
    print(f"coverage: {total:.1f} % over all, {checked} files of pure rooms", *failures, sep="\n  ")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
