"""Compare our verdicts on zips with those of a corpus: a folder with `accept` and `reject` in it.

The corpus that it was made for is `tests/unit/utils/zipdata` of the public repository
`pypi/warehouse`. Its verdicts are about headers, so they are compared with `check_container`;
beside it stands what unpacking says. Data descriptors are refused there and taken here, if they
fit the list of files.
"""

import sys
from pathlib import Path

from apexbridge.errors import ArchiveError
from apexbridge.lifecycle.zip.archive import DEFAULT_LIMITS, check_zip, read_entry
from apexbridge.lifecycle.zip.central_directory import read_entries
from apexbridge.lifecycle.zip.records import open_zip

_ON_PURPOSE = "data_descriptor"


def _headers(path: Path) -> str:
    try:
        check_zip(path)
    except ArchiveError as error:
        return f"{error.code}: {error.details['detail'] or error.message}"
    return ""


def _contents(path: Path) -> str:
    try:
        with open_zip(path, DEFAULT_LIMITS) as source:
            for entry in read_entries(source, DEFAULT_LIMITS):
                for _ in read_entry(source, entry):
                    pass
    except ArchiveError as error:
        return f"{error.code}: {error.details['detail']}"
    return ""


def main(corpus: Path) -> int:
    """Print every verdict; 1 if one differs that should not, or there are none."""
    agreed = differed = wanted = 0
    for expected in ("accept", "reject"):
        for path in sorted((corpus / expected).iterdir()):
            refusal = _headers(path)
            verdict = "reject" if refusal else "accept"
            if verdict == expected:
                agreed, note = agreed + 1, ""
            elif path.name.startswith(_ON_PURPOSE):
                wanted, note = wanted + 1, "differs on purpose"
            else:
                differed, note = differed + 1, "DIFFERS"
            inside = "" if refusal else _contents(path)
            told = refusal or (f"(unpacking: {inside})" if inside else "")
            print(f"{expected:7}{verdict:7}{path.name:40}{note:19}{told}")
    total = agreed + wanted + differed
    print(f"{agreed} of {total} agree, {wanted} differ on purpose, {differed} differ")
    return 1 if differed or not total else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
