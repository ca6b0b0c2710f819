"""Write the numbers of the lines of well-known skills, by which changed copies are found.

A text of our own goes in with them, for the tests to copy.

    python -m scripts.fingerprint_published FOLDER … [--out FILE]
"""

import argparse
import base64
import json
from array import array
from pathlib import Path, PurePosixPath

from apexbridge.vetting import published
from apexbridge.vetting.material import SKILL_MD, File
from apexbridge.vetting.view import view_of

ENDS = frozenset({".md", ".txt", ".py", ".sh", ".js", ".ts"})
SAMPLE = Path(__file__).parents[1] / "tests" / "vetting" / "well_known.md"
OUT = Path(published.__file__).with_name(published.DATA)


def main() -> None:
    """Read every document under some folders, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    found = set[int]()
    paths = [path for folder in arguments.folders for path in folder.rglob("*")]
    texts = (path for path in paths if path.is_file() and path.suffix in ENDS)
    for path in [SAMPLE, *sorted(texts)]:
        name = PurePosixPath(SKILL_MD if path.name == SKILL_MD else path.name)
        data = path.read_bytes() + b"\n"
        view = view_of(File(path=name, data=data), data)
        if view is not None:
            found.update(number for _, number in published.numbers(view))
    lines = base64.b64encode(array("I", sorted(found)).tobytes()).decode()
    arguments.out.write_text(json.dumps({"lines": lines}) + "\n", "utf-8")
    print(f"{len(found)} lines")


if __name__ == "__main__":
    main()
