"""Packages of a skill: declarations, guesses, and what is refused. Nothing is run or fetched."""

from pathlib import Path

import pytest

from apexbridge.environments.declarations import skill_needs
from apexbridge.environments.needs import MAX_PACKAGES, SkillNeeds
from apexbridge.environments.system_commands import system_commands
from apexbridge.testing import make_skill
from tests.deadline import within


def _needs(place: Path, **files: str) -> SkillNeeds:
    named = {name.replace("__", "/").replace("_", "."): text for name, text in files.items()}
    return skill_needs(make_skill(place, "tool", files=named))


def _texts(needs: SkillNeeds) -> set[tuple[str, str]]:
    return {(one.text, one.certainty) for one in needs.packages}


def test_packages_are_read_from_every_usual_declaration(tmp_path: Path) -> None:
    inline = (
        "#!/usr/bin/env -S uv run --with rich\n"
        "# /// script\n# dependencies = ['Requests>=2']\n# ///\n"
    )
    needs = _needs(
        tmp_path,
        scripts__main_py=inline,
        requirements_txt="PyYAML==6.0.2 --hash=sha256:00  # parser\n\n-r more.txt\n",
        more_txt="lxml[html5]>=5; python_version >= '3.8'\n",
        scripts__requirements_txt="pillow\n",
        pyproject_toml="[project]\nname = 'x'\ndependencies = ['numpy<3']\n",
        package_json='{"dependencies": {"marked": "^9.1", "@scope/tool": "1.x || 2.x"}}',
    )
    assert _texts(needs) == {
        (text, "declared")
        for text in (
            "rich", "requests>=2", "pyyaml==6.0.2", 'lxml[html5]>=5; python_version >= "3.8"',
            "pillow", "numpy<3", "marked@^9.1", "@scope/tool@1.x || 2.x",
        )
    }  # fmt: skip
    assert needs.refused == ()


def test_a_file_for_tests_or_development_declares_nothing(tmp_path: Path) -> None:
    needs = _needs(
        tmp_path, **{"requirements-dev_txt": "pytest\n", "requirements-test_txt": "tox\n"}
    )
    assert needs == SkillNeeds()


def test_imports_are_a_guess_where_nothing_is_declared(tmp_path: Path) -> None:
    source = """
import os, json, cv2
import helper
from PIL import Image
from yaml import safe_load
from google.cloud import storage
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import never
try:
    import tqdm
except ImportError:
    tqdm = None
try:
    import bs4
except ImportError:
    print("pip install beautifulsoup4")
    sys.exit(1)
try:
    import tomllib
except ModuleNotFoundError:
    import tomli
"""
    needs = _needs(tmp_path, scripts__main_py=source, scripts__helper_py="import sklearn\n")
    assert _texts(needs) == {
        ("opencv-python-headless", "guess"), ("pillow", "guess"), ("pyyaml", "guess"),
        ("google-cloud-storage", "guess"), ("beautifulsoup4", "guess"), ("scikit-learn", "guess"),
        ("tqdm", "optional"), ("tomli", "optional"),
    }  # fmt: skip
    assert "tqdm" not in needs.texts("python")


def test_a_declared_provider_of_a_module_leaves_no_guess(tmp_path: Path) -> None:
    inline = "# /// script\n# dependencies = ['opencv-contrib-python']\n# ///\nimport cv2\n"
    needs = _needs(tmp_path, scripts__a_py=inline, scripts__b_py="import cv2\n")
    assert _texts(needs) == {("opencv-contrib-python", "declared")}


def test_a_module_elsewhere_in_the_skill_does_not_hide_a_package_of_its_name(
    tmp_path: Path,
) -> None:
    needs = _needs(
        tmp_path,
        scripts__build_py="import pptx, helpers, shared, common.text\n",
        scripts__helpers_py="import docx\n",
        scripts__docx_py="",
        shared_py="",
        ooxml__validation__pptx_py="",
        vendor__lib__common__text_py="",
    )
    assert _texts(needs) == {("python-pptx", "guess")}


