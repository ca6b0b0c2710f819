"""Behavior of scripts is compared with what the documents of a skill mention."""

from pathlib import PurePosixPath

import pytest

from apexbridge.scanner.report import Finding
from apexbridge.scanner.scan import scan_skill
from apexbridge.scanner.scan_input import ScannedFile, ScanTarget
from tests.scanner.examples import skill

RECORD = 'import sys\n\nwith open("seen.jsonl", "a") as record:\n    record.write(sys.argv[1])\n'


def undocumented(body: str, source: str, path: str = "scripts/draw.py") -> list[Finding]:
    program = ScannedFile(path=PurePosixPath(path), data=source.encode())
    target = ScanTarget(folder="table-tool", files=(*skill(body).files, program))
    found = scan_skill(target).findings
    return [f for f in found if f.rule == "AB064" and f.level == "warn"]


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (RECORD, 3),
        ('from pathlib import Path\n\n(Path.home() / ".state_of_it").write_text("1")\n', 3),
        ('from pathlib import Path\n\nNAME = "calls.jsonl"\nPath(NAME).open("a").write("1")\n', 4),
        ('import requests\n\nprint(requests.get("https://charts.invalid/x").text)\n', 3),
        ('import os\n\nprint(os.environ["CHART_TOKEN"])\n', 3),
        ('import base64\n\nprint(base64.b64decode("Y2hhcnQ="))\n', 3),
        ("import socket\n\nprint(socket.gethostname())\n", 3),
        ('import os\n\nos.chmod("chart.png", 0o777)\n', 3),
        ("import os, sys\n\nos.remove(sys.argv[1])\n", 3),
    ],
    ids=[
        "record",
        "hidden",
        "followed",
        "network",
        "environment",
        "decoding",
        "machine",
        "rights",
        "removal",
    ],
)
def test_undocumented_behavior_is_found(source: str, line: int) -> None:
    assert [finding.line for finding in undocumented("Draws a chart.\n", source)] == [line]


@pytest.mark.parametrize(
    ("body", "source"),
    [
        ("Keeps a list in `seen.jsonl`.\n", RECORD),
        ("Asks the server at https://charts.invalid.\n", "import httpx\nhttpx.get('x')\n"),
        ("Set the environment variable CHART_STYLE.\n", "import os\nprint(os.environ['X'])\n"),
        ("Draws a chart.\n", 'open("chart.csv", "w").write("1")\n'),
        ("Draws and removes the table.\n", "import os, sys\nos.remove(sys.argv[1])\n"),
        ("Draws a chart.\n", "import os\nprint(os.environ.get('CHART_FOLDER', '.'))\n"),
        ("Draws a chart.\n", 'open("charts/.drawn", "w").write("1")\n'),
        ("Draws a chart.\n", 'open(f"{name}.test.tsx", "w").write(text)\n'),
        ("Draws a chart.\n", 'path.with_suffix(".partial").write_text("1")\n'),
        ("Draws a chart.\n", 'open("~/.chart.lock", "a").write("1")\n'),
        ("Draws a chart.\n", 'open("~/.table-tool/.table-tool", "w").write("1")\n'),
    ],
    ids=[
        "named",
        "network",
        "environment",
        "ordinary",
        "removal",
        "setting",
        "marker",
        "name with a suffix",
        "suffix",
        "lock",
        "folder of the skill",
    ],
)
def test_documented_or_ordinary_behavior_is_not_reported(body: str, source: str) -> None:
    assert not undocumented(body, source)


def test_a_command_line_argument_documents_the_file() -> None:
    arguments = 'import argparse\n\np = argparse.ArgumentParser()\np.add_argument("seen.jsonl")\n'
    source = arguments + RECORD
    assert not undocumented("Draws a chart.\n", source)


def test_test_files_are_not_checked() -> None:
    assert not undocumented("Draws a chart.\n", RECORD, "tests/test_draw.py")


def test_a_script_without_documents_is_not_checked() -> None:
    assert not undocumented("", "def broken(:\n")


def test_circular_variable_references_terminate() -> None:
    source = 'a = b + "x.jsonl"\nb = a\nopen(a, "a").write("1")\n'
    assert [finding.line for finding in undocumented("Draws a chart.\n", source)] == [3]
