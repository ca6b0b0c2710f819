"""Shebang lines and suffixes: which interpreter a script asks for."""

import pytest

from apexbridge.skills.shebang import script_interpreter, shebang_requirements


@pytest.mark.parametrize(
    ("line", "suffix", "words"),
    [
        (b"#!/usr/bin/env python3", "", ["python3"]),
        (b"#!/usr/bin/env python3 -u", "", ["python3", "-u"]),
        (b"#!/usr/bin/env -S python3 -u", "", ["python3", "-u"]),
        (b"#!/usr/bin/env -Spython3 -u", "", ["python3", "-u"]),
        (b"#!/usr/bin/env -u HOME -S X=1 node", "", ["node"]),
        (b"#! /bin/bash\r\n", ".py", ["bash"]),
        (b"\xef\xbb\xbf#!/usr/bin/python3.12 -I\r\n", "", ["python3.12", "-I"]),
        (b"#!/usr/bin/env -S uv run --script", "", ["python"]),
        (b"#!/usr/bin/env -S uv run --quiet --script --python 3.12", "", ["python"]),
        (b"#!/usr/bin/env -S uv run --with=rich /opt/bin/python3 -u", "", ["python3", "-u"]),
        (b"#!/usr/bin/env -S uv run -- python -X utf8", "", ["python", "-X", "utf8"]),
        (b"#!/usr/bin/env -S pipx run", ".py", ["python"]),
        (b"#!/usr/bin/env -S uvx ruff", ".py", ["uvx", "ruff"]),
        (b"#!/usr/bin/env node", ".ts", ["typescript"]),
        (b"#!/usr/bin/env -S npx tsx", ".mts", ["typescript"]),
        (b"#!/usr/bin/env -S deno run --allow-net", ".ts", ["deno", "run", "--allow-net"]),
        (b"#!/usr/bin/env", "", [""]),
        (b"#!/usr/bin/env -S", ".py", [""]),
        (b"#!/bin/sh 'x", "", [""]),
        (b"#!/opt/odd$(id)", ".py", [""]),
        (b"import os", ".PY", ["python"]),
        (b"echo", ".bash", ["bash"]),
        (b"text", ".txt", [""]),
    ],
)
def test_the_shebang_then_the_suffix_names_the_interpreter(
    line: bytes, suffix: str, words: list[str]
) -> None:
    assert script_interpreter(line, suffix) == words


@pytest.mark.parametrize(
    ("line", "packages"),
    [
        (b"#!/usr/bin/env -S uv run --with rich,httpx>=0.2 --with=click --script", 3),
        (b"#!/usr/bin/env -S uv run --script", 0),
        (b"#!/usr/bin/env python3", 0),
        (b"import os", 0),
    ],
)
def test_packages_of_a_shebang(line: bytes, packages: int) -> None:
    assert len(shebang_requirements(line)) == packages