def test_imports_of_javascript_are_a_guess(tmp_path: Path) -> None:
    source = (
        "import fs from 'node:fs';\nimport {x} from '@a/b/c';\nconst y = require('left-pad');\n"
    )
    local = "import './near.js';\nimport path from 'path';\nimport type { T } from 'typed';\n"
    needs = _needs(tmp_path, scripts__main_mjs=source + local)
    assert _texts(needs) == {("@a/b@*", "guess"), ("left-pad@*", "guess")}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("evil @ https://example.org/evil.whl", "url"),
        ("git+https://example.org/evil.git", "url"),
        ("https://example.org/evil.tar.gz", "url"),
        ("-e .", "option"),
        ("--index-url https://example.org/simple", "option"),
        ("--extra-index-url https://example.org/simple", "option"),
        ("--find-links /tmp", "option"),
        ("--trusted-host example.org", "option"),
        ("-r ../../secrets.txt", "path"),
        ("-r /etc/passwd", "path"),
        ("./local", "path"),
        ("/tmp/evil.whl", "path"),
        ("evil --index-url https://example.org/simple", "url"),
        ("requests; python_version > '${SECRET}'", "invalid"),
        ("a" * 400, "invalid"),
    ],
)
def test_only_names_reach_the_resolver(tmp_path: Path, line: str, reason: str) -> None:
    needs = _needs(tmp_path, requirements_txt=f"{line}\nrich\n")
    assert [one.text for one in needs.packages] == ["rich"]
    assert [one.reason for one in needs.refused] == [reason]


@pytest.mark.parametrize(
    "quoted", ['"rich\\n--index-url https://e.org"', '"rich --index-url=https://e.org"']
)
def test_an_option_is_not_smuggled_in_inline_metadata(tmp_path: Path, quoted: str) -> None:
    needs = _needs(tmp_path, scripts__main_py=f"# /// script\n# dependencies = [{quoted}]\n# ///\n")
    assert needs.packages == ()
    assert len(needs.refused) == 1


@pytest.mark.parametrize(
    "version",
    ["git+ssh://git@example.org/x.git", "https://example.org/x.tgz", "file:../x", "user/repo",
     "npm:other@1", "link:../x", "workspace:*"],
)  # fmt: skip
def test_npm_packages_have_names_and_versions_only(tmp_path: Path, version: str) -> None:
    needs = _needs(tmp_path, package_json=f'{{"dependencies": {{"x": "{version}"}}}}')
    assert needs.packages == ()
    assert len(needs.refused) == 1


def test_a_million_entries_cost_nothing_and_are_refused(tmp_path: Path) -> None:
    entries = ", ".join(f"'p{number}'" for number in range(1_000_000))
    needs = _needs(
        tmp_path,
        scripts__main_py=f"# /// script\n# dependencies = [{entries}]\n# ///\n",
        requirements_txt="\n".join(f"p{number}" for number in range(20_000)),
    )
    assert len(needs.packages) <= MAX_PACKAGES
    assert "too_many" in {one.reason for one in needs.refused}


@pytest.mark.parametrize(
    "files",
    [
        {"scripts__main_py": "# /// script\n# dependencies = [[\n# ///\n"},
        {"pyproject_toml": "[[["},
        {"package_json": "{"},
        {"package_json": "[" * 100_000},
        {"scripts__main_py": "(" * 100_000},
        {"scripts__main_py": "def broken(:\n"},
        {"requirements_txt": "-r requirements.txt\n"},
        {"package_json": '{"dependencies": [1]}', "pyproject_toml": "project = 1"},
    ],
)
def test_what_cannot_be_read_is_no_crash(tmp_path: Path, files: dict[str, str]) -> None:
    assert _needs(tmp_path, **files).packages == ()


