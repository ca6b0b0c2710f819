"""Check branch coverage: a floor for everything, 100 % for modules without side effects."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

MINIMUM = 92.0
PURE = (
    "locales/",
    "permissions/",
    "errors.py",
    "events.py",
    "messages.py",
    "path_patterns.py",
    "catalog/prompt_formats.py",
    "catalog/snapshot.py",
    "skills/document.py",
    "skills/editor.py",
    "skills/frontmatter.py",
    "skills/model.py",
    "skills/names.py",
    "skills/parser.py",
    "skills/validator.py",
)


def main() -> int:
    """Print every shortfall; 1 if there is one."""
    report = Path("build/coverage.json")
    command = [sys.executable, "-m", "coverage", "json", "--quiet", "-o", str(report)]
    subprocess.run(command, check=True)
    measured: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    failures, seen = list[str](), set[str]()
    for path, file in measured["files"].items():
        module = path.removeprefix("src/apexbridge/")
        # A path elsewhere is a copy that a test made, such as the package in a zip file.
        if module != path and module.startswith(PURE):
            seen |= {prefix for prefix in PURE if module.startswith(prefix)}
            percent = file["summary"]["percent_covered"]
            missing = file["missing_lines"] or file.get("missing_branches")
            if percent < 100:
                failures.append(f"{module}: {percent:.1f} % of a pure module, missing {missing}")
    total = measured["totals"]["percent_covered"]
    if total < MINIMUM:
        failures.append(f"total: {total:.1f} %, at least {MINIMUM} % are needed")
    failures += [f"{prefix}: not measured" for prefix in PURE if prefix not in seen]
    print(f"coverage: {total:.1f} % in total", *failures, sep="\n  ")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