def test_system_commands_are_found_in_scripts_and_declarations(tmp_path: Path) -> None:
    root = make_skill(
        tmp_path,
        "tool",
        files={
            "scripts/a.py": "import subprocess\nsubprocess.run(['soffice', '--headless'])\n"
            "subprocess.run('pandoc x.md', shell=True)\nimport pytesseract\n",
            "scripts/b.sh": "if command -v ffmpeg; then git log | jq .; fi\n# curl: a comment\n",
        },
    )
    found = {
        one.name: one.package for one in system_commands(root, "Requires pdftoppm and LibreOffice")
    }
    assert found == {
        "soffice": "libreoffice", "pandoc": "pandoc", "tesseract": "tesseract-ocr",
        "ffmpeg": "ffmpeg", "git": "git", "jq": "jq", "pdftoppm": "poppler-utils",
        "libreoffice": "libreoffice",
    }  # fmt: skip


def test_a_python_script_without_a_suffix_declares_and_imports_as_others_do(tmp_path: Path) -> None:
    root = make_skill(
        tmp_path,
        "tool",
        files={
            "scripts/declares": "#!/usr/bin/env -S uv run --script\n"
            "# /// script\n# dependencies = ['rich']\n# ///\n",
            "scripts/imports": "#!/usr/bin/env python3\nimport numpy\n",
            "scripts/shell": "#!/bin/sh\nimport pandas\n",
        },
    )
    assert _texts(skill_needs(root)) == {("rich", "declared"), ("numpy", "guess")}


def test_nothing_is_guessed_from_python_2(tmp_path: Path) -> None:
    needs = _needs(
        tmp_path,
        scripts__old_py="#!/usr/bin/env python2.7\nimport mechanize\n",
        scripts__both_py="import urllib2, ConfigParser, StringIO\n",
    )
    assert needs == SkillNeeds()


@pytest.mark.parametrize(
    ("module", "name"),
    [("dns.resolver", "dnspython"), ("z3", "z3-solver"), ("bson.json_util", "pymongo"),
     ("azure.identity", "azure-identity"), ("yara", "yara-python"), ("tdc", "pytdc")],
)  # fmt: skip
def test_the_package_that_has_a_module_is_guessed_not_the_one_of_its_name(
    tmp_path: Path, module: str, name: str
) -> None:
    assert _texts(_needs(tmp_path, scripts__main_py=f"import {module}\n")) == {(name, "guess")}


def test_a_declaration_that_is_a_link_to_a_file_outside_is_not_read(tmp_path: Path) -> None:
    root = make_skill(tmp_path, "tool")
    for name in ("requirements.txt", "pyproject.toml", "package.json"):
        (tmp_path / name).write_text("private notes\n", "utf-8")
        (root / name).symlink_to(tmp_path / name)
    assert skill_needs(root) == SkillNeeds()


def test_requirements_that_powershell_wrote_are_read(tmp_path: Path) -> None:
    root = make_skill(tmp_path, "tool")
    (root / "requirements.txt").write_bytes("numpy<3\r\nrich\r\n".encode("utf-16"))
    assert _texts(skill_needs(root)) == {("numpy<3", "declared"), ("rich", "declared")}


def test_the_sources_that_are_parsed_for_imports_are_bounded_in_all(tmp_path: Path) -> None:
    padding = "#" * 250_000
    files = {
        f"scripts__a{number:02}_py": f"import p{number:02}x\n{padding}" for number in range(20)
    }
    found = _texts(_needs(tmp_path, **files))
    assert found == {(f"p{number:02}x", "guess") for number in range(8)}


def test_a_script_of_nothing_but_keywords_is_searched_in_linear_time(tmp_path: Path) -> None:
    # Quadratic, each of these files would take minutes.
    files = {f"scripts__a{number}_js": "export\n" * 70_000 for number in range(8)}
    with within(60):
        assert _needs(tmp_path, **files) == SkillNeeds()


def test_the_scripts_that_are_searched_for_node_packages_are_bounded_in_all(tmp_path: Path) -> None:
    padding = " " * 500_000
    files = {f"scripts__a{number}_js": f"import 'p{number}'\n{padding}" for number in range(10)}
    found = _texts(_needs(tmp_path, **files))
    assert found == {(f"p{number}@*", "guess") for number in range(8)}
